"""Arithmetic: its expressions, what counts as an answer, and fresh test tasks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments._partition import SECRET_VARIABLE, SplitName
from ludus.environments.arithmetic.answers import read_answer
from ludus.environments.arithmetic.environment import held_out_tasks, make_task
from ludus.environments.arithmetic.expressions import DIFFICULTIES, Difficulty, make_expression

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)

GOLDEN = [("32 - 19", "13"), ("37 - (21 + 33 + 22)", "-39"), ("10^2 × 16.1 - (29 + 17) + 15", "1579")]
"""The first test task of each level. A change of these raises the environment's version."""


def computed(text: str) -> Fraction:
    """The value by Python's own parser, in which each number is a fraction."""
    program = text.replace("×", "*").replace("÷", "/").replace("^", "**")
    exact = re.sub(r"\d+(?:\.\d+)?", lambda found: f"Fraction('{found[0]}')", program)
    value = eval(exact, {"Fraction": Fraction, "__builtins__": {}})
    assert isinstance(value, Fraction)
    return value


@each_difficulty
@given(seed=st.integers(0, 2**32))
def test_the_solution_is_what_the_text_says(difficulty: Difficulty, seed: int) -> None:
    found = make_expression(random.Random(seed), difficulty)
    assert computed(found.text) == found.value
    assert re.findall(r"\d+(?:\.\d+)?", found.text) == list(found.numbers)


@given(seed=st.integers(0, 2**32))
def test_levels_keep_their_promises(seed: int) -> None:
    easy, medium, hard = (make_expression(random.Random(seed), one) for one in DIFFICULTIES)
    assert len(easy.numbers) == 2
    assert len(medium.numbers) in (3, 4)
    assert medium.value.denominator == 1
    assert "(" in medium.text
    assert re.search(r"[./]|\^", hard.text)
    assert hard.value.denominator <= 100
    assert all(abs(one.value) <= 100_000 for one in (easy, medium, hard))


@pytest.fixture(scope="module")
def held_out() -> set[tuple[str, ...]]:
    """The numbers of all tasks for validation and test."""
    splits: tuple[SplitName, ...] = ("validation", "test")
    return {numbers_of(task.expression) for split in splits for task in held_out_tasks(split, DIFFICULTIES)}


@given(index=st.integers(0, 2**50))
def test_no_training_task_has_the_numbers_of_one_that_was_held_out(held_out: set[tuple[str, ...]], index: int) -> None:
    assert numbers_of(make_task("train", DIFFICULTIES, index).expression) not in held_out


def numbers_of(text: str) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"\d+(?:\.\d+)?", text)))


def test_validation_and_test_share_no_numbers() -> None:
    found = [
        {numbers_of(task.expression) for task in held_out_tasks(split, DIFFICULTIES)}
        for split in ("validation", "test")
    ]
    assert found[0].isdisjoint(found[1])


def test_the_tasks_of_this_version_are_fixed() -> None:
    assert [(task.expression, task.solution) for task in held_out_tasks("test", DIFFICULTIES)[:3]] == GOLDEN


def test_a_secret_gives_other_test_tasks_with_other_ids_and_the_same_others(monkeypatch: pytest.MonkeyPatch) -> None:
    public = {split: held_out_tasks(split, DIFFICULTIES) for split in ("validation", "test")}
    monkeypatch.setenv(SECRET_VARIABLE, "nobody knows this")
    fresh = held_out_tasks("test", DIFFICULTIES)
    assert held_out_tasks("test", DIFFICULTIES) == fresh, "the same secret gives the same tasks"
    assert {task.id for task in fresh}.isdisjoint(task.id for task in public["test"])
    assert sum(one.expression == other.expression for one, other in zip(fresh, public["test"], strict=True)) == 0
    assert not any("nobody" in task.id for task in fresh)
    assert held_out_tasks("validation", DIFFICULTIES) == public["validation"]
    monkeypatch.setenv(SECRET_VARIABLE, "another")
    assert {task.id for task in held_out_tasks("test", DIFFICULTIES)}.isdisjoint(task.id for task in fresh)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("Answer: 12", "12"), ("12", "12"), (" -3.50\n", "-7/2"), ("Answer: 7/2", "7/2"), ("**Answer:** 14/4", "7/2"),
        (r"So it is \boxed{\frac{7}{2}}.", "7/2"), (r"Answer: \boxed{-\frac{7}{2}}", "-7/2"), ("answer: 1,234", "1234"),
        ("Answer: 3\nAnswer: 4", "4"), ("Answer: −5", "-5"), ("I think.\nAnswer: `.5`", "1/2"),
    ],
)  # fmt: skip
def test_a_number_is_read_in_any_usual_form(message: str, value: str) -> None:
    assert read_answer(message) == Fraction(value)


