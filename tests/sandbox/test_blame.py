"""What the agent's commands cause in a sandbox is the agent's: a refused call, or a grade of 0, and never unscored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.protocol.errors import EpisodeFailed
from ludus.sandbox import SandboxFailed
from ludus.server import Environment, SandboxSettings, Task, tool
from ludus.server.rewards import Attempt, Check, Exact, Rubric, WeightedSum
from ludus.server.tasks.loading import load_environment
from ludus.testing import play

pytestmark = NEEDS_BUBBLEWRAP


ROOT = Path(__file__).parents[2]
Shell: Any = load_environment(f"{ROOT}/docs/snippets/terminal_session.py:Shell")


class Files(Shell):  # type: ignore[misc]
    """The shell of the docs, with a tool that reads files and one that loses the sandbox."""

    @tool
    async def read(self, path: str) -> str:
        """Read a file."""
        content: bytes = await self.sandbox.read(path)
        return content.decode()

    @tool
    async def lose(self) -> str:
        """Lose the sandbox."""
        raise SandboxFailed("the machine is gone")


@dataclass(frozen=True)
class Counted(Check):
    """Whether the agent's file holds 7."""

    async def check(self, attempt: Attempt) -> bool:
        content: bytes = await attempt.environment.sandbox.read("count")
        return content == b"7\n"


class Judged(Environment[Task]):
    """A file that a rubric reads, next to the answer."""

    splits = {"train": [Task(id="count")]}
    sandbox_settings = SandboxSettings()
    rubric = Rubric(WeightedSum([Counted(name="counted", weight=0.5), Exact("7", name="exact", weight=0.5)]))

    def prompt(self) -> str:
        return "Write 7 into the file `count`, and say it."


class Saved(Environment[Task]):
    """A file that snapshots hold, and that the agent can remove."""

    splits = {"train": [Task(id="count")]}
    sandbox_settings = SandboxSettings()
    forkable = True
    durable = "snapshot"
    snapshot_every = 1

    async def setup(self) -> None:
        await self.sandbox.write("count", b"7")

    def prompt(self) -> str:
        return "Say 7."

    @tool
    async def remove(self) -> str:
        """Remove the file."""
        return (await self.sandbox.run(["rm", "count"])).text

    async def snapshot(self) -> bytes:
        content: bytes = await self.sandbox.read("count")
        return content

    async def restore(self, state: bytes) -> None:
        await self.sandbox.write("count", state)

    def grade(self, answer: str) -> float:
        return float(answer == "7")


@pytest.fixture
def episode() -> Any:
    with play(Files) as served:
        yield served.start(index=0)


def test_keys_for_a_shell_that_has_ended_are_refused_and_the_episode_is_scored(episode: Any) -> None:
    episode.keys(text="ls /usr/bin | wc -l > count; exit\n")
    refused = next(step for _ in range(100) if (step := episode.keys(text="x")).error)  # the shell takes time to end
    assert (refused.error, "has ended" in refused.text) == ("refused", True)
    assert episode.keys(text="y").error == "refused"
    episode.answer("done")
    assert episode.reward == 1.0


def test_a_file_that_is_missing_is_a_refused_call_and_a_grade_of_0(episode: Any) -> None:
    assert episode.read(path="count").error == "refused"
    episode.answer("done")
    assert episode.reward == 0.0
    assert episode.components == {"sandbox": 0.0}


def test_a_sandbox_that_is_lost_leaves_the_episode_unscored(episode: Any) -> None:
    with pytest.raises((EpisodeFailed, AssertionError)):
        episode.lose()


def test_a_file_that_is_missing_makes_the_check_that_reads_it_0() -> None:
    with play(Judged) as served:
        episode = served.start(index=0)
        episode.answer("7")
        assert episode.reward == 0.5
        assert episode.components == {"counted": 0.0, "exact": 1.0}


def test_a_file_that_a_snapshot_lacks_leaves_the_episode_scored(caplog: pytest.LogCaptureFixture) -> None:
    with play(Saved) as served:
        episode = served.start(index=0)
        assert episode.remove().error is None
        assert "has no snapshot after step 1" in caplog.text
        episode.answer("7")
        assert episode.reward == 1.0
