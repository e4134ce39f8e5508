"""The prompt of `ludus replay --interactive`: forward and back through a recorded episode, and calls of one's own.

How this works: commands are read by the standard library's `cmd`, from a terminal (with history and completion) or from
a pipe. Each runs the event loop until it is done; while the prompt waits, the loop stands still, and so does the
environment.
"""

from __future__ import annotations

import asyncio
import cmd
import json
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ludus.cli import _replayed_text as text
from ludus.cli.common import console, shown
from ludus.protocol.errors import LudusError
from ludus.protocol.text import truncate

if TYPE_CHECKING:  # the extra `server` may be missing
    from ludus.server.recovery.reexecution import Reexecution

T = TypeVar("T")

ATTRIBUTE_CHARS: Final = 200
"""The most characters of one attribute that `print` shows."""

STATE_CHARS: Final = 4_000
"""The most characters of one value that `print NAME` shows."""

_HELP: Final = """\
n, next [COUNT]     execute the next recorded call, or so many
b, back             go back by one call: the calls before it are executed again
goto N              go to the state after N calls; 0 is the start, `goto end` the last one
p, print [NAME]     show the state: the author's snapshot and public attributes, or one of them in full
t, try TOOL JSON    make a call of your own here; `next`, `back` and `goto` return to the recorded episode
l, list             list the recorded calls
q, quit             end"""


