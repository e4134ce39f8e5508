"""The questions: exactly one answer each, no shortcut, and evidence that is really on the pages."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_brute_force import BruteForce, Unanswerable

from ludus.environments.search.questions import FAMILIES, HOPS, Question, QuestionMaker, questions_of, reduced
from ludus.environments.search.world import Graph, Layout, graph_of, layout_of
from ludus.environments.search.world.pages import date_text
from ludus.server import DIFFICULTIES, Difficulty

WORLDS = ("train-0", "validation-1", "test-2")
each_world = pytest.mark.parametrize("world", WORLDS)
each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)


def answer_of(question: Question, graph: Graph, value: int) -> str:
    """The text of what a program evaluates to."""
    if question.form == "name":
        return graph.entities[value].name
    return date_text(value) if question.form == "date" else str(value)


def without(layout: Layout, pages: frozenset[int]) -> BruteForce:
    """A reader of the world from which some pages are missing."""

    def readable(relation: str, subject: int) -> bool:
        if relation.startswith("list:"):
            kind = relation.removeprefix("list:")
            page = layout.works[subject] if kind == "book" else layout.regional[kind, subject]  # type: ignore[index]
            return page not in pages
        if relation in layout.graph.terms:
            return subject not in pages
        return not layout.stating(relation, subject) <= pages

    return BruteForce(layout.graph, readable)


@each_world
@each_difficulty
def test_brute_force_over_all_facts_finds_exactly_the_answer(world: str, difficulty: Difficulty) -> None:
    graph = graph_of(world)
    for question in questions_of(world, difficulty, 120):
        value = BruteForce(graph).evaluate(question.program)
        assert answer_of(question, graph, value) == question.answers[0], question.text


@each_world
@each_difficulty
def test_without_the_pages_of_a_hop_the_answer_does_not_follow(world: str, difficulty: Difficulty) -> None:
    layout = layout_of(world)
    for question in questions_of(world, difficulty, 60):
        for need in question.needs:
            with pytest.raises(Unanswerable):
                without(layout, need).evaluate(question.program)


@each_world
@each_difficulty
def test_one_page_for_each_hop_suffices(world: str, difficulty: Difficulty) -> None:
    graph, layout, rng = graph_of(world), layout_of(world), random.Random(1)
    every = frozenset(range(len(layout.titles)))
    for question in questions_of(world, difficulty, 60):
        kept = frozenset(rng.choice(sorted(need)) for need in question.needs)
        value = without(layout, every - kept).evaluate(question.program)
        assert answer_of(question, graph, value) == question.answers[0], question.text


@each_world
@each_difficulty
def test_levels_have_their_hops_and_no_page_serves_two(world: str, difficulty: Difficulty) -> None:
    for question in questions_of(world, difficulty, 120):
        pages = [page for need in question.needs for page in need]
        assert question.hops in HOPS[difficulty]
        assert len(set(pages)) == len(pages)


@each_difficulty
def test_no_question_names_its_answer_or_asks_for_the_most_mentioned_entity(difficulty: Difficulty) -> None:
    for world in WORLDS:
        graph = graph_of(world)
        favorites = {graph.entities[one].name for one in graph.favorites}
        for question in questions_of(world, difficulty, 120):
            assert question.answers[0].lower() not in question.text.lower().replace(",", " ").split()
            if question.form == "name":
                assert question.answers[0].lower() not in question.text.lower()
                assert question.answers[0] not in favorites


@each_difficulty
def test_every_family_of_a_level_occurs(difficulty: Difficulty) -> None:
    seen = Counter(question.family for question in questions_of("train-0", difficulty, 200))
    assert set(seen) == {family.__name__ for family in FAMILIES[difficulty]}
    assert min(seen.values()) >= 5


@each_difficulty
def test_no_answer_is_frequent_enough_to_be_guessed(difficulty: Difficulty) -> None:
    answers = Counter(question.answers[0] for world in WORLDS for question in questions_of(world, difficulty, 120))
    assert answers.most_common(1)[0][1] <= 0.06 * 360


def test_a_world_has_each_question_once() -> None:
    for difficulty in DIFFICULTIES:
        texts = [question.text for question in questions_of("train-1", difficulty, 200)]
        assert len(set(texts)) == len(texts)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_generator_makes_questions_of_every_level(seed: int) -> None:
    maker = QuestionMaker(graph_of("train-0"), layout_of("train-0"), random.Random(seed))
    for difficulty in DIFFICULTIES:
        question = maker.make(difficulty)
        assert answer_of(question, graph_of("train-0"), BruteForce(graph_of("train-0")).evaluate(question.program))


def test_needs_are_reduced_to_those_that_none_implies() -> None:
    one, other, both = frozenset({1}), frozenset({2}), frozenset({1, 3})
    assert reduced([one, both, other]) == (one, other)
    assert reduced([one, other, both]) == (other, one)
    assert reduced([one, one]) == (one,)
    assert reduced([both, frozenset({3, 4})]) is None
