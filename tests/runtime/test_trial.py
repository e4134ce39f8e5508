"""One episode of an environment is played before its server is announced, and a failure refuses the server."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ludus.protocol.errors import AuthoringError
from ludus.protocol.rewards import Reward
from ludus.server import Environment, EpisodeHost, Task, tool
from ludus.server.hosting.trial import try_environments
from ludus.server.serving.serve import serving
from ludus.server.serving.settings import ServerSettings


class Plain(Environment[Task]):
    """Records its episodes."""

    splits: ClassVar[Any] = {"test": [Task(id="a")], "train": [Task(id="b"), Task(id="c")]}
    calls: ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.calls = []

    @classmethod
    def startup(cls) -> None:
        cls.calls.append("startup")

    def setup(self) -> None:
        self.calls.append(f"setup {self.task.id}")

    def prompt(self) -> str:
        return "Go."

    @tool
    def go(self) -> str:
        """Go."""
        return "gone"

    def teardown(self) -> None:
        self.calls.append("teardown")


class BrokenSetup(Plain):
    """Cannot begin."""

    def setup(self) -> None:
        raise KeyError("no such model")


class BrokenGrade(Plain):
    """Cannot grade."""

    def grade(self, answer: str) -> float:
        raise ValueError(f"choose a score for {answer!r}")


class Unscored(Plain):
    """Leaves an empty message unscored, with a reason."""

    def grade(self, answer: str) -> Reward:
        return Reward.unscored("there is nothing to read") if not answer else Reward.of(1.0)


async def test_one_episode_of_training_is_played_in_a_class_that_starts_once_and_the_server_counts_none() -> None:
    class Sound(Plain):
        """Grades."""

        def grade(self, answer: str) -> float:
            self.calls.append(f"grade {answer!r}")
            return 0.0

    async with EpisodeHost([Sound, Unscored]) as host:
        await try_environments(host, "all")
        assert Sound.calls == ["startup", "setup b", "grade ''", "teardown"]
        stats = host.stats()
        assert (stats.started, stats.ended, stats.kept) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (BrokenSetup, "no episode of 'broken_setup' can be played to its end: KeyError: 'no such model'.*--no-check"),
        (BrokenGrade, "no episode of 'broken_grade' can be played to its end: ValueError: choose a score for ''"),
    ],
)
async def test_what_an_episode_raises_refuses_the_server_with_the_last_line_of_the_traceback(
    cls: type[Plain], message: str
) -> None:
    async with EpisodeHost([Unscored, cls]) as host:
        with pytest.raises(AuthoringError, match=message):
            await try_environments(host, "all")
    with pytest.raises(AuthoringError, match=message):
        async with serving([cls], ServerSettings(port=0, check="all")):
            pytest.fail("the server was announced")


async def test_environments_of_no_format_are_played_only_if_all_are() -> None:
    for check in ("none", "formats"):
        async with EpisodeHost([BrokenSetup]) as host:
            await try_environments(host, check)
