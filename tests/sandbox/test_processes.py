"""Background processes of a sandbox: streams, signals, limits, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from sandboxing import TIGHT, settings_of

from ludus.sandbox import (
    Limits,
    Sandbox,
    SandboxInputClosed,
    SandboxProvider,
)
from ludus.sandbox.core.processes import WINDOW

Backend = tuple[str, SandboxProvider]

LIMITS = TIGHT.but(spawned_seconds=60, spawned_cpu_seconds=4, spawned_output=64 * 1024 * 1024)
OURS, OTHERS = str(1_000_000 + os.getpid()), str(2_000_000 + os.getpid())
"""Seconds to sleep, by which the processes of this run are known on the whole machine."""


async def made(backend: Backend, limits: Limits = LIMITS) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, limits))


def sleeping(seconds: str) -> int:
    """How many processes of the machine sleep for so long."""
    found = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            found += (entry / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode()
    return found


@pytest.mark.suite("sandbox", first=2)
async def test_a_process_whose_output_is_not_read_waits_and_holds_at_most_its_window(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.spawn(["sh", "-c", "yes; echo gone >&2"]) as process:
        while len(process.stdout._data) < WINDOW:
            await asyncio.wait_for(process.stdout._changed.wait(), 30)
            process.stdout._changed.clear()
        assert (await box.run(["true"])).ok
        assert len(process.stdout._data) == WINDOW
        assert process.end is None


async def test_input_waits_for_a_process_that_does_not_read(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.spawn(["sh", "-c", "read line; cat >/dev/null"]) as process:
        stopped = await box.spawn(["sleep", "50"])
        writing = asyncio.create_task(stopped.write(bytes(8 * 1024 * 1024)))
        await process.write(b"go\n")
        await process.write(bytes(2 * 1024 * 1024))
        assert not writing.done()
        await stopped.kill()
        with pytest.raises(SandboxInputClosed, match="ended by SIGKILL"):
            await writing


async def test_a_signal_can_go_to_the_whole_group(spawning: Backend) -> None:
    child = "trap 'echo child; exit' TERM; echo ready; while :; do :; done"
    program = "trap 'wait; echo got; exit 3' TERM; sh -c \"$CHILD\" & wait"
    async with await made(spawning) as box, await box.spawn(["sh", "-c", program], env={"CHILD": child}) as process:
        assert await process.stdout.read_line() == b"ready\n"
        await process.signal(signal.SIGTERM, group=True)
        assert sorted((await process.stdout.read_all()).split()) == [b"child", b"got"]
        assert (await process.wait()).exit_code == 3


@pytest.mark.parametrize("number", [0, -1, 65, 1000])
async def test_a_number_that_is_no_signal_is_refused(spawning: Backend, number: int) -> None:
    async with await made(spawning) as box, await box.spawn(["cat"]) as process:
        with pytest.raises(ValueError, match="not the number of a signal"):
            await process.signal(number)


async def test_what_a_process_has_started_ends_with_it_daemons_included(spawning: Backend) -> None:
    program = f"(setsid sh -c 'sleep {OURS} & sleep {OURS} & echo up') & sleep {OURS}"
    async with await made(spawning) as box, await box.spawn(["sleep", OTHERS]) as other:
        process = await box.spawn(["sh", "-c", program])
        assert await process.stdout.read_line() == b"up\n"
        assert (await process.kill()).signal == signal.SIGKILL
        assert (sleeping(OURS), sleeping(OTHERS), other.end) == (0, 1, None)


async def test_a_command_ends_only_what_it_started_itself(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.spawn(["sleep", OTHERS]) as process:
        assert (await box.run(["sh", "-c", f"sleep {OURS} & setsid sleep {OURS} & true"])).ok
        assert (sleeping(OURS), sleeping(OTHERS), process.end) == (0, 1, None)


async def test_a_process_whose_keeper_is_killed_ends_with_all_that_it_started(spawning: Backend) -> None:
    async with await made(spawning) as box:
        process = await box.spawn(["sh", "-c", f"setsid sleep {OURS} & echo $PPID; sleep {OURS}"])
        keeper = int(await process.stdout.read_line())
        assert (await box.run(["kill", "-9", str(keeper)])).ok
        end = await process.wait()
        assert (end.signal, end.exit_code, sleeping(OURS)) == (signal.SIGKILL, None, 0)
        assert (await box.run(["true"])).ok


async def test_a_process_that_kills_its_own_keeper_leaves_nothing(spawning: Backend) -> None:
    async with await made(spawning) as box, await box.spawn(["sleep", OTHERS]) as other:
        process = await box.spawn(["sh", "-c", f"setsid sleep {OURS} & kill -9 $PPID; exec sleep {OURS}"])
        assert (await process.wait()).signal == signal.SIGKILL
        assert (sleeping(OURS), sleeping(OTHERS), other.end) == (0, 1, None)


async def test_pages_that_processes_share_count_once_also_next_to_another_process(spawning: Backend) -> None:
    sharing = "import os, time\ndata = b'x' * (30 << 20)\nif os.fork(): print('up', flush=True)\ntime.sleep(1000)"
    other = "data = b'x' * (20 << 20)\nprint('up', flush=True)\ninput()\nprint('here', flush=True)"
    async with (
        await made(spawning) as box,
        await box.spawn(["python3", "-c", sharing]) as first,
    ):
        assert await first.stdout.read_line() == b"up\n"
        async with await box.spawn(["python3", "-c", other]) as second:
            assert await second.stdout.read_line() == b"up\n"
            assert (await box.run(["sh", "-c", "n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done"])).ok  # looks go on
            await second.write(b"\n")
            assert await second.stdout.read_line() == b"here\n"
            assert first.end is None


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize(
    ("name", "program", "limits"),
    [
        ("seconds", "sleep 50", {"spawned_seconds": 0.3}),
        ("seconds", "trap '' TERM INT HUP; sleep 50", {"spawned_seconds": 0.3}),
        ("cpu_seconds", "while :; do :; done", {"spawned_cpu_seconds": 0.3}),
        ("output", "yes", {"spawned_output": 100_000}),
        ("output", "yes >&2", {"spawned_output": 100_000}),
        ("processes", "while :; do sleep 50 & done", {}),
        ("memory", "exec python3 -c 'a = bytearray(b\"x\" * 300_000_000); input()'", {}),
        ("file_size", "exec head -c 10000000 /dev/full > large", {}),
    ],
)
async def test_a_process_ends_by_the_limit_that_it_exceeds(
    spawning: Backend, name: str, program: str, limits: dict[str, float]
) -> None:
    async with await made(spawning) as box:
        other = await box.spawn(["cat"])
        process = await box.spawn(["sh", "-c", program], limits=LIMITS.but(**limits))
        reading = [asyncio.create_task(stream.read_all(10**9)) for stream in (process.stdout, process.stderr)]
        end = await asyncio.wait_for(process.wait(), 60)
        assert end.limit == name, end
        assert not end.ok
        sizes = [len(await task) for task in reading]
        assert sum(sizes) <= LIMITS.but(**limits).spawned_output
        await other.write(b"still here\n")
        assert await other.stdout.read_line() == b"still here\n"
        assert (await box.run(["true"])).ok


async def test_a_shell_whose_child_runs_out_of_memory_ends_as_it_likes_or_by_the_limit(spawning: Backend) -> None:
    async with await made(spawning) as box:
        child = "python3 -c 'a = bytearray(b\"x\" * 300_000_000); input()'"
        process = await box.spawn(["sh", "-c", f"{child}; exit 3"])
        end = await asyncio.wait_for(process.wait(), 60)
        # The kernel ends the largest process, and the shell goes on; the program inside, if it is first, ends them all.
        assert (end.exit_code, end.limit) == (3, None) or end.limit == "memory", end
        assert (await box.run(["true"])).ok


async def test_processes_together_stay_within_the_limits_of_the_sandbox(spawning: Backend) -> None:
    hold = "a = bytearray(b'x' * 40_000_000)\nprint('up', flush=True)\ninput()"
    async with await made(spawning) as box:
        running = [await box.spawn(["python3", "-c", hold]) for _ in range(4)]
        ends = [asyncio.create_task(one.wait()) for one in running]
        done, _ = await asyncio.wait(ends, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert {one.result().limit for one in done} == {"memory"}
        for one in running:
            await one.aclose()
        assert (await box.run(["true"])).ok


# ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_snapshot_is_of_one_moment_while_a_process_writes(spawning: Backend) -> None:
    program = "import itertools\nfor n in itertools.count():\n  for f in 'ab': open(f, 'w').write(str(n))\n"
    async with await made(spawning) as box, await box.spawn(["python3", "-c", program]) as process:
        while not {one.name for one in await box.list()} >= {"a", "b"}:
            pass
        for _ in range(5):
            async with await box.fork() as other:
                first, second = await other.read("a"), await other.read("b")
                # The file that is being written may be empty; the other holds this round's or the last round's number.
                if first and second:
                    assert int(first) - int(second) in (0, 1)
        assert process.end is None


async def test_output_that_was_not_read_ends_when_the_sandbox_of_an_ended_process_is_closed(spawning: Backend) -> None:
    async with await made(spawning) as box:
        process = await box.spawn(["sh", "-c", f"head -c {WINDOW + 1000} /dev/zero"])
        await asyncio.wait_for(process.wait(), 30)
        await box.aclose()
        assert not (await asyncio.wait_for(process.stdout.read_all(), 30)).strip(b"\0")
        assert await asyncio.wait_for(process.stderr.read_all(), 30) == b""


@pytest.mark.suite("sandbox", first=1)
async def test_a_sandbox_that_is_kept_ready_has_started_its_background_command(spawning: Backend) -> None:
    kind, provider = spawning
    settings = settings_of(kind, LIMITS).but(background=("sh", "-c", "echo begun; cat"), warm=1)
    await provider.prepare(settings)
    async with await provider.create(settings) as box, asyncio.timeout(30):
        process = box.background
        assert process is not None
        assert await process.stdout.read_line() == b"begun\n"
        await process.write(b"still there\n")
        assert await process.stdout.read_line() == b"still there\n"
        async with await provider.create(settings) as other:
            assert other.background is not process
    async with await provider.create(settings_of(kind, LIMITS)) as plain:
        assert plain.background is None


@pytest.mark.suite("sandbox", first=1)
async def test_a_ready_sandbox_whose_background_command_has_ended_is_not_handed_out(spawning: Backend) -> None:
    kind, provider = spawning
    settings = settings_of(kind, LIMITS).but(background=("cat",), warm=1)
    await provider.prepare(settings)
    [spare] = [box for box in provider._pool.boxes if box.settings == settings]  # type: ignore[attr-defined]
    assert spare.background is not None
    await spare.background.kill()
    async with await provider.create(settings) as box:
        assert box is not spare
        assert box.background is not None
        assert box.background.end is None
