"""Terminals of a sandbox: what programs draw is read as text, and nothing that they write harms the server."""

from __future__ import annotations

import gc
import os
import signal
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import TIGHT, settings_of

from ludus.sandbox import Sandbox, SandboxInputClosed, SandboxLimitReached, SandboxProvider
from ludus.sandbox.core.terminal import Terminal

Backend = tuple[str, SandboxProvider]

LIMITS = TIGHT.but(spawned_seconds=60, spawned_cpu_seconds=10)
PROMPT = {"PS1": "> ", "LC_ALL": "C.UTF-8"}


async def made(backend: Backend) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, LIMITS))


@pytest.mark.suite("sandbox", first=2)
async def test_a_shell_stays_open_and_keeps_its_state(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.open_terminal(env=PROMPT) as terminal:
        await terminal.wait_for("> ")
        await terminal.write("mkdir -p inner; cd inner; NAME=world\n")
        await terminal.write("echo hello $NAME; basename $PWD\n")
        shown = await terminal.wait_for("inner\n> ")
        assert "hello world\ninner" in shown.text
        assert (await box.list("inner")) == ()
        await terminal.write("exit 3\n")
        assert (await terminal.process.wait()).exit_code == 3
        with pytest.raises(SandboxInputClosed):
            await terminal.write("more\n")


async def test_programs_see_a_terminal_of_the_requested_size_and_of_each_new_one(spawning: Backend) -> None:
    program = (
        "import os, signal\n"
        "def show(*_): os.write(1, b'size %d %d %d\\n' % (*os.get_terminal_size(0), os.isatty(0)))\n"
        "signal.signal(signal.SIGWINCH, show)\nshow()\nwhile True: signal.pause()"
    )
    async with (
        await made(spawning) as box,
        await box.open_terminal(["python3", "-c", program], rows=30, columns=100) as terminal,
    ):
        await terminal.wait_for("size 100 30 1")
        await terminal.resize(5, 42)
        shown = await terminal.wait_for("size 42 5 1")
        assert "size 42 5 1" in shown.text
        assert len(shown.lines) == 5


@pytest.mark.suite("sandbox")
async def test_control_c_interrupts_the_program_in_the_foreground_and_not_the_shell(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.open_terminal(["sh"], env=PROMPT) as terminal:
        await terminal.wait_for("> ")
        await terminal.write("sh -c 'echo up; exec sleep 1000'\n")
        await terminal.wait_for("\nup\n")
        await terminal.write("\x03")
        await terminal.wait_for("^C\n> ")
        await terminal.write("echo code $?\n")
        assert "code 130" in (await terminal.wait_for("code 130")).text
        await terminal.write("sleep 1000 &\n jobs; kill %1; wait; echo done\n")
        assert "Running" in (await terminal.wait_for("\ndone\n")).text
        assert terminal.end is None


async def test_a_full_screen_program_is_read_as_it_looks(spawning: Backend) -> None:
    program = r"printf '\033[2J\033[3;5Hmiddle\033[1;1Htop\033]2;a title\007\033[31mred\033[0m'; sleep 50"
    async with await made(spawning) as box, await box.open_terminal(["sh", "-c", program]) as terminal:
        shown = await terminal.wait_for("topred")
        assert shown.lines[0] == "topred"
        assert shown.lines[2] == "    middle"
        assert (shown.row, shown.column, shown.title) == (0, 6, "a title")


async def test_a_program_that_asks_where_its_cursor_is_gets_an_answer(spawning: Backend) -> None:
    program = (
        "import os, sys, tty\ntty.setraw(0)\nos.write(1, b'\\x1b[4;7H\\x1b[6n')\n"
        "got = b''\nwhile not got.endswith(b'R'): got += os.read(0, 1)\nos.write(1, b'got ' + got[1:])\nos.read(0, 1)"
    )
    async with await made(spawning) as box, await box.open_terminal(["python3", "-c", program]) as terminal:
        assert "got [4;7R" in (await terminal.wait_for("got [4;7R")).text


async def test_a_program_that_never_stops_writing_has_a_screen_too(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.open_terminal(["yes", "flood"]) as terminal:
        shown = await terminal.screen(quiet=0.1, seconds=0.5)
        assert shown.lines[:-1] == ("flood",) * 23
        assert (await box.run(["true"])).ok
        assert (await terminal.process.kill()).signal == signal.SIGKILL


async def test_a_program_that_closes_its_terminal_goes_on_and_ends_with_it(spawning: Backend) -> None:
    program = "echo begun; trap '' HUP; exec </dev/null >/dev/null 2>&1; touch closed; exec sleep 1000"
    async with await made(spawning) as box:
        terminal = await box.open_terminal(["sh", "-c", program])
        while not any(one.name == "closed" for one in await box.list()):
            pass
        assert "begun" in (await terminal.screen(seconds=20)).text
        assert terminal.end is None
        assert (await terminal.process.kill()).signal == signal.SIGKILL


@pytest.mark.parametrize(("rows", "columns"), [(0, 80), (24, 0), (1001, 80), (24, 1001), (-1, -1)])
async def test_a_size_that_no_terminal_has_is_refused(spawning: Backend, rows: int, columns: int) -> None:
    async with await made(spawning) as box:
        with pytest.raises(ValueError, match="1 to 1,000"):
            await box.open_terminal(rows=rows, columns=columns)
        async with await box.open_terminal(["cat"]) as terminal:
            with pytest.raises(ValueError, match="1 to 1,000"):
                await terminal.resize(rows, columns)


@pytest.mark.suite("sandbox", first=1)
async def test_programs_open_a_few_terminals_themselves_and_not_all_of_the_machine(spawning: Backend) -> None:
    kind, provider = spawning
    program = (
        "import os\nheld = []\ntry:\n  while True: held.append(os.openpty())\n"
        "except OSError as error: print(len(held), flush=True)\ninput()"
    )
    if kind == "unsafe-local":
        return  # it isolates nothing
    box = await provider.create(settings_of(kind, LIMITS.but(spawned=2)))
    async with box, await box.spawn(["python3", "-c", program]) as process:
        line = await process.stdout.read_line()
        if kind == "podman" or (os.geteuid() != 0 and kind != "docker"):
            assert line == b"0\n"  # all terminals come from the server
            return
        assert int(line) == 6
        with pytest.raises(SandboxLimitReached, match="terminals"):
            await box.open_terminal()
        await process.kill()
        async with await box.open_terminal(["tty"]) as terminal:
            assert "/dev/pts/0" in (await terminal.wait_for("/dev/pts/0")).text


# ── what programs write ────────────────────────────────────────────────────────────────────────────────────────────


class _Nowhere:
    """A link without a sandbox: the terminal is fed by the test."""

    def send_input(self, data: bytes, eof: bool) -> None: ...
    def grant(self, stream: int, size: int) -> None: ...
    def signal(self, number: int, group: bool) -> None: ...
    def resize(self, rows: int, columns: int) -> None: ...
    def kill(self) -> None: ...
    def abandon(self) -> None: ...


PIECES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([
        b"\x1b", b"\x1b[", b"\x1b]", b"\x9b", b"\x1b[999999999999H", b"\x1b[?3h", b"\x1b[?3l", b"\x1b7", b"\x1b8",
        b"\x1b[r", b"\x1b[5;2r", b"\x1b[4h", b"\x1b#8", b"\x1b(0", b"\x1b[38;5;1m", b"\x1b[38;2m",
        b"\x1b[48;2;1;2;3m", b"\x1b[99L", b"\x1b[99M", b"\x1b[99@", b"\x1b[99P", b"\x1b[99X", b"\x1b[2J", b"\x1b[3J",
        b"\x1b[1K", b"\x1b[6n", b"\x1b[c", b"\t", b"\x1bH", b"\x1b[3g", b"\r\n", b"\x1bM", b"\x1bD",
        "\u5b57".encode(), "e\u0301".encode(), b"\x1b[" + b"9" * 5000,
    ]),
)  # fmt: skip


@given(st.lists(PIECES, max_size=40), st.integers(1, 8), st.integers(1, 12), st.integers(1, 8), st.integers(1, 12))
def test_whatever_a_program_writes_the_screen_keeps_its_size(
    pieces: list[bytes], rows: int, columns: int, rows_then: int, columns_then: int
) -> None:
    terminal = Terminal(_Nowhere(), rows, columns)
    for piece in pieces:
        terminal._feed(piece)
        shown = terminal._shown()
        assert len(shown.lines) == rows
        assert 0 <= shown.row < rows
        assert 0 <= shown.column < columns
    terminal._emulator.set_size(rows_then, columns_then)
    for piece in pieces:
        terminal._feed(piece)
    assert len(terminal._shown().lines) == rows_then


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(
    "piece",
    [b"\x1b]0;" + b"x" * 4000, b"\x1b7", b"\x1b[" + b"1;" * 2000, "e\u0301\u0301".encode(), b"\x1b[6n", b"9" * 4000],
    ids=["title", "saved cursors", "parameters", "marks", "questions", "text"],
)
def test_what_a_program_repeats_forever_does_not_pile_up(piece: bytes) -> None:
    terminal = Terminal(_Nowhere(), 24, 80)
    repeat = piece * (4096 // len(piece) or 1)
    tracemalloc.start()
    try:
        for _ in range(6):
            terminal._feed(repeat)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            terminal._feed(repeat)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 30_000
    finally:
        tracemalloc.stop()
