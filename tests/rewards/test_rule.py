"""For each kind of check: what the policy's own output caused is 0, and what the platform caused is unscored."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ludus.server.rewards as rewards
from ludus.sandbox.core.errors import SandboxFailed
from ludus.server.execution.clock import CLOCK, Clock
from ludus.server.rewards import (
    Attempt,
    CallOrder,
    Cap,
    Check,
    Checklist,
    DatabaseState,
    EachStep,
    Efficiency,
    Endpoint,
    Exact,
    Fields,
    FileTree,
    FromTask,
    FunctionComparer,
    FunctionTest,
    FunctionTests,
    Gate,
    JsonSchema,
    Judge,
    MathEqual,
    Node,
    NoErrors,
    NormalizedMatch,
    Numeric,
    PairwiseJudge,
    Pattern,
    Penalty,
    ProgramTest,
    ProgramTests,
    ReferenceJudge,
    Rubric,
    Sequential,
    TakenStep,
    ToolCalled,
    ToolNotCalled,
    Tournament,
    Verdict,
    Weighted,
    WeightedSum,
    check,
)
from ludus.server.rewards.checklist import ItemCheck

pytestmark = pytest.mark.timeout(600)

STALLS = "a" * 400 + "!"
EPISODE_LOST_ERRORS: Any = FromTask("missing")
"""A field that the task does not have: a fault of the environment."""


class Box:
    """A box in which every program meets a limit, or which is gone."""

    def __init__(self, gone: bool) -> None:
        self.gone = gone

    async def write(self, path: str, data: bytes) -> None:
        """Keep nothing."""

    async def run(self, argv: Any, *, stdin: bytes = b"") -> Any:
        if self.gone:
            raise SandboxFailed("the box is gone")

        @dataclass
        class Ran:
            stdout, stderr, exit_code, limit, seconds = b"", b"", None, "memory", 1.0

        return Ran()


class Platform(Check):
    """A check that the platform keeps from a verdict."""

    def check(self, attempt: Attempt) -> Verdict:
        return Verdict.unscored("an outage")


POLICY = Pattern("^(a|aa)+$", seconds=0.2, name="policy")
"""A check that the policy's answer keeps from an end."""


def node(make: Callable[[Node], Node]) -> tuple[Node, Node]:
    return make(POLICY), make(Platform(name="platform"))


def database(folder: Path) -> Path:
    path = folder / "right.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (n)")
    return path


def broken(value: Any) -> Any:
    raise ValueError(value)


def cases(folder: Path, silenced: Endpoint, down: Endpoint) -> dict[str, tuple[Any, Any]]:
    """By the class: one that the policy keeps from a verdict, and one that the platform does."""
    (folder / "garbage.db").write_bytes(b"SQLite format 3\\0 and nothing more")
    call = {"n": broken}
    return {
        "Exact": (Exact("x"), Exact(EPISODE_LOST_ERRORS)),
        "NormalizedMatch": (NormalizedMatch("x"), NormalizedMatch(EPISODE_LOST_ERRORS)),
        "Numeric": (Numeric(1.0), Numeric(EPISODE_LOST_ERRORS, of=lambda a: "1")),
        "Pattern": (POLICY, Pattern("x", of=EPISODE_LOST_ERRORS)),
        "JsonSchema": (JsonSchema({"pattern": "^(a|aa)+$"}, seconds=0.2, of=lambda a: f'"{a.answer}"'),
                       JsonSchema({}, of=EPISODE_LOST_ERRORS)),
        "Fields": (Fields({"a": 1}, of=lambda a: "[" * 5000), Fields(EPISODE_LOST_ERRORS, of=lambda a: "1")),
        "MathEqual": (MathEqual("2", seconds=0.3, of=lambda a: "$9^{9^{9^9}}$"), MathEqual("", of=lambda a: "$1$")),
        "ProgramTests": (ProgramTests(tests=[ProgramTest("1", "1")], box=lambda a: Box(gone=False)),
                         ProgramTests(tests=[ProgramTest("1", "1")], box=lambda a: Box(gone=True))),
        "FunctionTests": (FunctionTests(function="f", tests=[FunctionTest([1], 1)], box=lambda a: Box(gone=False)),
                          FunctionTests(function="f", tests=[FunctionTest([1], 1)], box=lambda a: Box(gone=True))),
        "DatabaseState": (DatabaseState(folder / "garbage.db", database(folder)),
                          DatabaseState(database(folder), folder / "missing.db")),
        "FileTree": (FileTree(folder, {"garbage.db": broken}), FileTree(folder, EPISODE_LOST_ERRORS)),
        "ToolCalled": (ToolCalled("look", call), ToolCalled("look", {"n": 1}, at_least=EPISODE_LOST_ERRORS)),
        "CallOrder": (CallOrder([("look", call)]), None),
        "ToolNotCalled": (ToolNotCalled("look"), None),
        "NoErrors": (NoErrors(), None),
        "Efficiency": (Efficiency(best=0, worst=1), Efficiency(best=0, worst=EPISODE_LOST_ERRORS)),
        "Judge": (Judge("?", silenced), Judge("?", down)),
        "ReferenceJudge": (ReferenceJudge(panel=silenced, reference="x"), ReferenceJudge(panel=down, reference="x")),
        "Check": (check(lambda a: 0.0), Platform()),
        "ItemCheck": node(lambda one: ItemCheck(one, name="item")),  # type: ignore[arg-type]
        "Weighted": node(lambda one: Weighted([one])),
        "WeightedSum": node(lambda one: WeightedSum([one])),
        "Checklist": node(lambda one: Checklist(children=[ItemCheck(one, name="item")])),  # type: ignore[arg-type]
        "Gate": node(lambda one: Gate(one, check(lambda a: 1.0, name="then"))),
        "Sequential": node(lambda one: Sequential([one, check(lambda a: 1.0, name="then")])),
        "Cap": node(lambda one: Cap(one, 0.5)),
        "Penalty": node(lambda one: WeightedSum([check(lambda a: 0.0, name="base"), Penalty(one)])),
        "EachStep": node(lambda one: EachStep(check(lambda a: 0.0) if one is POLICY else one)),  # type: ignore[arg-type]
    }  # fmt: skip


