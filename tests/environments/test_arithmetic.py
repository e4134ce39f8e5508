"""Arithmetic: its expressions, what counts as an answer, and fresh test tasks."""

from __future__ import annotations

import hashlib
import random
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ludus.environments.arithmetic.answers import read_answer
from ludus.environments.arithmetic.environment import Arithmetic, ArithmeticTask
from ludus.environments.arithmetic.expressions import (
    PAIRS,
    easy_expression,
    fraction,
    join,
    number,
    read_expression,
    shows_value,
)
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.partition import SplitType
from ludus.server.authoring.procedural import SECRET_VARIABLE

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)

GOLDEN = [("244 - 8", "236"), ("(27 - 20) × (2 - 18)", "-112"), ("6^3 - 12.75 × 70 + 49 × 72", "5703/2")]
"""The first test task of each level. A change of these raises the environment's version."""


def computed(text: str) -> Fraction:
    """The value by Python's own parser, in which each number is a fraction."""
    program = text.replace("×", "*").replace("÷", "/").replace("^", "**")
    exact = re.sub(r"\d+(?:\.\d+)?", lambda found: f"Fraction('{found[0]}')", program)
    value = eval(exact, {"Fraction": Fraction, "__builtins__": {}})
    assert isinstance(value, Fraction)
    return value


def task_of(difficulty: Difficulty, index: int) -> ArithmeticTask:
    """A training task of one level."""
    return Arithmetic.load_task("train", index, [difficulty])


@each_difficulty
@given(index=st.integers(0, 2**50))
def test_the_solution_is_what_the_text_says_and_none_of_its_numbers(difficulty: Difficulty, index: int) -> None:
    task = task_of(difficulty, index)
    assert computed(task.expression) == Fraction(task.solution)
    assert abs(Fraction(task.solution)) not in {Fraction(one) for one in numbers_of(task.expression)}
    assert f"({task.solution.lstrip('-')})" not in task.expression


def test_a_decimal_or_a_fraction_that_is_the_value_shows_it() -> None:
    nothing = join(number("4"), "-", number("4"))
    for shown in (number("5.75"), fraction(5, 4), number("12")):
        assert nothing is not None
        for found in (join(shown, "-", nothing), join(nothing, "-", shown)):
            assert found is not None
            assert shows_value(found)
    other = join(fraction(5, 4), "+", number("2"))
    assert other is not None
    assert not shows_value(other)


def test_no_easy_expression_has_its_solution_in_it() -> None:
    for place in range(PAIRS):
        found = easy_expression(place, random.Random(place))
        assert str(abs(found.value)) not in found.numbers


@given(index=st.integers(0, 2**50))
def test_levels_keep_their_promises(index: int) -> None:
    easy, medium, hard = (task_of(one, index) for one in DIFFICULTIES)
    assert re.fullmatch(r"\d{3} [+×-] \d{1,2}", easy.expression)
    assert len(numbers_of(medium.expression)) in (3, 4)
    assert re.fullmatch(r"-?\d+", medium.solution)
    assert "(" in medium.expression
    assert re.search(r"[./]", hard.expression)
    assert Fraction(hard.solution).denominator <= 100
    assert all(abs(Fraction(one.solution)) <= 100_000 for one in (easy, medium, hard))


def test_easy_training_tasks_repeat_no_pair_before_all_were_there() -> None:
    count = 8 * PAIRS // 10
    pairs = {numbers_of(task_of("easy", index).expression) for index in range(0, count, 7)}
    assert len(pairs) == len(range(0, count, 7))
    assert numbers_of(task_of("easy", count).expression) == numbers_of(task_of("easy", 0).expression)


@pytest.fixture(scope="module")
def held_out() -> set[tuple[str, ...]]:
    """The numbers of all tasks for validation and test."""
    splits: tuple[SplitType, ...] = ("validation", "test")
    return {numbers_of(task.expression) for split in splits for task in Arithmetic.load_tasks(split)}


@given(index=st.integers(0, 2**50))
def test_no_training_task_has_the_numbers_of_one_that_was_held_out(held_out: set[tuple[str, ...]], index: int) -> None:
    assert numbers_of(Arithmetic.load_task("train", index).expression) not in held_out


def numbers_of(text: str) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"\d+(?:\.\d+)?", text)))


def test_validation_and_test_share_no_numbers() -> None:
    found = [{numbers_of(task.expression) for task in Arithmetic.load_tasks(split)} for split in ("validation", "test")]
    assert found[0].isdisjoint(found[1])


def test_the_tasks_of_this_version_are_fixed() -> None:
    assert [(task.expression, task.solution) for task in Arithmetic.load_tasks("test")[:3]] == GOLDEN


