"""What the agent's commands cause in a sandbox is the agent's: a refused call, or a grade of 0, and never unscored."""

from __future__ import annotations

from typing import Any

import pytest
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.protocol.errors import EpisodeFailed
from ludus.sandbox import SandboxFailed
from ludus.server import Environment, Limits, SandboxSettings, Task, tool
from ludus.testing import play

pytestmark = NEEDS_BUBBLEWRAP


class Shell(Environment[Task]):
    """The shell of the docs, which stays open between calls, and a file that the agent writes."""

    splits = {"train": [Task(id="count")]}
    sandbox_settings = SandboxSettings(limits=Limits(spawned_seconds=600, spawned_cpu_seconds=60))

    async def setup(self) -> None:
        self.terminal = await self.sandbox.open_terminal(["bash"], rows=24, columns=80)

    def prompt(self) -> str:
        return "Write the file `count`."

    @tool
    async def keys(self, text: str) -> str:
        """Type into the terminal, and see its screen."""
        await self.terminal.write(text)
        return (await self.terminal.screen(quiet=0.2)).text

    @tool
    async def read(self, path: str) -> str:
        """Read a file."""
        return (await self.sandbox.read(path)).decode()

    @tool
    async def lose(self) -> str:
        """Lose the sandbox."""
        raise SandboxFailed("the machine is gone")

    async def grade(self, answer: str) -> float:
        return float((await self.sandbox.read("count")) == b"7\n")


@pytest.fixture
def episode() -> Any:
    with play(Shell) as served:
        yield served.start(index=0)


def test_keys_for_a_shell_that_has_ended_are_refused_and_the_episode_is_scored(episode: Any) -> None:
    episode.keys(text="echo 7 > count; exit\n")
    assert "has ended" in episode.keys(text="x").text
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
