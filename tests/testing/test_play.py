"""`ludus.testing`: an environment served in the test's own process and played over the wire."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ludus.client import RandomPolicy
from ludus.environments.guess_number import GuessNumber
from ludus.protocol.errors import EnvironmentFailed, EnvironmentNotFound, EpisodeEnded, TaskNotFound
from ludus.server import Environment, Private, Result, Split, Task, ToolError, tool
from ludus.testing import play

ROOT = Path(__file__).parents[2]


class Door(Task):
    code: Private[int]


class Doors(Environment[Door]):
    """Open a door with its code."""

    splits = {
        "train": Split.lazy(lambda index: Door(id=f"door-{index}", code=index + 10), 5),
        "test": [Door(id="last", code=99)],
    }
    reward_range = (0.0, 1.0)

    def setup(self) -> None:
        self.tries = 0

    def prompt(self) -> str:
        return f"Which code opens {self.task.id}? Seed {self.seed}."

    @tool
    def enter(self, code: int) -> str | Result:
        """Enter a code."""
        if code < 0:
            raise ToolError("codes are positive")
        self.tries += 1
        if code == self.task.code:
            return Result("open", reward=1 / self.tries, components={"tries": float(self.tries)}, finished=True)
        return "closed"

    @tool
    def kick(self) -> str:
        """Break the door."""
        raise OSError("my toe")

    @tool
    def secret(self) -> str:
        """Read the secret."""
        return self.secrets["key"]

    def grade(self, answer: str) -> float:
        return float(answer == str(self.task.code))


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
def test_tools_are_methods_and_the_reward_is_read_after_each_call(wire: str) -> None:
    with play(Doors, wire=wire) as doors:  # type: ignore[arg-type]
        episode = doors.start(index=2)
        assert episode.prompt == "Which code opens door-2? Seed 0."
        assert episode.tools == ("enter", "kick", "secret")
        first = episode.enter(code=episode.task.code - 1)
        assert (first.text, first.reward, first.error, first.ended) == ("closed", None, None, False)
        refused = episode.enter(code=-1)
        assert (refused.error, "codes are positive" in refused.text) == ("refused", True)
        assert (episode.reward, episode.ended) == (0.0, False)
        last = episode.call("enter", code=12)
        assert (last.text, last.reward, last.ended) == ("open", 0.5, True)
        assert (episode.reward, episode.components) == (0.5, {"tries": 2.0})
        assert (episode.end_reason, len(episode.steps)) == ("completed", 3)
        with pytest.raises(EpisodeEnded):
            episode.enter(code=1)


async def test_the_same_methods_are_awaited_in_async_tests() -> None:
    async with play(Doors) as doors:
        episode = await doors.start("last", split="test", seed=7)
        assert episode.remote.seed == 7
        assert (await episode.enter(code=1)).text == "closed"
        grade = await episode.answer("99")
        assert (grade and grade.value, episode.reward, episode.end_reason) == (1.0, 1.0, "submitted")


def test_an_oracle_and_a_policy_play_whole_tasks() -> None:
    with play(GuessNumber) as game:
        played = game.oracle(index=5)
        assert (played.reward, played.steps[-1].ended) == (1.0, True)
        recorded = game.rollout(RandomPolicy(), 3, samples=2)
        assert [(one.task.index, one.sample, one.failure) for one in recorded] == [
            (index, sample, None) for index in range(3) for sample in range(2)
        ]
    with play(Doors) as doors, pytest.raises(NotImplementedError):
        doors.oracle()


def test_a_variant_is_played_by_its_name() -> None:
    with play("guess_number", variant="guess_number-hard") as game:
        assert game.name == "guess_number-hard"
        assert game.oracle().reward == 1.0
    with pytest.raises(EnvironmentNotFound, match="guess_number-hard"), play(GuessNumber, variant="guess_number-soft"):
        pass


def test_an_exception_of_the_environment_is_the_cause_of_the_clients_error() -> None:
    with play(Doors) as doors:
        episode = doors.start()
        with pytest.raises(EnvironmentFailed) as caught:
            episode.kick()
        assert isinstance(caught.value.__cause__, OSError)
        assert str(caught.value.__cause__) == "my toe"


def test_secrets_reach_the_episode_and_mistakes_of_the_test_are_named() -> None:
    with play(Doors, secrets={"key": "k"}) as doors:
        episode = doors.start()
        assert episode.secret().text == "k"
        with pytest.raises(AttributeError, match=r"'entre'.*'enter', 'kick'"):
            episode.entre(code=1)
        with pytest.raises(TaskNotFound):
            doors.start("door-99")
        assert episode.close() is not None
        assert episode.end_reason == "closed"


def test_nothing_listens_after_the_block_also_after_an_error() -> None:
    ports = []
    with contextlib.suppress(ZeroDivisionError), play(Doors) as doors:
        ports.append(int(doors.url.rpartition(":")[2]))
        doors.start()
        raise ZeroDivisionError
    (port,) = ports
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_pytest_has_the_fixture_without_configuration(tmp_path: Path) -> None:
    """`-p` loads what the entry point names, because the tests may run from a checkout installed before it existed."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["pytest11"]
    (tmp_path / "test_game.py").write_text(
        "def test_game(play_environment):\n"
        "    game = play_environment('guess_number')\n"
        "    assert game.oracle(index=1).reward == 1.0\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", entry["ludus"], "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_imports_nothing_heavy_until_a_test_uses_it() -> None:
    code = (
        "import sys, ludus.testing.plugin; print([m for m in sys.modules if m in ('uvicorn', 'pydantic', 'aiohttp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
