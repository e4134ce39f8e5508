"""The file in which workers count: what is refused, what survives, and what a dead process leaves."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from quota_world import Clock

from ludus.protocol.errors import CapacityError
from ludus.server.auth import usage
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Quotas
from ludus.server.auth.usage import UsageFileUnusable, UsageTable, size_of

LAB = Principal("lab", frozenset())
HEAD = """
from pathlib import Path
from ludus.server.auth.usage import *
table = UsageTable.open(Path({path!r}))
"""


@asynccontextmanager
async def other_process(path: Path, program: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program in another process, which has `table` and prints a line when it is ready."""
    head = HEAD.format(path=str(path))
    tail = "\nprint('ready', flush=True)\ninput()\n"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", head + program + tail, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def quotas_in(path: Path, **limits: int) -> Quotas:
    return Quotas(TokenLimits(**limits), table=UsageTable.open(path))


async def test_open_episodes_are_counted_together_and_those_of_a_killed_process_are_freed(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    async with other_process(path, "table.set_counts(table.row('lab'), 3, 500)") as process:
        quotas = quotas_in(path, open_episodes=4)
        account = quotas.account(LAB)
        assert quotas.table.totals(account.row) == (3, 500)
        account.open(1)
        with pytest.raises(CapacityError):
            account.open(1)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        account.open(3)
        assert quotas.table.totals(account.row) == (4, 0)
        quotas.close()


async def test_a_stopped_process_is_alive_and_keeps_what_it_uses(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    async with other_process(path, "table.set_counts(table.row('lab'), 3, 500)") as process:
        process.send_signal(signal.SIGSTOP)
        quotas = quotas_in(path, open_episodes=4)
        quotas.refresh()
        assert quotas.table.totals(quotas.account(LAB).row).episodes == 3
        quotas.close()


async def test_a_process_that_ends_in_order_frees_its_column_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    quotas = quotas_in(path, open_episodes=4)
    account = quotas.account(LAB)
    account.open(4)
    quotas.close()
    quotas.close()
    again = quotas_in(path, open_episodes=4)
    assert (again.table.column, again.table.totals(again.account(LAB).row)) == (0, (0, 0))
    again.close()


async def test_a_burst_is_not_had_again_by_a_restart(tmp_path: Path) -> None:
    path, clock = tmp_path / "usage", Clock()
    for allowed in (5, 0):
        quotas = Quotas(TokenLimits(steps_per_second=0.001, step_burst=5), table=UsageTable.open(path, clock))
        meter = quotas.account(LAB).steps
        assert meter is not None
        for _ in range(allowed):
            meter.take()
        with pytest.raises(CapacityError):
            meter.take()
        quotas.close()


async def test_permits_of_two_processes_come_from_one_bucket(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    program = (
        "row = table.row('lab')\n"
        "taken = 0\n"
        "while (got := table.draw(row, STEPS, 0.001, 1000, 1, 0)[0]): taken += got\n"
        "print(taken, flush=True)"
    )
    head = HEAD.format(path=str(path))
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", head + program, stdout=asyncio.subprocess.PIPE)
        for _ in range(3)
    ]
    outputs = [(await process.communicate())[0] for process in processes]
    assert sum(map(int, outputs)) == 1000


async def test_a_row_that_another_process_does_not_let_go_of_is_a_refusal_and_not_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    quotas = quotas_in(path, steps_per_second=5, open_episodes=3)
    account = quotas.account(LAB)
    program = "table._lock(table._row(table.row('lab')))"
    async with other_process(path, program) as process:
        process.send_signal(signal.SIGSTOP)
        assert account.steps is not None
        for refused in (account.steps.take, lambda: account.open(1)):
            with pytest.raises(CapacityError) as caught:
                refused()
            assert caught.value.retry_after == 0.1
        assert account.episodes == 0
        account.close(0)
    quotas.close()


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("my notes")
    with pytest.raises(UsageFileUnusable, match="no file of usage of this version.*delete this one"):
        UsageTable.open(path)
    assert path.read_text() == "my notes"
    path.write_bytes(b"x" * size_of(usage.COLUMNS))
    with pytest.raises(UsageFileUnusable, match="no file of usage of this version"):
        UsageTable.open(path)
    assert path.read_bytes()[:10] == b"x" * 10


def test_a_file_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "usage"
    UsageTable.open(path).close()
    monkeypatch.setattr(usage, "VERSION", 2)
    with pytest.raises(UsageFileUnusable, match="of this version"):
        UsageTable.open(path)


@pytest.mark.parametrize("what", ["folder", "missing/usage", "pipe"])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(UsageFileUnusable, match="--usage-file"):
        UsageTable.open(path)


def test_one_process_opens_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    table = UsageTable.open(path)
    with pytest.raises(UsageFileUnusable, match="this process uses it already"):
        UsageTable.open(path)
    table.close()
    UsageTable.open(path).close()


def test_a_file_of_an_earlier_boot_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "usage"
    table = UsageTable.open(path)
    assert table.draw(table.row("lab"), usage.STEPS, 0.001, 1, 1, 0)[0] == 1
    table.close()
    monkeypatch.setattr(usage, "_boot", lambda: b"another boot id!")
    again = UsageTable.open(path)
    assert again.draw(again.row("lab"), usage.STEPS, 0.001, 1, 1, 0)[0] == 1
    again.close()


def test_a_clock_that_was_ahead_does_not_stop_a_bucket(tmp_path: Path) -> None:
    clock = Clock()
    table = UsageTable.private(clock)
    row = table.row("lab")
    assert table.draw(row, usage.STEPS, 10, 1, 1, 0)[0] == 1
    clock.now = 1.0
    assert table.draw(row, usage.STEPS, 10, 1, 1, 0) == (0, 0.1)
    clock.now += 0.1
    assert table.draw(row, usage.STEPS, 10, 1, 1, 0)[0] == 1


def test_a_principal_too_many_is_refused_by_name_and_has_room_once_the_server_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "ROWS", 2)
    path, clock = tmp_path / "usage", Clock()
    quotas = Quotas(TokenLimits(steps_per_second=1), table=UsageTable.open(path, clock))
    for name in ("a", "b"):
        steps = quotas.account(Principal(name, frozenset())).steps
        assert steps is not None
        steps.take()
    with pytest.raises(CapacityError, match="principals") as caught:
        quotas.account(Principal("c", frozenset()))
    assert (caught.value.data["limit"], caught.value.retry_after) == ("principals", 60.0)
    quotas.account(Principal("a", frozenset()))
    quotas.close()
    clock.now += 2 * usage.IDLE_SECONDS
    again = Quotas(TokenLimits(steps_per_second=1), table=UsageTable.open(path, clock))
    again.account(Principal("c", frozenset()))
    again.close()


def test_the_file_is_its_owners_alone_and_keeps_no_names(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    table = UsageTable.open(path)
    table.row("a-name-of-a-token")
    table.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"a-name" not in path.read_bytes()


def test_more_processes_than_columns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "usage"
    monkeypatch.setattr(usage, "COLUMNS", 1)
    monkeypatch.setattr(usage, "_locked", lambda descriptor, at, seconds: at == 0)
    with pytest.raises(UsageFileUnusable, match="1 processes use it, its most"):
        UsageTable.open(path)


def test_the_layout_of_a_cell_is_a_whole_number_of_words() -> None:
    """Counts are read without a lock, so each must be written by one store of an aligned word."""
    assert (usage._CELL.size, usage._CELLS_START % 8, usage._ROWS_START % 8) == (48, 0, 0)
    assert struct.calcsize("=d") == 8
    assert fcntl.LOCK_NB