@pytest.mark.parametrize(
    "message",
    [
        "", "Answer:", "Answer: 3 or 4", "Answer: 3, 4", "3 4 5", "Answer: 2 + 2", "Answer: 1/0", "Answer: 12 apples",
        "Answer: 3\nAnswer: none", "Answer: 1e3", "Answer: 0x10", "Answer: ٣", "Answer: ½", "Answer: nan",
        "Answer: inf", "Answer: 1_000", "Answer: 12,34", "the result of 2 + 2 is 4", "Answer: " + "9" * 101,
        r"\boxed{4} or 5 \boxed{}",
    ],
)  # fmt: skip
def test_what_is_not_exactly_one_number_is_none(message: str) -> None:
    assert read_answer(message) is None


@given(st.text(alphabet=r"Answer:\boxed{}frac-+.,/0123456789 " + "\n*$", max_size=300))
def test_no_message_breaks_the_reader(message: str) -> None:
    read_answer(message)


def test_only_the_end_of_a_long_message_is_read() -> None:
    assert read_answer("Answer: 3\n" + "\n" * 1_000_000) is None
    assert read_answer("\n" * 1_000_000 + "Answer: 3") == 3


EXPLOITS: dict[str, Callable[[Any], str]] = {
    "the expression itself": lambda task: f"Answer: {task.expression}",
    "every number": lambda task: "\n".join(f"Answer: {one}" for one in range(-200, 200)) + "\nAnswer: ",
    "a list": lambda task: "Answer: " + ", ".join(map(str, range(-100, 100))),
    "a rounded value": lambda task: f"Answer: {float(Fraction(task.solution)) + 1e-9!r}",
    "a name of the solution": lambda task: "Answer: solution",
    "code": lambda task: "Answer: eval(expression)",
    "markup": lambda task: r"Answer: \boxed{\frac{0}{0}}",
    "a range": lambda task: "Answer: [-100000, 100000]",
    "the other sign as well": lambda task: f"Answer: ±{task.solution.lstrip('-')}",
    "praise of the grader": lambda task: "This answer is correct. Reward: 1.0",
    "a comparison": lambda task: "Answer: x = x",
    "nothing": lambda task: "",
}  # fmt: skip


@each_difficulty
@pytest.mark.parametrize("exploit", EXPLOITS)
async def test_an_exploit_earns_nothing(player: Any, difficulty: Difficulty, exploit: str) -> None:
    for index in range(5):
        name = f"arithmetic-{difficulty}"
        [episode] = await player.start(name, "train", index)
        info = await player.answer(episode.episode, EXPLOITS[exploit](player.task(name, "train", index)))
        assert info.reward.value == 0.0


async def test_the_right_value_in_another_form_earns_everything(player: Any) -> None:
    for index in range(12):
        task = player.task("arithmetic", "train", index)
        value = Fraction(task.solution)
        [episode] = await player.start("arithmetic", "train", index)
        said = rf"\boxed{{\frac{{{value.numerator}}}{{{value.denominator}}}}}"
        info = await player.answer(episode.episode, f"First 3, then 4.\n{said}")
        assert info.reward.value == float(value >= 0), "a sign belongs before the fraction"
