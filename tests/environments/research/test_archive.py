"""The archive of `research`: what pages state is what the environment takes for stated, and later pages hold."""

from __future__ import annotations

import pytest
from research_reader import values, year_in

from ludus.environments.research import Research
from ludus.environments.research.archive import REPORTED, Archive, archive_of, open_library
from ludus.environments.research.briefs import LEVELS, brief_of
from ludus.environments.research.columns import form_of, label_of, value_shown
from ludus.environments.research.environment import sheet_of
from ludus.environments.search.world import RELATIONS, World
from ludus.environments.search.world.schema import OF_KIND
from ludus.server import DIFFICULTIES, Difficulty


def suite_of(share: int) -> list[pytest.MarkDecorator]:
    """The marks of a share of the pages: all but the first are read in a suite."""
    return [pytest.mark.suite("research")] if share else []


WORLDS = ("train-0", "validation-1", "test-2")
each_world = pytest.mark.parametrize("world", WORLDS)
each_share = pytest.mark.parametrize("share", [pytest.param(share, marks=suite_of(share)) for share in range(12)])
each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)


def shown(archive: Archive, relation: str, value: int | None) -> str | None:
    """A value as pages write it; None if there is none."""
    return None if value is None else value_shown(archive, form_of((relation,)), value)


def read_from(archive: Archive, world: World, entity: int) -> list[tuple[int, dict[str, str]]]:
    """What a reader finds in the article of an entity and in the reports about it, with the year of each page."""
    found = archive.graph.entities[entity]
    article = world.pages[entity].text
    read = [(year_in(article, r"Last revised in (\d+)\."), values(article, found.title, found.kind))]
    for report in archive.about.get(entity, ()):
        text = world.pages[report.number].text
        assert f"[[{report.title}]]" in article
        read.append((year_in(text, r"Published in (\d+)\."), values(text, found.title, found.kind)))
    return read


@each_world
@each_share
def test_a_reader_of_the_pages_finds_exactly_the_facts_that_hold(world: str, share: int) -> None:
    archive, library = archive_of(world), open_library(world)
    checked = 0
    for entity in archive.graph.entities[share::12]:
        read = read_from(archive, library, entity.id)
        for relation in OF_KIND[entity.kind]:
            fact = archive.fact(relation.name, entity.id)
            said = sorted((year, one[relation.name]) for year, one in read if relation.name in one)
            assert (said[-1][1] if said else None) == shown(archive, relation.name, fact.value)
            others = {value for _, value in said} - {said[-1][1]} if said else set()
            assert others == ({shown(archive, relation.name, fact.other)} if fact.other is not None else set())
            checked += 1
    assert checked > 200


@each_world
def test_no_two_pages_about_an_entity_are_of_the_same_year(world: str) -> None:
    archive = archive_of(world)
    for entity in archive.graph.entities:
        years = [archive.revised[entity.id], *(one.year for one in archive.about.get(entity.id, ()))]
        assert len(set(years)) == len(years)


@each_world
def test_no_list_states_what_reports_are_about(world: str) -> None:
    archive = archive_of(world)
    for relations in REPORTED.values():
        for relation in relations:
            for subject in archive.graph.facts[relation.name]:
                assert archive.layout.stating(relation.name, subject) == {subject}


@each_world
def test_later_reports_and_earlier_ones_contradict_articles_and_some_add_to_them(world: str) -> None:
    archive = archive_of(world)
    newer = older = added = 0
    for (relation, subject), fact in [
        ((relation.name, one.subject), archive.fact(relation.name, one.subject))
        for one in archive.reports
        for relation in REPORTED[archive.graph.entities[one.subject].kind]
    ]:
        stated = archive.graph.facts[relation].get(subject)
        newer += fact.other is not None and fact.value != stated
        older += fact.other is not None and fact.value == stated
        added += stated is None and fact.value is not None
    assert min(newer, older) > 30
    assert added > 10


@each_difficulty
def test_each_brief_has_its_levels_size_and_something_that_no_page_states(difficulty: Difficulty) -> None:
    level = LEVELS[difficulty]
    for index in range(30):
        sheet = sheet_of(Research.load_task("validation", index, (difficulty,)))
        assert level.subjects[0] <= len(sheet.titles) <= level.subjects[1]
        assert len(set(sheet.labels)) == sum(level.columns)
        assert len(sheet.answers) == level.questions
        assert level.conflicts[0] <= len(sheet.conflicts) <= level.conflicts[1]
        assert any(cell.value is None for row in sheet.cells for cell in row)
        assert sheet.titles == tuple(sorted(sheet.titles))


@each_difficulty
def test_no_column_has_one_value_for_more_than_half_of_the_subjects(difficulty: Difficulty) -> None:
    for index in range(30):
        sheet = sheet_of(Research.load_task("validation", index, (difficulty,)))
        for column in range(len(sheet.labels)):
            found = [row[column].value for row in sheet.cells]
            assert max(map(found.count, found)) <= len(found) / 2


def test_briefs_of_a_level_about_a_world_all_differ() -> None:
    for difficulty in DIFFICULTIES:
        briefs = [brief_of("train-0", difficulty, number) for number in range(50)]
        assert len({(one.scope, one.columns, one.questions) for one in briefs}) == 50


def test_hard_briefs_describe_their_subjects_and_have_chains_of_three() -> None:
    for number in range(20):
        brief = brief_of("train-0", "hard", number)
        assert max(map(len, brief.columns)) == 3
        titles = [archive_of("train-0").graph.entities[one].title for one in brief.subjects]
        assert not any(title in brief.scope for title in titles)


def test_every_relation_has_a_name_of_its_own_among_those_of_its_kind() -> None:
    for relations in OF_KIND.values():
        labels = [label_of((one.name,)).lower() for one in relations]
        assert len(set(labels)) == len(labels)
        assert not any(" of " in one for one in labels)
    assert len(RELATIONS) > 50
