"""The policy that knows the answer: an environment's own `oracle`, driven from outside."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from importlib.metadata import entry_points
from typing import Any, Final

from ludus.client.loading import load_object
from ludus.client.policies.base import Conversation, EpisodePolicy, PolicyResult
from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import EnvironmentNotFound, LudusError, TaskNotFound, Unsupported

GROUP: Final = "ludus.environments"


class OraclePolicy:
    """Plays each task as the environment's `oracle(task)` says.

    The environment's class is imported here, beside the policy, since only its own code knows the private fields of a
    task: the task is made again from the split and the id. So this needs the environment's package installed, and the
    same version of it as the server's.

    Args:
        source: `module:Class` or `path/file.py:Class`, or None to find the class by the environment's name among the
            installed ones (entry-point group `ludus.environments`).
    """

    sees_rewards = True

    def __init__(self, source: str | None = None) -> None:
        self.source = source
        self.name = "oracle"
        self._catalogs: dict[str, Any] = {}

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """The oracle of one task.

        Raises:
            EnvironmentNotFound: no class for the environment is installed here.
            TaskNotFound: the class does not have the task: another version than the server's.
            Unsupported: the class has no oracle.
        """
        published = self._find(conversation.environment)
        try:
            _, task = published.split(conversation.task.split).find(conversation.task.id)
        except (KeyError, LudusError):
            raise TaskNotFound(
                f"the oracle's {published.cls.__qualname__} has no task {conversation.task.id!r} in split "
                f"{conversation.task.split!r}; install the version of the environment that the server runs"
            ) from None
        try:
            moves = published.cls.oracle(task)
        except NotImplementedError:
            raise Unsupported(
                f"environment {conversation.environment!r} has no oracle; define `oracle(cls, task)` in "
                f"{published.cls.__qualname__}, or choose another policy"
            ) from None
        return _Driver(moves)

    def _find(self, environment: str) -> Any:
        key = self.source or environment
        if key not in self._catalogs:
            # Not a static import: the client may not depend on the server, which an environment's package brings.
            catalog = importlib.import_module("ludus.server.catalog").Catalog
            self._catalogs[key] = catalog([load_class(key)])
        return self._catalogs[key].find(environment)


class _Driver:
    """Feeds results to the generator and hands out its actions."""

    def __init__(self, moves: Generator[Call | Answer, StepResult, None]) -> None:
        self._moves = moves
        self._begun = False

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        try:
            if not self._begun:
                self._begun = True
                return next(self._moves)
            return self._moves.send(conversation.results[-1] if conversation.results else _NOTHING)
        except StopIteration:
            return Answer("")

    async def aclose(self) -> None:
        self._moves.close()


_NOTHING: Final = StepResult(step=0, content=(TextBlock(text=""),))


def load_class(source: str) -> Any:
    """An environment class by `module:Class`, `path/file.py:Class` or the name of an installed environment.

    A name may be that of a variant: `countdown-hard` finds the class of `countdown`.

    Raises:
        NotFound: there is none.
    """
    if ":" in source:
        return load_object(source)
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    names = [name for name in entries if source == name or source.startswith(f"{name}-")]
    if not names:
        installed = ", ".join(sorted(entries)) or "none"
        raise EnvironmentNotFound(
            f"no environment {source!r} is installed here (there is: {installed}); "
            "name its class as module:Class or file.py:Class"
        )
    return entries[max(names, key=len)].load()
