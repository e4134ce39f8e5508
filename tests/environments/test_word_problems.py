"""Word problems: they have one answer, which no guess from the text gives, and only that answer counts."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from word_problem_reader import SOURCES as READ_SOURCES
from word_problem_reader import TRANSFORMS as READ_TRANSFORMS
from word_problem_reader import solve

from ludus.environments.word_problems.answers import read_answer
from ludus.environments.word_problems.environment import WordProblems
from ludus.environments.word_problems.problems import LEVELS, Problem, draw_problem
from ludus.environments.word_problems.sources import SOURCES
from ludus.environments.word_problems.story import NAMES, SCALES
from ludus.environments.word_problems.transforms import TRANSFORMS
from ludus.server import DIFFICULTIES, Difficulty, TaskDraw
from ludus.server.authoring.partition import SplitType
from ludus.server.authoring.procedural import FreshTests

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
COUNT = 200
"""How many problems of each level are looked at."""


def problems(difficulty: Difficulty, count: int = COUNT) -> list[Problem]:
    return [draw_problem(f"test:{index}", "train", difficulty) for index in range(count)]


@pytest.fixture(scope="module")
def drawn() -> dict[Difficulty, list[Problem]]:
    """Problems of each level."""
    return {difficulty: problems(difficulty) for difficulty in DIFFICULTIES}


def check_by_another_way(problem: Problem) -> None:
    """Solve the problem from its text alone, and compare each value on the way."""
    assert solve(problem.families, problem.parts[:-1]) == list(problem.values), problem.question
    scale = SCALES["money"] if problem.unit == "dollars" else 1
    assert Fraction(problem.values[-1]) / scale == problem.answer
    assert problem.parts[-1] == problem.question[-len(problem.parts[-1]) :]


@each_difficulty
def test_another_way_from_the_text_alone_finds_the_same_answer(drawn: Any, difficulty: Difficulty) -> None:
    for problem in drawn[difficulty]:
        check_by_another_way(problem)


@pytest.mark.suite("breadth")
@each_difficulty
def test_another_way_finds_the_same_answer_of_thousands(difficulty: Difficulty) -> None:
    families: Counter[str] = Counter()
    for problem in problems(difficulty, 6000):
        check_by_another_way(problem)
        families.update(problem.families)
    if difficulty == "hard":
        assert set(families) == {*READ_SOURCES, *READ_TRANSFORMS}, "each family is used and checked"


def test_there_are_at_least_fifty_families_and_each_is_read_by_another_way() -> None:
    transforms = {one.__name__ for choices in TRANSFORMS.values() for one in choices}
    assert set(SOURCES) == set(READ_SOURCES)
    assert transforms == set(READ_TRANSFORMS)
    assert len(SOURCES) + len(transforms) >= 50


@each_difficulty
def test_the_numbers_are_plausible(drawn: Any, difficulty: Difficulty) -> None:
    for problem in drawn[difficulty]:
        *before, last = problem.values
        assert all(isinstance(one, int) and one > 0 for one in before), "no part of a person, and none negative"
        if "drawn" in problem.families:
            assert 0 < last < 1
        else:
            assert isinstance(last, int)
        if problem.families[0] == "ages":
            assert 8 <= problem.values[0] <= 80
        assert "  " not in problem.question
        assert "None" not in problem.question


@each_difficulty
def test_a_level_has_its_steps_pieces_and_distractors(drawn: Any, difficulty: Difficulty) -> None:
    level = LEVELS[difficulty]
    for problem in drawn[difficulty]:
        assert level.steps[0] <= problem.steps <= level.steps[1]
        assert level.pieces[0] <= len(problem.families) <= level.pieces[1]
        assert level.distractors[0] <= len(problem.distractors) <= level.distractors[1]
        for text in problem.distractors:
            assert NUMBER.search(text)
            assert problem.question.count(text) == 1


@each_difficulty
def test_without_the_distractors_the_question_is_its_parts(drawn: Any, difficulty: Difficulty) -> None:
    for problem in drawn[difficulty]:
        rest = problem.question
        for text in problem.distractors:
            rest = rest.replace(f"{text} ", "")
        assert rest == " ".join(problem.parts)


def test_a_distractor_is_about_no_other_person_of_the_story(drawn: Any) -> None:
    for problem in drawn["hard"]:
        said = set(re.findall(r"\w+", " ".join(problem.parts)))
        for text in problem.distractors:
            people = [one for one in NAMES if re.search(rf"\b{one}\b", text) and one in said]
            assert len(people) <= 1, "only the one whom the story is about"


def test_sentences_fit_anyone_and_questions_name_what_they_ask_for(drawn: Any) -> None:
    for problem in (*drawn["medium"], *drawn["hard"], *problems("hard", 300)):
        assert not re.search(r"\b(?:aunt|uncle|sister|brother|he|she|his|her)\b", problem.question), problem.question
        assert not re.search(r"does it cost\?|given out are there", problem.parts[-1]), problem.parts[-1]


@pytest.mark.parametrize(
    ("said", "unit"),
    [
        (r"\(84\) minutes", "minutes"),
        (r"\[84\]", "minutes"),
        ("84 min", "minutes"),
        ("84 m²", "square meters"),
        ("84 mL", "milliliters of juice"),
        ("84 bars of soap", "rare bars of soap"),
        ("84 menus", "different menus"),
        ("$84 USD", "dollars"),
    ],
)
def test_a_part_of_the_unit_or_its_abbreviation_may_follow(said: str, unit: str) -> None:
    assert read_answer(f"Answer: {said}", unit) == 84


@pytest.mark.parametrize(
    ("said", "unit"), [("84 m²", "meters"), ("84 hours", "minutes"), ("84 soap bars", "bars of soap"), ("84 m", "")]
)
def test_another_unit_may_not_follow(said: str, unit: str) -> None:
    assert read_answer(f"Answer: {said}", unit) is None


def guesses(text: str) -> set[Fraction]:
    """All numbers of a text, their sum, and the results of one operation on two of them."""
    there = [Fraction(one) for one in NUMBER.findall(text)]
    found = {*there, sum(there, Fraction())}
    for a in there:
        for b in there:
            found |= {a + b, a - b, a * b}
            if b:
                found.add(a / b)
    return found


@each_difficulty
def test_no_guess_from_the_numbers_of_the_text_is_right(drawn: Any, difficulty: Difficulty) -> None:
    for problem in drawn[difficulty]:
        assert problem.answer not in guesses(problem.question)
        assert problem.answer not in guesses(" ".join(problem.parts))


@each_difficulty
def test_the_most_frequent_answer_is_rare(difficulty: Difficulty) -> None:
    answers = Counter(problem.answer for problem in problems(difficulty, 1000))
    assert answers.most_common(1)[0][1] <= 0.02 * 1000
    assert len(answers) > 400


@cache
def held_out(split: SplitType) -> set[str]:
    """The identities of all problems of a split, at all levels, alone and in turn."""
    levels: list[list[Difficulty]] = [[one] for one in DIFFICULTIES]
    draws = [TaskDraw(split, tuple(chosen)) for chosen in (*levels, DIFFICULTIES)]
    return {identity for draw in draws for identity in WordProblems._held_out(draw)[1]}


@each_difficulty
@given(index=st.integers(0, 2**50))
def test_no_training_problem_has_the_numbers_of_one_that_was_held_out(difficulty: Difficulty, index: int) -> None:
    problem = draw_problem(f"word_problems:train:{difficulty}:{index}", "train", difficulty)
    assert WordProblems.load_task("train", index, [difficulty]).question == problem.question
    assert problem.identity not in held_out("validation") | held_out("test")


def test_validation_and_test_share_no_numbers() -> None:
    assert held_out("validation").isdisjoint(held_out("test"))


def test_validation_and_test_have_no_question_twice() -> None:
    splits: tuple[SplitType, ...] = ("validation", "test")
    texts = [task.question for split in splits for task in WordProblems.load_tasks(split)]
    assert len(texts) == len(set(texts)) == 600


def test_no_unseen_test_is_a_public_one() -> None:
    draw = TaskDraw("test", DIFFICULTIES, FreshTests("nobody knows this", "unseen"))
    assert len(WordProblems._held_out(draw)[1]) == 600


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("Answer: 12", "12"), ("12", "12"), ("The answer is 12.", "12"), ("So the final answer is: **12**", "12"),
        ("**Answer:** 5/4", "5/4"), (r"Thus \boxed{1,234.50}", "2469/2"), ("Answer: 12 square meters", "12"),
        ("Answer: 12 sqm.", "12"),
        (r"\boxed{12 \text{ square meters}}", "12"), ("I have 3, so\nTherefore, the answer is 12 Square meters.", "12"),
        ("Answer:\n12 square meters", "12"), ("**Answer:**\n\n\\[\n\\boxed{12}\n\\]", "12"), ("Answer: –12", "-12"),
        ("Answer: 3\nThe answer is 4", "4"), (r"The answer is \boxed{\frac{7}{2}}.", "7/2"), ("Answer: .75", "3/4"),
    ],
)  # fmt: skip
def test_a_number_is_read_in_any_usual_form(message: str, value: str) -> None:
    assert read_answer(message, "square meters") == Fraction(value)


@pytest.mark.parametrize("message", ["Answer: US$12.50", r"Answer: \$12.50", "Answer: 12.50 USD"])
def test_an_amount_is_read_only_where_dollars_are_asked_for(message: str) -> None:
    assert read_answer(message, "dollars") == Fraction(25, 2)
    assert read_answer(message, "square meters") is None


@pytest.mark.parametrize(
    "message",
    [
        "", "Answer:", "Answer: 3 or 4", "Answer: 3, 4", "Answer: 2 + 2", "Answer: 12 apples", "Answer: 12 meters",
        "Answer: 3\nAnswer: none", "Answer: 1e3", "Answer: ٣", "Answer: nan", "The answer is not 12.",
        "Answer: 12 square meters 13 square meters", "the sum is 4", "Answer: " + "9" * 101, r"\boxed{4} or 5 \boxed{}",
        "Answer: 50%", "answer" + " " * 9000 + "is 12", "Answer: square meters",
    ],
)  # fmt: skip
def test_what_is_not_exactly_one_number_is_none(message: str) -> None:
    assert read_answer(message, "square meters") is None


PIECES = (
    "Answer:", "The answer is", r"\boxed{", r"\text{", "{", "}", *"\n0123456789-+.,/ *$\\", "12", "0.5", "1,234",
    " square", " meters",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_a_message_gives_a_number_that_is_written_in_it_or_none(message: str) -> None:
    number = read_answer(message, "square meters")
    written = [Fraction(one.replace(",", "")) for one in re.findall(r"[\d,]*\d(?:\.\d+)?|\.\d+", message)]
    quotients = {above / below for above in written for below in written if below}
    assert number is None or abs(number) in {*written, *quotients}


@given(st.text(max_size=60), st.text(max_size=10))
def test_no_message_breaks_the_reader(message: str, unit: str) -> None:
    for text in (message, f"Answer: {message}"):
        assert isinstance(read_answer(text, unit), Fraction | None)


@each_difficulty
async def test_an_exploit_earns_nothing(player: Any, difficulty: Difficulty) -> None:
    name = f"word_problems-{difficulty}"
    exploits = WordProblems.exploits(player.task(name, "train", 1))
    assert len(exploits) >= 50
    for what, policy in exploits.items():
        [episode] = await player.start(name, "train", 1)
        await player.play(episode.episode, policy)
        assert (await player.rewards(episode.episode))[0].value == 0.0, what
