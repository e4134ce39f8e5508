"""The policies that an environment brings itself: they play its `oracle` or its `demonstrator` through a client."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from ludus.client.policies.base import Conversation, EpisodePolicy, PolicyResult
from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import Message, TextBlock, text_of
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import Unsupported
from ludus.validation.core.local_environments import LocalEnvironments

__all__ = ["OraclePolicy"]


class _OwnPolicy:
    """A policy that a method of the environment's class plays.

    The environment's class is imported into the policy's process; see `ludus.validation.core.local_environments`.

    Args:
        source: NAME, `module:Class`, `path/file.py:Class`, or a `LocalEnvironments`; with None, the class is found by
            the environment's name among the installed ones (entry-point group `ludus.environments`).
    """

    name: str

    def __init__(self, source: str | LocalEnvironments | None = None) -> None:
        if isinstance(source, LocalEnvironments):
            self._local = source
        else:
            self._local = LocalEnvironments(*([source] if source is not None else ()))

    def check(self, environment: str) -> None:
        """Check before the first episode that the environment's class can be imported here.

        Raises:
            EnvironmentNotFound: no class for the environment is installed here.
            AuthoringError: importing the class failed, for example because a package is missing.
        """
        self._local.published(environment)

    def defined(self, environment: str) -> bool:
        """Return whether the environment's class has the method.

        Raises:
            EnvironmentNotFound, AuthoringError: as `check`.
        """
        from ludus.server import Environment

        method = getattr(self._local.published(environment).cls, self.name)
        return method.__func__ is not getattr(Environment, self.name).__func__

    def _refused(self, cls: Any, environment: str, parameters: str) -> Unsupported:
        return Unsupported(
            f"environment {environment!r} has no {self.name}; define `{self.name}({parameters})` in "
            f"{cls.__qualname__}, or choose another policy"
        )


class OraclePolicy(_OwnPolicy):
    """A policy that plays each task with the actions of the environment's `oracle(task)`. See `_OwnPolicy`."""

    name = "oracle"
    sees_rewards = True

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return a policy that plays the oracle of the conversation's task.

        Raises:
            EnvironmentNotFound: no class for the environment is installed here.
            TaskNotFound: the class does not have the task, since its version differs from the server's.
            Unsupported: the class has no oracle.
        """
        cls = self._local.published(conversation.environment).cls
        task = self._local.task(conversation.environment, conversation.task.split, conversation.task.id)
        try:
            moves = cls.oracle(task)
        except NotImplementedError:
            raise self._refused(cls, conversation.environment, "cls, task") from None
        return Moves(moves)


class DemonstratorPolicy(_OwnPolicy):
    """A policy that plays the environment's `demonstrator(prompt)`, which knows nothing but what it reads."""

    name = "demonstrator"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return a policy that plays the demonstrator of the conversation's prompt.

        Raises:
            EnvironmentNotFound: no class for the environment is installed here.
            Unsupported: the class has no demonstrator.
        """
        cls = self._local.published(conversation.environment).cls
        prompt = "\n".join(text_of(item.content) for item in conversation.items if isinstance(item, Message))
        try:
            moves = cls.demonstrator(prompt)
        except NotImplementedError:
            raise self._refused(cls, conversation.environment, "cls, prompt") from None
        return Moves(moves)


class Moves:
    """A policy for one episode that plays the actions of a generator and sends it their results.

    A call that noise kept from its tool is made again, without the generator's knowledge.
    """

    def __init__(self, moves: Generator[Call | Answer, StepResult, None]) -> None:
        self._moves = moves
        self._latest: Call | Answer | None = None

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        """Return the next action, or an empty final message if there are no more."""
        result = conversation.results[-1] if conversation.results else _NOTHING
        try:
            if self._latest is None:
                self._latest = next(self._moves)
            elif not _kept_from_its_tool(result):
                self._latest = self._moves.send(result)
            return self._latest
        except StopIteration:
            return Answer("")

    async def aclose(self) -> None:
        """Close the generator."""
        self._moves.close()


def _kept_from_its_tool(result: StepResult) -> bool:
    """Return whether noise kept the call from its tool, so that the call may be made again.

    Without the right to read rewards, the result does not show that the tool ran and only its answer was lost.
    """
    return result.error is not None and result.error.code == "unavailable" and result.noise != "lost_answer"


_NOTHING: Final = StepResult(step=0, content=(TextBlock(text=""),))
