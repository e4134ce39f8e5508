"""The encyclopedia: each fact stands where the layout says, names belong to one split, and years fit together."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.environments.search.world import RELATIONS, World, graph_of, open_world
from ludus.environments.search.world.graph import draw_graph
from ludus.environments.search.world.index import Index, query_words, snippet
from ludus.environments.search.world.layout import Layout
from ludus.environments.search.world.library import Shelf
from ludus.environments.search.world.names import belongs
from ludus.environments.search.world.pages import link, value_text, write_pages
from ludus.environments.search.world.schema import KINDS, PRESENT
from ludus.server import TaskDraw, fresh_tests
from ludus.server.authoring.partition import SPLITS, SplitType
from ludus.server.authoring.procedural import SECRET_VARIABLE

WORLDS = ("train-0", "validation-1", "test-2")
each_world = pytest.mark.parametrize("world", WORLDS)
LINK = re.compile(r"\[\[([^\]|]*)(?:\|([^\]]*))?\]\]")


def invented(world: str) -> set[str]:
    """All words and titles that were invented for a world."""
    graph = graph_of(world)
    common = set(
        "Lake River University Academy Upper New Saint of Shipping Company Press Works Mills Glassworks Brewery "
        "Instruments Timber Bridge Lighthouse Observatory Museum Theater Water Tower Park Field Prize Medal Lantern "
        "Festival Music Days Regatta Book Fair Harvest Kite Meeting Rovers Athletic Wanderers Rowing Club United "
        "Harriers newt perch pond snail dragonfly water beetle char crayfish whitefish".split()
    )
    words = {entity.name for entity in graph.entities if entity.kind == "book"}
    for entity in graph.entities:
        if entity.kind != "book":
            words |= {word for name in (entity.name, *entity.aliases) for word in name.split()} - common
    return words


@settings(max_examples=12, deadline=None)
@given(split=st.sampled_from(SPLITS), number=st.integers(0, 10**9))
def test_every_invented_name_belongs_to_the_split_of_its_world(split: SplitType, number: int) -> None:
    assert all(belongs(word, split) for word in invented(f"{split}-{number}"))


def test_worlds_of_different_splits_share_no_name_and_no_page() -> None:
    for one, other in (("train-0", "test-0"), ("train-3", "validation-3"), ("validation-1", "test-1")):
        assert invented(one).isdisjoint(invented(other))
        assert {page.text for page in open_world(one).pages}.isdisjoint(page.text for page in open_world(other).pages)


def test_fresh_test_worlds_differ_and_belong_to_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = invented("test-0")
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of twenty characters")
    name = f"{TaskDraw('test', (), fresh_tests('test')).prefix}-0"
    fresh = invented(name)

    assert name != "test-0"
    assert "secret" not in name
    assert len(fresh & usual) < 10
    assert all(belongs(word, "test") for word in fresh)
    with pytest.raises(ValueError, match="test-99"):
        graph_of("test-99")


@pytest.mark.parametrize(
    "name", ["", "train", "train-x", "train--1", "dev-1", "test-abcdef01-1", "train-1-1", "train-٣"]
)
def test_a_name_that_is_no_world_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="there is no world"):
        graph_of(name)


def lines_of(world: World, page: int, subject: int) -> Iterator[str]:
    """The parts of a page that are about a subject: the whole page, or its row of a list."""
    text = world.pages[page].text
    if page in world.layout.members:
        marker = LINK.search(link(world.graph.entities[subject]))
        assert marker is not None
        yield from (line for line in text.split("\n") if line.startswith("* ") and marker[0] in line.partition(".")[0])
    else:
        yield text


@each_world
def test_each_fact_is_readable_on_exactly_the_pages_that_the_layout_says(world: str) -> None:
    found = open_world(world)
    graph = found.graph
    for name, table in graph.facts.items():
        relation = RELATIONS[name]
        for subject, target in table.items():
            pages = found.layout.stating(name, subject)
            assert subject in pages
            for page in pages:
                entity = graph.entities[target] if relation.to_entity else None
                if entity is not None and page == target:
                    entity = graph.entities[subject]  # the object's page names the subject
                if page in found.layout.members and name == "book.author":
                    continue  # the title of the list names the author
                shown = link(entity) if entity is not None else value_text(relation, target)
                assert any(shown.removeprefix("the ") in line for line in lines_of(found, page, subject)), (name, page)


@each_world
def test_every_line_of_an_infobox_and_of_a_list_is_true(world: str) -> None:
    found = open_world(world)
    graph = found.graph
    by_label = {(one.subject, one.label): one for one in RELATIONS.values()}
    checked = 0
    for page in found.pages:
        lines = page.text.split("\n")
        if page.number < len(graph.entities):
            box = [line for line in lines[1:] if ": " in line and "==" not in line and not line[0].isdigit()]
            rows = [(page.number, line) for line in box if len(line) < 90 and not line.endswith(".")]
        else:
            members = found.layout.members.get(page.number, ())
            cells = [line.partition(". ")[2].split("; ") for line in lines if line.startswith("* ")]
            rows = [(one, cell) for one, row in zip(members, cells, strict=False) for cell in row]
        for subject, line in rows:
            label, _, value = line.partition(": ")
            relation = by_label[graph.entities[subject].kind, label]
            target = graph.facts[relation.name][subject]
            assert value == (link(graph.entities[target]) if relation.to_entity else value_text(relation, target))
            checked += 1
    assert checked > 1500


@each_world
def test_lists_are_complete(world: str) -> None:
    found = open_world(world)
    for (kind, region), page in found.layout.regional.items():
        inside = {one for one in found.graph.kinds[kind] if found.graph.region_of(one) == region}
        rows = [line for line in found.pages[page].text.split("\n") if line.startswith("* ")]
        assert set(found.layout.members[page]) == inside
        assert len(rows) == len(inside)
    for author, page in found.layout.works.items():
        written = {book for book, writer in found.graph.facts["book.author"].items() if writer == author}
        assert set(found.layout.members[page]) == written


@each_world
def test_every_link_leads_to_a_page(world: str) -> None:
    found = open_world(world)
    titles = {page.title for page in found.pages}
    assert len(titles) == len(found.pages)
    assert {target for page in found.pages for target, _ in LINK.findall(page.text)} <= titles


@each_world
def test_no_page_has_leftovers_of_its_templates(world: str) -> None:
    for page in open_world(world).pages:
        assert not re.search(r"[{}]|\bNone\b|  |\bthe the\b|\ba [aeiou]\w+er\b", page.text), page.text
        assert all(line[0].isupper() or line[0] in "=*[" or line[0].isdigit() for line in page.text.split("\n"))


@each_world
def test_years_fit_together(world: str) -> None:
    graph = graph_of(world)
    facts = graph.facts
    born = {person: date // 10_000 for person, date in facts["person.born"].items()}
    begun = {
        "company.founder": "company.founded", "club.founder": "club.founded", "book.author": "book.year",
        "species.discoverer": "species.described", "structure.architect": "structure.opened",
        "festival.initiator": "festival.first",
    }  # fmt: skip
    for relation, year in begun.items():
        for subject, person in facts[relation].items():
            assert born[person] + 20 <= facts[year][subject] <= PRESENT
    for pupil, teacher in facts["person.teacher"].items():
        assert born[teacher] <= born[pupil] - 14
    for child, father in facts["person.father"].items():
        assert born[father] <= born[child] - 20


@each_world
def test_a_page_is_the_first_result_of_its_title(world: str) -> None:
    found = open_world(world)
    assert all(found.index.search(page.title)[0] is page for page in found.pages)


def test_equal_names_give_equal_worlds() -> None:
    one, other = (draw_graph("train-5", "train") for _ in range(2))
    assert one.entities == other.entities
    assert (one.facts, one.terms) == (other.facts, other.terms)
    assert write_pages(one, Layout(one)) == write_pages(other, Layout(other))


def test_a_snippet_is_bounded_and_shows_the_words_of_the_query() -> None:
    found = open_world("train-0")
    for title in (page.title for page in found.pages[:200]):
        for page in found.index.search(title)[:8]:
            line = snippet(page, query_words(title))
            assert len(line) <= 190
            assert "[[" not in line


def test_an_index_of_one_page_finds_it() -> None:
    pages = open_world("train-0").pages[:1]
    assert Index(pages).search(pages[0].title) == list(pages)
    assert Index(pages).search("nowhere at all") == []


def test_every_kind_of_the_schema_is_drawn() -> None:
    assert {entity.kind for entity in graph_of("train-0").entities} == set(KINDS)


def test_a_shelf_makes_a_value_once_and_drops_the_least_recently_used() -> None:
    shelf, made = Shelf[str](limit=2), list[str]()

    def make(name: str) -> str:
        made.append(name)
        return name.upper()

    threads = [threading.Thread(target=shelf.get, args=("a", lambda: make("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    for name in ("b", "a", "c"):
        shelf.get(name, lambda name=name: make(name))  # type: ignore[misc]
    assert (shelf.find("a"), shelf.find("b"), shelf.find("c")) == ("A", None, "C")


def test_a_value_that_could_not_be_made_is_made_at_the_next_try() -> None:
    shelf = Shelf[str](limit=2)

    def fail() -> str:
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        shelf.get("a", fail)
    assert shelf.get("a", lambda: "made") == "made"