class TimeTravel(cmd.Cmd):
    """The commands.

    Args:
        again: the re-execution.
        runner: runs its coroutines.
        full: whether long values are shown in full.
    """

    def __init__(self, again: Reexecution, runner: asyncio.Runner, *, full: bool) -> None:
        super().__init__()
        self._again = again
        self._runner = runner
        self._full = full
        self.same = True
        """Whether nothing has departed so far."""

    @classmethod
    def debug(cls, again: Reexecution, place: int, *, full: bool) -> bool:
        """Read and carry out commands until the end; return whether everything was as it was recorded.

        Args:
            again: the re-execution.
            place: how many calls to execute first.
            full: whether long values are shown in full.
        """
        with asyncio.Runner() as runner, _Terminable():
            runner.run(again.__aenter__())
            try:
                self = cls(again, runner, full=full)
                self._start(place)
                with suppress(KeyboardInterrupt):
                    self.cmdloop()
                return self.same
            finally:
                runner.run(again.__aexit__(None, None, None))

    def _start(self, place: int) -> None:
        departures = self._run(self._again.begin())
        text.print_prompt(self._again.history.started.prompt, full=self._full)
        for departure in departures or ():
            self.same = False
            text.print_departure(departure, full=self._full)
        if place:
            self._go_to(min(place, len(self._again.calls)))
        self._set_prompt()

    # ── the loop ───────────────────────────────────────────────────────────────────────────────────────────────────

    def onecmd(self, line: str) -> bool:
        """Carry out one command; return whether it was the last."""
        if not sys.stdin.isatty() and line != "EOF":
            console.print(shown(line, "bold"), soft_wrap=True)  # a pipe does not echo what was typed
        return bool(super().onecmd(line))

    def postcmd(self, stop: bool, line: str) -> bool:
        """Show the new place in the prompt."""
        self._set_prompt()
        return stop

    def emptyline(self) -> bool:
        """Do nothing."""
        return False

    def default(self, line: str) -> None:
        """Say that there is no such command."""
        self._complain(f"there is no command {line.split()[0]!r}; help lists them")

    def do_help(self, arg: str) -> None:
        """List the commands."""
        console.print(shown(_HELP))

    def do_quit(self, arg: str) -> bool:
        """End."""
        return True

    def do_EOF(self, arg: str) -> bool:
        """End, because the input has ended."""
        return True

    do_q = do_quit
    do_h = do_help

    # ── moving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def do_next(self, arg: str) -> None:
        """Execute the next recorded calls."""
        count = self._number(arg or "1")
        if count is None:
            return
        if self._again.place >= len(self._again.calls):
            self._complain(f"there is no further call; the episode was recorded with {len(self._again.calls)}")
        for _ in range(min(count, len(self._again.calls) - self._again.place)):
            repeated = self._run(self._again.advance())
            if repeated is None:
                return
            self.same = self.same and not repeated.departures
            text.print_repeated(repeated, full=self._full)

    def do_back(self, arg: str) -> None:
        """Go back by one call, or leave a branch."""
        place = self._again.place - (0 if self._again.branched else 1)
        if place < 0:
            self._complain("this is the start")
        else:
            self._go_to(place)

    def do_goto(self, arg: str) -> None:
        """Go to the state after so many calls."""
        last = len(self._again.calls)
        place = last if arg.strip() == "end" else self._number(arg)
        if place is not None and place > last:
            self._complain(f"there is no call {place}; the episode was recorded with {last}")
        elif place is not None:
            self._go_to(place)

    do_n = do_next
    do_b = do_back
    do_g = do_goto

    def _go_to(self, place: int) -> None:
        executed = self._run(self._again.go_to(place))
        if executed is None:
            return
        for repeated in executed:
            if repeated.departures:
                self.same = False
                text.print_repeated(repeated, full=self._full)
        if place:
            text.print_call(self._again.calls[place - 1], full=self._full)
            text.print_outcome(self._again.calls[place - 1].outcome, full=self._full)
        else:
            console.print(shown("at the start"))

    # ── looking and trying ─────────────────────────────────────────────────────────────────────────────────────────

    def do_print(self, arg: str) -> None:
        """Show the state."""
        attributes = self._again.attributes()
        if name := arg.strip():
            if name not in attributes:
                self._complain(f"the instance has no attribute {name!r}; it has: {', '.join(attributes) or 'none'}")
            else:
                console.print(shown(truncate(_repr(attributes[name]), STATE_CHARS)), soft_wrap=True)
            return
        if self._again.ended is not None:
            console.print(shown(f"the episode has ended ({self._again.ended}), and its state is gone"))
            return
        saved = self._run(self._again.saved_state())
        if saved is not None:
            state = truncate(saved.decode("utf-8", "backslashreplace"), STATE_CHARS)
            console.print(shown(f"snapshot ({len(saved)} bytes): {state}"), soft_wrap=True)
        for key, value in attributes.items():
            console.print(shown(f"{key} = {truncate(_repr(value), ATTRIBUTE_CHARS)}"), soft_wrap=True)
        if saved is None and not attributes:
            console.print(shown("the instance has no public attributes"))

    def do_try(self, arg: str) -> None:
        """Make a call of one's own."""
        tool, _, given = arg.strip().partition(" ")
        if not tool:
            self._complain(f"name a tool and its arguments: try {self._again.tools[0]} {{}}" if self._again.tools
                           else "the episode has no tools")  # fmt: skip
            return
        try:
            arguments = json.loads(given or "{}")
        except ValueError as error:
            self._complain(f'the arguments are no JSON ({error}); an example: {{"number": 5}}')
            return
        if not isinstance(arguments, dict):
            self._complain(f"the arguments must be a JSON object, not {given.strip()}")
            return
        outcome = self._run(self._again.attempt(tool, arguments))
        if outcome is not None:
            text.print_outcome(outcome, full=self._full)

    def do_list(self, arg: str) -> None:
        """List the recorded calls."""
        for index, call in enumerate(self._again.calls, 1):
            mark = "→" if index == self._again.place else " "
            name = "final message" if call.tool is None else call.tool
            console.print(
                shown(truncate(f"{mark} {index:4}  {name} {json.dumps(call.arguments, ensure_ascii=False)}", 120))
            )

    do_p = do_print
    do_t = do_try
    do_l = do_list

    # ── helpers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T | None:
        """Run a coroutine and return its result; print why it failed and return None."""
        try:
            return self._runner.run(coroutine)
        except LudusError as error:
            self.same = False
            self._complain(error.message)
        except KeyboardInterrupt:
            self._complain("interrupted")
        return None

    def _number(self, arg: str) -> int | None:
        if arg.strip().isdecimal():
            return int(arg)
        self._complain(f"{arg.strip() or 'nothing'!r} is not a number of calls")
        return None

    def _complain(self, message: str) -> None:
        console.print(shown(f"✗ {message}", "red"), soft_wrap=True)

    def _set_prompt(self) -> None:
        branch = f"+{self._again.branched}" if self._again.branched else ""
        ended = f", {self._again.ended}" if self._again.ended is not None else ""
        self.prompt = f"({self._again.place}{branch} of {len(self._again.calls)}{ended}) "


class _Terminable:
    """Turns SIGTERM and SIGHUP into `SystemExit` while it is entered, so that nothing is left running."""

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGHUP)}

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, frame: object) -> None:
        raise SystemExit(128 + number)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # the author's code
        return f"(its repr raised {type(error).__name__}: {error})"