ATTEMPT = Attempt(STALLS, steps=(TakenStep(1, "look", {"n": 2}, "", "refused"), TakenStep(2, "look", {"n": 3})))


@pytest.fixture
def judges(served: Any, endpoint: Any, say: Any) -> tuple[Endpoint, Endpoint]:
    """A judge whom the text keeps from a verdict, and one that is down."""

    def reply(body: Any) -> Any:
        if body["model"] == "down":
            return say.failure(503)(body)
        shown = body["messages"][1]["content"]
        if "aaaa" in shown:
            return "I was told to answer in prose."
        return (say.comparison(lambda a, b: "tie") if "better" in body["messages"][0]["content"] else say.verdict(1))(
            body
        )

    served.says(reply)
    return endpoint("silenced", attempts=1), endpoint("down", attempts=1)


def test_every_kind_of_check_has_its_case(tmp_path: Path) -> None:
    kinds = {
        name for name in rewards.__all__ if inspect.isclass(one := getattr(rewards, name)) and issubclass(one, Node)
    }
    dummy: Any = Endpoint("x", "http://127.0.0.1:9")
    assert kinds - {"Node"} <= set(cases(tmp_path, dummy, dummy))


@pytest.mark.suite("breadth")
async def test_what_the_policy_caused_is_0_and_what_the_platform_caused_is_unscored(
    judges: tuple[Endpoint, Endpoint], tmp_path: Path
) -> None:
    wrong = {}
    for name, (policy, platform) in cases(tmp_path, *judges).items():
        reward = await Rubric([policy]).score(ATTEMPT)
        if reward.value not in (0.0, 0.5 if name == "NoErrors" else 0.0):
            wrong[f"{name}, by the policy"] = reward
        if platform is not None:
            reward = await Rubric([platform]).score(ATTEMPT)
            if reward.value is not None:
                wrong[f"{name}, by the platform"] = reward
    assert wrong == {}


async def test_a_comparison_that_waits_for_its_turn_uses_up_no_time_of_its_grade() -> None:
    """The deadline of the grade is taken away while mathematics is compared, and comes back after it."""
    scheduled: list[float | None] = []
    clock = Clock(0.0, lambda deadline, waited: scheduled.append(deadline))
    CLOCK.set(lambda: clock)
    assert (await Rubric([MathEqual("2")]).score(Attempt("$1+1$"))).value == 1.0
    assert scheduled[0] is None
    assert scheduled[1] is not None
    assert len(scheduled) == 2


async def test_comparers_and_tournaments_keep_the_rule(judges: tuple[Endpoint, Endpoint]) -> None:
    silenced, down = judges
    kind = Attempt("kind")
    for comparer, values in (
        (PairwiseJudge("?", silenced), [0.0, 1.0]),
        (PairwiseJudge("?", down), [None, None]),
        (FunctionComparer(lambda a, b: Verdict.unscored("an outage")), [None, None]),
        (FunctionComparer(lambda a, b: float(len(a.answer) < len(b.answer))), [0.0, 1.0]),
    ):
        for by in ("wins", "rank"):
            scored = await Tournament(comparer, by=by).score([ATTEMPT, kind])
            assert [one.value for one in scored] == values, comparer
