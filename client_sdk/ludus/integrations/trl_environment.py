"""One rollout of TRL's `environment_factory`; see `ludus.integrations.trl`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from ludus.client import (
    Call,
    CallItem,
    Driver,
    EnvironmentInfo,
    EpisodeOutcome,
    LudusError,
    Message,
    OutputItem,
    TaskAddress,
    ToolSpec,
    Turn,
    text_of,
)
from ludus.client.formats import openai_chat
from ludus.client.formats.functions import python_function
from ludus.client.sync import run_sync
from ludus.integrations.groups import start_drivers
from ludus.integrations.unscored import count, not_started
from ludus.protocol.errors import ConnectionFailed, InvalidParams, Unsupported
from ludus.protocol.items import text_message

LOCK: Final = threading.RLock()  # AsyncGRPOTrainer calls tools from several threads
WAITING: Final[dict[LudusEnvironment, TaskAddress]] = {}
"""Environments that were reset, whose episodes are not started yet."""
PLAYING: Final[dict[LudusEnvironment, TaskAddress]] = {}
"""Environments with an open episode."""


def start_waiting() -> None:
    """Start the episodes of all environments that were reset."""
    with LOCK:
        waiting = dict(WAITING)
        WAITING.clear()
        if waiting:
            try:
                started = run_sync(start_drivers(list(waiting.values())))
            except LudusError as error:
                for environment in waiting:
                    environment._mistake = error
            else:
                for environment, driver in zip(waiting, started, strict=True):
                    environment._begin(driver)


class LudusEnvironment:
    """One rollout of a trainer. Subclasses have a method for each tool."""

    _info: ClassVar[EnvironmentInfo]
    _longest: ClassVar[int | None]
    """The trainer's `max_completion_length`."""
    _address: TaskAddress | None = None
    _prompt: Sequence[dict[str, Any]] = ()
    _driver: Driver | None = None
    _outcome: EpisodeOutcome | None = None
    _mistake: LudusError | None = None

    def reset(self, **row: Any) -> None:
        """Take the row of the next episode. The first call of any environment starts it."""
        if WAITING.pop(self, None) is None and self._outcome is None:
            run_sync(self._finish(None))
        self._driver = self._outcome = self._mistake = None
        self._address, self._prompt = TaskAddress.from_json(row.get("ludus") or {}), row["prompt"]
        with LOCK:
            WAITING[self] = self._address

    def _begin(self, started: Driver | LudusError) -> None:
        if isinstance(started, LudusError):
            self._outcome = count(not_started(started), "trl")
            return
        assert self._address is not None
        self._driver, PLAYING[self] = started, self._address
        more = {tool.name for tool in started.episode.tools} - {tool.name for tool in self._info.tools}
        if more:
            self._mistake = Unsupported(f"this task has tools of its own ({', '.join(sorted(more))}); use LudusRollout")
        elif shown(started.episode.prompt) != [{key: one[key] for key in ("role", "content")} for one in self._prompt]:
            self._mistake = InvalidParams("the episode's prompt is not the row's: make the rows again")

    def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return what the model is to see."""
        start_waiting()
        output, driver = "The episode has ended.", self._driver
        if driver is not None and not driver.done and self._mistake is None:
            try:
                run_sync(driver.take(Turn((CallItem("call", Call(tool, arguments)),))))
            except LudusError as error:
                self._mistake = error
            if isinstance(last := driver.items[-1], OutputItem):
                output = text_of(last.content)
            if driver.failure is not None and driver.failure.error == ConnectionFailed.__name__:
                run_sync(_fail_others(self._address, ConnectionFailed(driver.failure.message)))
            if not driver.done and self._mistake is None:
                return output
        return output if self._longest is None else _words(self._longest + 1)

    async def _finish(self, final: str | None) -> None:
        """End the episode, with the final message if there is one, and keep its outcome."""
        driver = self._driver
        if driver is None or self._outcome is not None:
            return
        try:
            if final is not None and not driver.done and self._mistake is None:
                await driver.take(Turn((text_message("assistant", final),)))
            self._outcome = count(await driver.finish(), "trl")
        except LudusError as error:
            self._mistake = self._mistake or error
        PLAYING.pop(self, None)

    def _value(self) -> float | None:
        """Return the outcome's value; raise what TRL would have given to the model as the output of a tool."""
        if self._mistake is not None:
            raise self._mistake
        return self._outcome.value if self._outcome is not None else None


async def _fail_others(address: TaskAddress | None, error: LudusError) -> None:
    """Fail the episodes on a server that is gone. Otherwise each of them would wait for it, one after another."""
    lost = [one._driver for one, other in PLAYING.items() if address is not None and other.server == address.server]
    await asyncio.gather(*(driver.fail(error) for driver in lost if driver is not None and not driver.failure))


@functools.cache
def _words(length: int) -> str:
    """Return a text of at least `length` tokens."""
    return " ".join(map(str, range(length)))


def shown(prompt: Sequence[Message]) -> list[dict[str, str]]:
    """Return a prompt as messages of a row.

    Raises:
        Unsupported: the prompt is empty, or not only text.
    """
    messages: list[dict[str, str]] = openai_chat.messages(prompt)[openai_chat.CONVERSATION]
    if not messages or any(not isinstance(message["content"], str) for message in messages):
        raise Unsupported("this adapter trains on prompts of text; the prompt of this task is empty or has images")
    return messages


def method_of(spec: ToolSpec) -> Callable[..., str]:
    """Return the method that calls a tool, with its signature, its description, and any name that it may have."""

    def method(self: LudusEnvironment, **arguments: Any) -> str:
        return self._call(spec.name, arguments)

    named = spec.model_copy(update={"name": "tool", "description": spec.description or f"The tool {spec.name}."})
    function = python_function(named, lambda name, arguments: "")
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__name__, method.__doc__, method.__annotations__ = spec.name, function.__doc__, function.__annotations__
    parameters = [first, *inspect.signature(function).parameters.values()]
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method
