"""The DevTools protocol over the pipe of a Chromium in a sandbox: calls, their answers, and events.

What the process sends is untrusted: a message is at most 32 MiB, every call has a limit of time, and a browser that
sends something else than the protocol is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, Final

from ludus.protocol.errors import LudusError
from ludus.sandbox import Process, SandboxFailed, SandboxInputClosed

_MESSAGE_BYTES: Final = 32 * 2**20
CALL_SECONDS: Final = 20.0
"""How long Chromium may take for one call."""
START_SECONDS: Final = 40.0
"""The same for the first call, which waits for its start."""

Event = Callable[[str, dict[str, Any]], None]


class BrowserGone(LudusError):
    """Chromium has ended, or does not answer."""


class DevtoolsError(LudusError):
    """Chromium refuses a call; the message is its own."""


class Devtools:
    """A connection to Chromium.

    Args:
        process: Chromium, with its pipe on standard input and output.
        on_event: called with the name and the parameters of each event; `Devtools.lost` is the end of the connection.
    """

    def __init__(self, process: Process, on_event: Event) -> None:
        self._process = process
        self._on_event = on_event
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._gone: str | None = None
        self._posts: set[asyncio.Task[Any]] = set()
        self._reader = asyncio.create_task(self._read())

    @property
    def gone(self) -> str | None:
        """Why Chromium can no longer be called; None while it can."""
        return self._gone

    async def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result.

        Raises:
            DevtoolsError: Chromium refuses it.
            BrowserGone: Chromium has ended, or gives no answer in time.
        """
        if self._gone is not None:
            raise BrowserGone(self._gone)
        seconds = CALL_SECONDS if self._number else START_SECONDS
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                await self._process.write(json.dumps(message).encode() + b"\0")
                return await answer
        except TimeoutError:
            self.lose(f"Chromium did not answer {method} within {seconds:g} s")
            raise BrowserGone(self._gone or "") from None
        except (SandboxFailed, SandboxInputClosed) as error:
            self.lose(error.message)
            raise BrowserGone(self._gone or "") from None
        finally:
            self._waiting.pop(number, None)

    def post(self, method: str, session: str | None = None, **params: Any) -> None:
        """Call a method without waiting for its end; errors are dropped, since whatever was asked is gone then."""
        task = asyncio.create_task(self.call(method, session, **params))
        self._posts.add(task)
        task.add_done_callback(self._posted)

    def _posted(self, task: asyncio.Task[Any]) -> None:
        self._posts.discard(task)
        if not task.cancelled():
            task.exception()

    async def aclose(self) -> None:
        """Stop listening. Chromium itself ends with its sandbox."""
        self.lose("the connection to Chromium is closed")
        tasks = [self._reader, *self._posts]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def lose(self, why: str) -> None:
        """Give the connection up: calls that wait and all further ones raise `BrowserGone` with this reason."""
        if self._gone is None:
            self._gone = why
            self._on_event("Devtools.lost", {})
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(BrowserGone(self._gone))
                answer.exception()  # marks it as read: its caller may have been canceled

    async def _read(self) -> None:
        data, searched = bytearray(), 0
        with contextlib.suppress(SandboxFailed):
            while part := await self._process.stdout.read():
                data += part
                while (end := data.find(b"\0", searched)) >= 0:
                    message = bytes(data[:end])
                    del data[: end + 1]
                    searched = 0
                    if not self._receive(message):
                        return self.lose("Chromium sent something else than the DevTools protocol")
                searched = len(data)
                if searched > _MESSAGE_BYTES:
                    return self.lose(f"Chromium sent a message of more than {_MESSAGE_BYTES // 2**20} MiB")
        self.lose("Chromium has ended")

    def _receive(self, data: bytes) -> bool:
        try:
            message = json.loads(data)
            number, params = message.get("id"), message.get("params", {})
        except (ValueError, AttributeError, RecursionError):
            return False
        if number is None:
            self._on_event(str(message.get("method")), params if isinstance(params, dict) else {})
            return True
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            if "error" in message:
                answer.set_exception(DevtoolsError(str(message["error"].get("message", ""))[:500]))
            else:
                answer.set_result(message.get("result", {}))
        return True