@pytest.mark.parametrize("levels", [DIFFICULTIES, ("easy",)])
def test_no_unseen_test_has_the_numbers_of_a_public_one(
    levels: tuple[Difficulty, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [*Arithmetic.load_tasks("test", levels)]
    monkeypatch.setenv(SECRET_VARIABLE, "nobody knows this")
    tests += Arithmetic.load_tasks("test", levels)
    assert len({read_expression(task.expression).identity for task in tests}) == 600


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("Answer: 12", "12"), ("12", "12"), (" -3.50\n", "-7/2"), ("Answer: 7/2", "7/2"), ("**Answer:** 14/4", "7/2"),
        (r"So it is \boxed{\frac{7}{2}}.", "7/2"), (r"Answer: \boxed{-\frac{7}{2}}", "-7/2"), ("answer: 1,234", "1234"),
        ("Answer: 3\nAnswer: 4", "4"), (r"Answer: 3 or \boxed{4}", "4"), ("\\boxed{3}\nAnswer: 4", "4"),
        ("Answer: −5", "-5"), ("Answer: –5", "-5"), ("I think.\nAnswer: `.5`", "1/2"), ("Answer:\n12", "12"),
        ("**Answer:**\n\n\\[\n\\boxed{\\frac{7}{2}}\n\\]", "7/2"), ("## Final Answer\n$$7/2$$", "7/2"),
        ("The answer is 12.", "12"), ("Answer: ½", "1/2"), ("Answer: 3 × 4 = 12", "12"),
    ],
)  # fmt: skip
def test_a_number_is_read_in_any_usual_form(message: str, value: str) -> None:
    assert read_answer(message) == Fraction(value)


@pytest.mark.parametrize(
    "message",
    [
        "", "Answer:", "Answer: 3 or 4", "Answer: 3, 4", "3 4 5", "Answer: 2 + 2", "Answer: 1/0", "Answer: 12 apples",
        "Answer: 3\nAnswer: none", "Answer: 1e3", "Answer: 0x10", "Answer: ٣", "Answer: nan",
        "Answer: inf", "Answer: 1_000", "Answer: 12,34", "Answer: 3 × 4 = 11",
        "Answer: 3 = x = 3", "the result of 2 + 2 is 4", "Answer: " + "9" * 101,
        r"\boxed{4} or 5 \boxed{}",
    ],
)  # fmt: skip
def test_what_is_not_exactly_one_number_is_none(message: str) -> None:
    assert read_answer(message) is None


PIECES = ("Answer:", r"\boxed{", r"\frac{", "{", "}", *"\n0123456789-+.,/ *$\\", "12", "0.5", "1,234")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_a_message_gives_a_number_that_is_written_in_it_or_none(message: str) -> None:
    number = read_answer(message)
    written = [Fraction(one.replace(",", "")) for one in re.findall(r"[\d,]*\d(?:\.\d+)?|\.\d+", message)]
    event("a number" if number is not None else "none")
    assert number is None or abs(number) in {
        *written, *(above / below for above in written for below in written if below),
    }  # fmt: skip


def test_only_the_end_of_a_long_message_is_read() -> None:
    assert read_answer("Answer: 3\n" + "\n" * 1_000_000) is None
    assert read_answer("\n" * 1_000_000 + "Answer: 3") == 3


@each_difficulty
async def test_an_exploit_earns_nothing(player: Any, difficulty: Difficulty) -> None:
    name = f"arithmetic-{difficulty}"
    for index in range(3):
        task = player.task(name, "train", index)
        exploits = Arithmetic.exploits(task)
        assert len(exploits) >= 20
        for what, policy in exploits.items():
            [episode] = await player.start(name, "train", index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 0.0, what


async def test_the_right_value_in_another_form_earns_everything(player: Any) -> None:
    for index in range(12):
        task = player.task("arithmetic", "train", index)
        value = Fraction(task.solution)
        [episode] = await player.start("arithmetic", "train", index)
        said = rf"\boxed{{\frac{{{value.numerator}}}{{{value.denominator}}}}}"
        info = await player.answer(episode.episode, f"First 3, then 4.\n{said}")
        assert info.reward.value == 1.0


def test_the_first_training_tasks_are_the_same_in_every_release() -> None:
    """Tasks may be made faster, but never become others; the hash is that of their rows."""
    rows = "".join(Arithmetic.load_task("train", index).model_dump_json() for index in range(600))
    assert hashlib.sha256(rows.encode()).hexdigest()[:16] == "b11212c9fb4a3906"
