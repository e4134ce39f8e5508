"""Rendering of a chat template from outside, in a process that is killed when it exceeds its bounds.

A chat template is a program. Jinja's sandbox keeps it from the objects of this process, but neither from loops without
an end nor from texts without one. So the template of a caller is rendered by a process of its own
(`ludus.rendering.template_child`), with bounds on the time, memory and text of each rendering. A template that exceeds
one loses its process, and the next rendering gets another one.

How this works: all that renders runs in one thread for each template (`TemplateProcess.run`), which waits for the
process. So the event loop and other callers go on, and `close` ends a rendering at once by killing the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.template import with_stopped_clock
from ludus.rendering.template_child import read_message, write_message

P = ParamSpec("P")
T = TypeVar("T")

START_SECONDS: Final = 60.0
"""How long a process may take to start."""

SOURCE_CHARACTERS: Final = 256 * 1024
"""The most characters of a template; those of models have less than a tenth of that."""

MOST_EXCEEDED: Final = 2
"""After how many renderings that exceeded a bound a template is not rendered again: one may be a busy machine's."""

PATIENCE: Final = 20
"""How many times its processor time a rendering may take until its process has got that time."""

_OWN_OPTIONS: Final = frozenset({"chat_template", "tokenize"})
_ANSWER_BYTES_OF_CHARACTER: Final = 12
"""The most bytes of a character in JSON: two escapes."""


@dataclass(frozen=True, slots=True)
class TemplateBounds:
    """What one rendering may use.

    Attributes:
        seconds: its processor time.
        memory: the bytes of memory of the process.
        characters: the characters of its text.
    """

    seconds: float = 5.0
    memory: int = 1024 * 1024 * 1024
    characters: int = 16 * 1024 * 1024


class TemplateProcess:
    """Renders one template in processes of its own, one at a time.

    Args:
        tokenizer: the tokenizer, whose special tokens the template knows by name.
        source: the template.
        bounds: what each rendering may use.
        name: what the template is called in messages, such as `model.chat_template`.
        clock: the time that the template gets; now when None.
    """

    living: Final[set[int]] = set()
    """The processes that run now."""

    def __init__(
        self,
        tokenizer: Any,
        source: str,
        bounds: TemplateBounds,
        name: str = "the chat template",
        clock: datetime | None = None,
    ) -> None:
        if len(source) > SOURCE_CHARACTERS:
            raise RenderingError(f"{name} has {len(source)} characters, of at most {SOURCE_CHARACTERS}")
        self.started = 0
        """How many processes were started."""
        self.exceeded = 0
        """How many renderings have exceeded a bound."""
        self.clock: datetime = clock or datetime.now()
        """The time that the template gets."""
        self._first = {
            "source": with_stopped_clock(source, self.clock), "variables": dict(tokenizer.special_tokens_map),
            "memory": bounds.memory, "seconds": bounds.seconds, "characters": bounds.characters,
        }  # fmt: skip
        self._bounds = bounds
        self._name = name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chat-template")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function that renders, in the thread of this template."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **options))

    def apply(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool, **options: Any,
    ) -> str:  # fmt: skip
        """Return the text of a conversation, as `apply_chat_template` of the tokenizer would; it blocks.

        Raises:
            ValueError: the template refuses the conversation.
            TemplateExceeded: it exceeds a bound, or ends its process.
        """
        request = {
            "messages": list(messages), "tools": list(tools) if tools else None, "prompt": add_generation_prompt,
            "options": {name: value for name, value in options.items() if name not in _OWN_OPTIONS},
        }  # fmt: skip
        if self.exceeded >= MOST_EXCEEDED:
            raise TemplateExceeded(
                f"{self._name} has exceeded its bounds {self.exceeded} times, so it is not used again"
            )
        try:
            answer = self._ask(self._connected(), request)
        except TimeoutError:
            answer = {"late": True}
        except (OSError, ValueError):
            answer = {}
        problem = self._problem(answer)
        if problem is not None:
            self.exceeded += 1
            self._end_process()
            raise TemplateExceeded(problem)
        if "error" in answer:
            raise ValueError(answer["error"])
        return str(answer["text"])

    def close(self) -> None:
        """End the process, and with it a rendering that goes on."""
        self._closed = True
        self._end_process()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _problem(self, answer: Mapping[str, Any]) -> str | None:
        """Return which bound an answer says was exceeded; None if it is a text, or the template's own error."""
        bounds = self._bounds
        if self._closed:
            return "the job has ended, so a conversation was not rendered"
        if "late" in answer:
            return f"{self._name} took longer than {bounds.seconds:g} s to render a conversation: give a simpler one"
        if "memory" in answer:
            return f"{self._name} needs more than {bounds.memory // 2**20} MiB to render a conversation"
        if "long" in answer:
            return f"{self._name} writes a text of more than {bounds.characters} characters"
        if "text" not in answer and "error" not in answer:
            return f"{self._name} has ended the process that renders it"
        return None

    def _connected(self) -> socket.socket:
        """Return the connection to the process, which is started if there is none.

        Raises:
            OSError: it was closed, or the process does not start.
        """
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError
            if self._connection is not None:
                return self._connection
            self._connection = connection = self._start()
        # What the process has to load does not count as time of the template.
        write_message(connection, self._first)
        if read_message(connection, 1024, time.monotonic() + START_SECONDS) is None:
            raise ConnectionResetError
        return connection

    def _start(self) -> socket.socket:
        """Start a process, and return the connection to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-m", "ludus.rendering.template_child", str(theirs.fileno())]
            # Neither keys nor tokens of this process: a template that broke out of Jinja would read them.
            variables = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], env={**variables, "HF_HUB_OFFLINE": "1"},
            )  # fmt: skip
        self.started += 1
        TemplateProcess.living.add(self._process.pid)
        return ours

    def _ask(self, connection: socket.socket, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer of the process; empty if it has ended.

        Raises:
            OSError, ValueError: the process has ended, or does not answer as it should.
        """
        seconds = self._bounds.seconds
        connection.settimeout(seconds)
        before = self._used_seconds()
        write_message(connection, asked)
        # On a busy machine the process, which is polite, may wait for a processor for longer than it works.
        for _ in range(PATIENCE):
            if select.select([connection], [], [], seconds)[0]:
                break
            if before is None or (used := self._used_seconds()) is None or used - before >= seconds:
                raise TimeoutError
        most = _ANSWER_BYTES_OF_CHARACTER * self._bounds.characters + 1024
        answer = json.loads(read_message(connection, most, time.monotonic() + seconds) or b"{}")
        return answer if isinstance(answer, dict) else {}

    def _used_seconds(self) -> float | None:
        """Return the processor time of the process; None where the system does not tell, or it has ended."""
        process = self._process
        if process is None:
            return None
        try:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _end_process(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            connection, self._connection = self._connection, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            TemplateProcess.living.discard(process.pid)
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
            connection.close()
