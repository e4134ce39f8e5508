"""What earns the reward is the right answer, however a model writes it, and no near miss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from paraphrases import Row, right_messages, rows, wrong_messages

from ludus.environments.algebra.environment import Algebra, AlgebraProblem
from ludus.environments.arithmetic.environment import Arithmetic, ArithmeticTask
from ludus.environments.browser.grading import same_answer
from ludus.environments.countdown.environment import Countdown, CountdownTask
from ludus.environments.negotiation import Negotiation
from ludus.environments.negotiation.drawing import scenario_of
from ludus.environments.negotiation.tasks import kinds_of
from ludus.environments.negotiation.terms import read_terms
from ludus.environments.word_problems.environment import WordProblem, WordProblems
from ludus.server import Environment, Task, ToolError
from ludus_sql.engine import QueryError, check_query
from ludus_sql.grading import read_query

LEAST = 0.97
"""The share of right answers in other words that must earn what the oracle earns."""


class Case(NamedTuple):
    """An answer of a task, in some way of writing, and what it earns."""

    written: str
    earned: bool


def _episode(cls: type[Environment[Any]], task: Task) -> Any:
    environment = cls()
    environment.task = task
    environment.setup()
    return environment


def _arithmetic(row: Row) -> Any:
    task = ArithmeticTask(id="one", expression="1 + 1", difficulty="easy", solution=row["solution"])
    return _episode(Arithmetic, task)


def _word_problem(row: Row) -> Any:
    return _episode(
        WordProblems,
        WordProblem(
            id="one", question="How many?", situations=(), steps=1, unit=row["unit"], difficulty="easy",
            solution=row["solution"],
        ),
    )  # fmt: skip


def _algebra(row: Row) -> Any:
    return _episode(
        Algebra,
        AlgebraProblem(
            id="one", question=row["question"], topic="one", form=row["form"], difficulty="easy",
            solution=row["solution"],
        ),
    )  # fmt: skip


GRADED: dict[str, Callable[[Row], Any]] = {
    "arithmetic": _arithmetic, "word_problems": _word_problem, "algebra": _algebra,
}  # fmt: skip


def _graded(name: str, messages: Callable[[Row], Iterable[str]]) -> Iterator[Case]:
    for row in rows(name):
        episode = GRADED[name](row)
        yield from (Case(message, episode.grade(message).value == 1.0) for message in messages(row))


def _countdown(key: str) -> Iterator[Case]:
    for row in rows("countdown"):
        episode = _episode(
            Countdown,
            CountdownTask(
                id="one", numbers=tuple(row["numbers"]), target=row["target"], difficulty="easy",
                solution=row["solution"],
            ),
        )  # fmt: skip
        for form in row[key]:
            try:
                earned = episode.submit(form).reward.value == 1.0
            except ToolError:
                earned = False
            yield Case(form, earned)


def _browser(key: str) -> Iterator[Case]:
    for row in rows("browser"):
        yield from (Case(form, same_answer(form, row["wanted"])) for form in row[key])


QUERIES = (
    "SELECT country, birth_year\nFROM authors\nWHERE birth_year > 1949",
    "WITH g AS (\nSELECT country AS k, SUM(age) AS n\nFROM guests\nGROUP BY country\n)\nSELECT MAX(n)\nFROM g",
    "SELECT title\nFROM events\nWHERE title LIKE '%;%'\nORDER BY title",
    "SELECT COUNT(*), MAX(return_date) FROM loans WHERE renewals > 3",
    "SELECT name || ' `x`' AS label FROM members",
)


def _sql(right: bool) -> Iterator[Case]:
    for row in rows("sql"):
        for query in QUERIES if row["right"] is right else ():
            message = row["layout"].replace("@", query)
            try:
                checked = check_query(read_query(message))
            except QueryError:
                checked = ""
            plain = re.sub(r"\s+", " ", re.sub(r"--[^\n]*|/\*.*?\*/", "", checked)).strip()
            yield Case(message, plain == re.sub(r"\s+", " ", query))


def _named(form: str, names: Sequence[str]) -> str:
    return re.sub(r"\b[ABCabc]\b", lambda found: names["ABC".index(found[0].upper())], form)


def _negotiation(key: str) -> Iterator[Case]:
    by_domain = {row["domain"]: row for row in rows("negotiation")}
    for domain, row in by_domain.items():
        themes: set[str] = set()
        for index in range(60):
            scenario = scenario_of(Negotiation.load_task("train", index, kinds_of(["easy"], [domain])).scenario)
            names = [issue.name for issue in scenario.issues]
            has_room = domain == "price" or (
                len(scenario.issues[0].options) > 2 and len(scenario.issues[2].options) > 1
            )
            if names[0] in themes or not has_room:
                continue
            themes.add(names[0])
            wanted = (500,) if domain == "price" else (2, 0, 1)
            for form in row[key]:
                written = form if domain == "price" else _named(form, names)
                try:
                    earned = read_terms(scenario, 0, written) == wanted
                except ToolError:
                    earned = False
                yield Case(written, earned)


RIGHT: dict[str, Callable[[], Iterator[Case]]] = {
    "arithmetic": lambda: _graded("arithmetic", right_messages),
    "word_problems": lambda: _graded("word_problems", right_messages),
    "algebra": lambda: _graded("algebra", right_messages),
    "countdown": lambda: _countdown("right"),
    "browser": lambda: _browser("right"),
    "sql": lambda: _sql(True),
    "negotiation": lambda: _negotiation("right"),
}
WRONG: dict[str, Callable[[], Iterator[Case]]] = {
    "arithmetic": lambda: _graded("arithmetic", wrong_messages),
    "word_problems": lambda: _graded("word_problems", wrong_messages),
    "algebra": lambda: _graded("algebra", wrong_messages),
    "countdown": lambda: _countdown("wrong"),
    "browser": lambda: _browser("wrong"),
    "sql": lambda: _sql(False),
    "negotiation": lambda: _negotiation("wrong"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_in_other_words_earn_what_the_oracle_earns(name: str) -> None:
    cases = list(RIGHT[name]())
    missed = [case.written for case in cases if not case.earned]
    assert len(cases) >= 200
    assert 1 - len(missed) / len(cases) >= LEAST, (len(missed), len(cases), missed)


@pytest.mark.parametrize("name", WRONG)
def test_near_misses_earn_nothing(name: str) -> None:
    cases = list(WRONG[name]())
    assert len(cases) >= 100
    assert [case.written for case in cases if case.earned] == []
