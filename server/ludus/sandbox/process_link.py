"""The link between a background process, as `Process` or `Terminal`, and the program that runs it elsewhere.

The program inside a sandbox and `ludus sandboxd` send the same events and take the same requests:

- events: `{"ended": …}`, `{"wrote": bytes}`, `{"refuses": true}`, `{"eof": true, "stream": 0 or 1}`, and
  `{"stream": 0 or 1}` with output;
- requests, by `op`: `input` (`eof`), `grant` (`stream`, `size`), `signal` (`number`, `group`), `resize` (`rows`,
  `columns`), `kill`, `abandon`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.core.processes import Process, ProcessEnd

if TYPE_CHECKING:
    from ludus.sandbox.core.terminal import Terminal


class ProcessLink(ABC):
    """A `Link` that sends requests and hears events.

    Args:
        number: the number by which both sides know the process.
        tend: sends a request about it: `tend(data, op=…, …)`.
        detach: stops the events of a process; called with its number.
        terminal: the rows and columns of its terminal, if it runs on one.
        on_end: called once when the process has ended, also by the end of the sandbox.

    Attributes:
        handle: the process, or its terminal.
    """

    def __init__(
        self, number: int, tend: Callable[..., None], detach: Callable[[int], None],
        terminal: tuple[int, int] | None, on_end: Callable[[], None],
    ) -> None:  # fmt: skip
        self.number = number
        self._tend = tend
        self._detach = detach
        self._on_end = on_end
        self.handle: Process | Terminal
        if terminal is None:
            self.handle = self._base = Process(self)
        else:
            from ludus.sandbox.core.terminal import Terminal  # imported here because few environments need it

            self.handle = Terminal(self, *terminal)
            self._base = self.handle.process
            self._base.receive_end(1)
        self._open_streams = 1 if terminal else 2

    @abstractmethod
    def _read_end(self, described: dict[str, Any]) -> ProcessEnd:
        """Return how the process ended, from the event `ended`."""

    def hear(self, event: dict[str, Any], blob: bytes) -> None:
        """Take an event of the process."""
        if "ended" in event:
            self._finish(self._read_end(event["ended"]))
        elif "wrote" in event:
            self._base.note_taken(event["wrote"])
        elif "refuses" in event:
            self._base.refuse_input()
        elif "eof" in event:
            self._base.receive_end(event["stream"])
            self._open_streams -= 1
        else:
            self._base.receive(event["stream"], blob)
        if self._base.end is not None and self._open_streams <= 0:
            self._detach(self.number)

    def lose(self, lost: SandboxFailed | ProcessEnd) -> None:
        """Note that the sandbox has ended, and the process with it."""
        self._detach(self.number)
        if isinstance(lost, ProcessEnd):
            self._finish(lost)
        elif self._base.end is None:
            self._base.lose(lost)
            self._leave()
        for stream in (0, 1):
            self._base.receive_end(stream)

    def _finish(self, end: ProcessEnd) -> None:
        if self._base.end is None:
            self._base.finish(end)
            self._leave()

    def _leave(self) -> None:
        self._on_end()

    def send_input(self, data: bytes, eof: bool) -> None:
        """See `Link.send_input`."""
        self._tend(data, op="input", eof=eof)

    def grant(self, stream: int, size: int) -> None:
        """See `Link.grant`."""
        self._tend(op="grant", stream=stream, size=size)

    def signal(self, number: int, group: bool) -> None:
        """See `Link.signal`."""
        self._tend(op="signal", number=number, group=group)

    def resize(self, rows: int, columns: int) -> None:
        """See `Link.resize`."""
        self._tend(op="resize", rows=rows, columns=columns)

    def kill(self) -> None:
        """See `Link.kill`."""
        self._tend(op="kill")

    def abandon(self) -> None:
        """See `Link.abandon`."""
        self._tend(op="abandon")
