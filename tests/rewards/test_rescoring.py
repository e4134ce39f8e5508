"""Stored trajectories scored again: what was recorded over the wire, with the rubric of today."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.client import TrajectoryWriter, connect, read_trajectories, rollout_all
from ludus.protocol import Answer, Call, EpisodeLimits
from ludus.protocol.errors import EnvironmentNotFound, ParseError
from ludus.server import Environment, Private, Result, Task, tool
from ludus.server.hosting.rescoring import Summary, classes_for, read_stored, rescore
from ludus.server.rewards import Attempt, Rubric, ToolCalled, ToolNotCalled, Verdict, check, metric, reward

LUDUS = Path(sys.executable).with_name("ludus")


class Sum(Task):
    a: int
    answer: Private[int]


class Base(Environment[Sum]):
    """Double a number."""

    splits: ClassVar[Any] = {"train": [Sum(id=f"s{n}", a=n, answer=2 * n) for n in range(4)]}
    greeting = "rolled"

    def prompt(self) -> str:
        return f"Double {self.task.a}."

    @tool
    def roll(self) -> str:
        """Roll dice."""
        return f"{self.greeting} {self.rng.randrange(10**6)}"

    @tool
    def stop(self) -> str:
        """Stop."""
        return "stopped"


right = check(lambda attempt: attempt.answer == str(attempt.task.answer), name="right")


class Then(Base):
    name = "sums"
    rubric = Rubric([right], name="sums", version="1")


class Now(Base):
    name = "sums"
    rubric = Rubric([right, ToolCalled("roll", name="rolled")], name="sums", version="2")


class Changed(Then):
    name = "sums"
    greeting = "threw"


class Unscored(Base):
    name = "sums"
    rubric = Rubric([check(lambda attempt: Verdict.unscored("no judge"), name="judge")], version="9")


async def policy(conversation: Any) -> Any:
    """Rolls for odd numbers, makes a mistake, and answers 4 always."""
    if conversation.turn == 1 and conversation.task.index % 2:
        return [Call("roll", {}), Call("shout", {})]
    return Answer("4")


Record = Callable[..., Any]


@pytest.fixture
def record(serve: Any, tmp_path: Path) -> Record:
    async def play(cls: type[Environment[Any]], plays: Any = policy, **options: Any) -> Path:
        server = await serve(cls)
        path = tmp_path / "runs.jsonl"
        async with connect(server.url) as client:
            found = await rollout_all(client.environment("sums"), plays, seed=5, **options)
        with TrajectoryWriter(path, overwrite=True) as writer:
            for trajectory in found:
                writer.write(trajectory)
        return path

    return play


async def again(path: Path, cls: type[Environment[Any]], **options: Any) -> Summary:
    return await rescore(list(read_stored(path)), [cls], **options)


@pytest.mark.parametrize("replay", [True, False])
async def test_rewards_of_the_same_rubric_come_out_the_same(record: Record, replay: bool) -> None:
    path = await record(Then)
    summary = await again(path, Then, replay=replay)
    assert len(summary.rescored) == 4
    assert summary.changed == []
    assert summary.problems == []
    for one, trajectory in zip(summary.rescored, read_trajectories(path), strict=True):
        assert one.new == one.old == trajectory.reward


@pytest.mark.parametrize("replay", [True, False])
async def test_what_todays_rubric_changes_is_shown(record: Record, replay: bool) -> None:
    summary = await again(await record(Then), Now, replay=replay)
    assert {one.stored.task.id: (one.old.value, one.new.value) for one in summary.changed if one.old and one.new} == {
        "s1": (0.0, 0.5),
        "s2": (1.0, 0.5),
        "s3": (0.0, 0.5),
    }
    told = summary.json()
    assert (told["changed"], told["mean"]) == (3, {"before": 0.25, "now": 0.375})
    first = next(result for result in told["results"] if result["trajectory"] == "sums/train/s1#0")
    assert first["rubric"] == {"before": "sums@1", "now": "sums@2"}
    assert first["components"] == {"rolled": [None, 1.0]}


async def test_a_replay_that_shows_something_else_says_so(record: Record) -> None:
    summary = await again(await record(Then), Changed)
    assert [(one.stored.task.id, one.diverged) for one in summary.problems] == [("s1", 1), ("s3", 1)]


async def test_a_value_that_is_gone_is_a_change_and_no_0(record: Record) -> None:
    summary = await again(await record(Then), Unscored)
    assert len(summary.changed) == 4
    told = summary.json()
    assert (told["mean"]["now"], told["unscored"]) == (None, {"before": 0, "now": 4})
    assert told["results"][0]["problem"] == "judge: no judge"


async def test_trajectories_that_failed_are_left_out_and_unknown_tasks_are_reported(record: Record) -> None:
    path = await record(Then)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["failure"] = {"kind": "environment", "error": "X", "message": "m", "attempt": 1}
    lines[1]["task"]["id"] = "gone"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = await again(path, Then)
    assert [one.stored.task.id for one in summary.rescored] == ["gone", "s2", "s3"]
    assert "gone" in (summary.rescored[0].problem or "")
    assert summary.rescored[0].record() == lines[1]


async def test_written_lines_are_trajectories_with_the_new_reward(record: Record) -> None:
    path = await record(Then)
    summary = await again(path, Now)
    path.write_text("".join(json.dumps(one.record()) + "\n" for one in summary.rescored))
    found = list(read_trajectories(path))
    assert [trajectory.value for trajectory in found] == [0.0, 0.5, 0.5, 0.5]
    assert found[1].grade == found[1].reward
    assert (await again(path, Now)).changed == []


async def test_the_policys_model_reaches_the_rubric(record: Record) -> None:
    seen: list[str | None] = []

    def note(attempt: Attempt) -> float:
        seen.append(attempt.policy)
        return 1.0

    class Noting(Base):
        name = "sums"
        rubric = Rubric([check(note)])

    path = await record(Then)
    path.write_text(path.read_text().replace('"policy":"', '"policy":"Qwen/'))
    for replay in (True, False):
        await again(path, Noting, replay=replay)
    assert len(seen) == 8
    assert all((name or "").startswith("Qwen/") for name in seen)


async def test_environments_are_found_by_their_published_names(record: Record) -> None:
    (line,) = [one for one in read_stored(await record(Then)) if one.task.id == "s0"]
    assert classes_for([line], [Then]) == [Then]
    variant = line.model_copy(update={"environment": "countdown-easy"})
    assert [cls.__name__ for cls in classes_for([variant], [])] == ["Countdown"]
    for name in ("nowhere", "countdown-impossible"):
        with pytest.raises(EnvironmentNotFound):
            classes_for([line.model_copy(update={"environment": name})], [])


@pytest.mark.parametrize(
    "line", ["{}", "[]", "1", "x", '{"format": "ludus.trajectory/9.9"}', "[" * 100_000, "\udcff"], ids=range(7)
)
def test_a_line_that_is_no_trajectory_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n".join([line.encode("utf-8", "surrogateescape"), b"torn"]))
    with pytest.raises(ParseError, match="line 1: not a trajectory"):
        list(read_stored(path))


@given(st.binary(max_size=80) | st.dictionaries(st.text(), st.text()).map(lambda value: json.dumps(value).encode()))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(data)
    with suppress(ParseError):
        list(read_stored(path))


class Harmless(Base):
    name = "sums"
    rubric = Rubric([ToolNotCalled("cheat")], name="harmless")


async def endless(conversation: Any) -> Any:
    """Never answers."""
    return Call("roll", {})


@pytest.mark.parametrize("replay", [True, False])
async def test_an_episode_that_a_limit_cut_off_keeps_what_it_earned(record: Record, replay: bool) -> None:
    path = await record(Harmless, endless, limits=EpisodeLimits(max_steps=2))
    summary = await again(path, Harmless, replay=replay)
    assert [one.old.value for one in summary.rescored if one.old] == [0.0] * 4
    assert [(one.changed, one.problem) for one in summary.rescored] == [(False, None)] * 4


class Shouted(Harmless):
    @reward(weight=-0.5)
    def shouting(self, answer: str) -> bool:
        return answer.isupper()


class Measured(Harmless):
    @metric
    def length(self, answer: str) -> int:
        return len(answer)


class Walked(Harmless):
    @reward(when="step", weight=0.1)
    def walking(self) -> bool:
        return True


class OwnGrade(Harmless):
    async def grade(self, answer: str) -> Any:
        return await self.apply_rubric(answer)


class Coins(Harmless):
    name = "sums"

    @tool
    def roll(self) -> Any:
        """Roll dice."""
        return Result("coin", reward=0.25)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (Shouted, "has @reward or @metric methods"),
        (Measured, "has @reward or @metric methods"),
        (Walked, "has @reward or @metric methods"),
        (OwnGrade, "has a grade of its own"),
        (Coins, "step 1 earned something besides the rubric"),
    ],
)
async def test_without_replay_nothing_is_scored_that_the_rubric_does_not_score_alone(
    record: Record, cls: type[Environment[Any]], why: str
) -> None:
    published = type(cls.__name__, (cls,), {"name": "sums"})
    path = await record(published)
    assert (await again(path, published)).problems == []
    summary = await again(path, published, replay=False)
    refused = [one for one in summary.rescored if one.problem]
    assert len(refused) == (2 if cls is Coins else 4), "two of four have no step"
    assert all(why in str(one.problem) and "score it with replay" in str(one.problem) for one in refused)
    assert summary.changed == []


class Finished(Base):
    name = "sums"
    rubric = Rubric([ToolCalled("stop")], name="finished")

    @tool
    def stop(self) -> Any:
        """Stop."""
        return Result("stopped", finished=True)


async def stopping(conversation: Any) -> Any:
    """Ends the task by a tool."""
    return Call("stop", {})


@pytest.mark.parametrize("replay", [True, False])
async def test_an_episode_that_a_tool_ended_is_scored_again_by_the_rubric(record: Record, replay: bool) -> None:
    path = await record(Finished, stopping)
    summary = await again(path, Finished, replay=replay)
    assert [(one.old, one.grade) for one in summary.rescored] == [(one.new, None) for one in summary.rescored]
    assert [one.new.value for one in summary.rescored if one.new] == [1.0] * 4


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("arguments", ["[1]", "7", '"x"', "{"])
async def test_a_line_that_cannot_be_scored_does_not_keep_the_others_from_it(
    record: Record, arguments: str, replay: bool
) -> None:
    path = await record(Then)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    call = next(item for item in lines[1]["items"] if item.get("type") == "function_call")
    call["arguments"] = arguments
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = await again(path, Then, replay=replay)
    assert [one.stored.task.id for one in summary.problems] == ["s1"]
    assert sum(one.new is not None for one in summary.rescored) == 3


async def test_a_rubric_that_breaks_off_costs_its_own_line_alone(record: Record) -> None:
    class Broken(Rubric):
        async def score(self, attempt: Attempt, **options: Any) -> Any:
            if attempt.task.id == "s2":
                raise RuntimeError("a bug")
            return await super().score(attempt, **options)

    cls = type("Breaking", (Then,), {"name": "sums", "rubric": Broken([right], name="sums", version="1")})
    summary = await again(await record(Then), cls, replay=False)
    assert [(one.stored.task.id, one.problem) for one in summary.problems] == [("s2", "RuntimeError: a bug")]
    assert sum(one.new is not None for one in summary.rescored) == 3


# ── the command ────────────────────────────────────────────────────────────────────────────────────────────────────


def ludus(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(LUDUS), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.suite("breadth")
async def test_the_command_shows_what_changed_and_writes_it(record: Record, tmp_path: Path) -> None:
    path = await record(Then)
    here = f"{__file__}:Now"
    shown = ludus("rescore", path, "--env", here, "--out", tmp_path / "new.jsonl")
    assert shown.returncode == 0, shown.stderr
    assert "4 trajectories scored again, 3 changed; mean 0.25 → 0.375; unscored 0 → 0" in shown.stdout
    assert [trajectory.value for trajectory in read_trajectories(tmp_path / "new.jsonl")] == [0.0, 0.5, 0.5, 0.5]
    checked = ludus("rescore", path, "--env", here, "--check", "--json", "--no-replay")
    assert checked.returncode == 1
    assert json.loads(checked.stdout)["changed"] == 3
    assert ludus("rescore", path, "--env", here, "--out", tmp_path / "new.jsonl").returncode == 2
    assert ludus("rescore", path, "--env", here, "--unscored").stdout == "There is nothing to score again.\n"
    assert ludus("rescore", path).returncode == 3


def test_the_command_checks_checklists(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('{"name": "x", "version": "1",\n "items": [{"id": "a", "check": "patern"}]}')
    found = ludus("checklist", path)
    assert found.returncode == 1
    assert found.stdout.startswith(f"{path}:2: error: there is no check 'patern'; did you mean 'pattern'?")
    path.write_text('{"name": "x", "version": "1", "items": [{"id": "a", "prompt": "Fine?"}]}')
    assert json.loads(ludus("checklist", path, "--json").stdout)["problems"] == []
