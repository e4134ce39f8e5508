"""What a command causes is its limit, or its own failure, by name; the box is rebuilt and goes on. What the machine
causes is `SandboxFailed`. A command must not be able to choose the second."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hosting import SandboxHost
from sandboxing import TIGHT, leftovers, opened, settings_of

from ludus.sandbox import Limits, RunResult, Sandbox, SandboxFailed, SandboxProvider
from ludus.sandbox import box as boxes
from ludus.sandbox.box_process import BoxProcess

Backend = tuple[str, SandboxProvider]

SHORT = TIGHT.but(seconds=0.3)
FILES = "echo begun > mark; mkdir -p deep/er; echo kept > deep/er/file; touch /tmp/gone"
LONG = str(1_000_000 + os.getpid())
"""Seconds to sleep, by which the commands of this run's boxes are known."""
STUCK = ["sleep", LONG]


async def made(backend: Backend, limits: Limits = TIGHT) -> Any:
    kind, provider = backend
    return await provider.create(settings_of(kind, limits))


def sleeping() -> list[str]:
    """The commands of this run's that sleep, in any box of the machine."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "cmdline").read_bytes() == f"sleep\0{LONG}\0".encode():
                found.append(entry.name)
        except OSError:
            continue
    return found


async def stuck(box: Any, patch: pytest.MonkeyPatch) -> RunResult:
    """Run a command whose box stops answering once it has begun, as if it got no processor time any more.

    The box's own clock is far away, so it is the server's that ends it.
    """
    patch.setattr(boxes, "_OVERTIME_SECONDS", 1.0 - TIGHT.seconds)
    exchange = box._process.exchange

    async def stopped(asked: Any, blob: bytes, on_begin: Any = None) -> Any:
        def begin() -> None:
            os.kill(box._process._pid, signal.SIGSTOP)
            on_begin()

        return await exchange(asked, blob, begin)

    patch.setattr(box._process, "exchange", stopped)
    result: RunResult = await box.run(STUCK)
    return result


async def goes_on(box: Sandbox) -> None:
    """The files are there, and commands work as before."""
    assert await box.read("deep/er/file") == b"kept\n"
    assert await box.read("mark") == b"begun\n"
    await box.write("later", b"written")
    again = await box.run(["sh", "-c", "cat later; ls /tmp"])
    assert (again.text, again.limit, again.rebuilt) == ("written", None, False)
    other = await box.fork()
    assert await other.read("later") == b"written"


# ── the enforcer of limits does not answer ────────────────────────────────────────────────────────────────────


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("kind", ["bubblewrap", "bubblewrap-rlimits"])
async def test_a_command_whose_box_does_not_answer_is_ended_from_outside_by_its_limit(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = await opened(kind)
    box = await made((kind, provider))
    assert (await box.run(["sh", "-c", FILES])).ok
    result = await stuck(box, monkeypatch)
    assert (result.limit, result.signal, result.exit_code, result.rebuilt) == ("seconds", signal.SIGKILL, None, True)
    assert sleeping() == []
    await goes_on(box)
    await provider.aclose()
    assert leftovers() == []


async def test_a_box_that_does_not_begin_a_command_is_the_machines_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = await opened("bubblewrap-rlimits")
    box = await made(("bubblewrap-rlimits", provider))
    monkeypatch.setattr(boxes, "START_SECONDS", 0.3)
    os.kill(box._process._pid, signal.SIGSTOP)
    with pytest.raises(SandboxFailed, match="does not answer"):
        await box.run(["true"])
    await provider.aclose()
    assert leftovers() == []


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM])
async def test_what_stops_or_kills_its_runner_where_nothing_isolates_it_is_ended_and_fails(number: int) -> None:
    provider = await opened("unsafe-local")
    box = await made(("unsafe-local", provider))
    await box.run(["sh", "-c", "echo begun > mark; mkdir -p deep/er; echo kept > deep/er/file"])
    program = (
        f"import os, time\nrunner = os.getppid()\nif os.fork() == 0:\n  os.setsid(); time.sleep({LONG})\n"
        f"os.kill(runner, {int(number)})\ntime.sleep({LONG})"
    )
    # Only a runner that is stopped meets the limit; a slow machine must not.
    limits = TIGHT.but(seconds=2) if number == signal.SIGSTOP else TIGHT
    result = await box.run(["python3", "-c", program], limits=limits)
    assert (result.ok, result.signal, result.rebuilt) == (False, signal.SIGKILL, True)
    assert result.limit == ("seconds" if number == signal.SIGSTOP else None)
    assert sum(one.startswith("process") for one in leftovers()) == 0, "nothing of it runs until it is used again"
    again = await box.run(["sh", "-c", "cat mark"])
    assert (again.text, again.rebuilt) == ("begun\n", False)
    assert await box.read("deep/er/file") == b"kept\n"
    await provider.aclose()
    assert leftovers() == []


@pytest.mark.parametrize("kind", ["bubblewrap", "bubblewrap-rlimits"])
async def test_a_box_that_the_machine_loses_while_nothing_uses_it_is_closed(kind: str) -> None:
    provider = await opened(kind)
    box = await made((kind, provider))
    os.kill(box._process._pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        await asyncio.wait((box._process._listening,))
        if box._losing is not None:
            await box._losing
        assert box._closing is not None
        await box.aclose()
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    await provider.aclose()
    assert leftovers() == []


@pytest.mark.suite("sandbox", first=2)
async def test_a_box_lost_by_the_machine_is_not_rebuilt(isolating: Backend, request: pytest.FixtureRequest) -> None:
    """Its files may be gone through no fault of the policy's."""
    box = await made(isolating)
    if isolating[0].startswith(("docker", "podman")):
        inside = box if isolating[0].endswith("-shell") else box._process
        await asyncio.to_thread(inside._api.remove_container, inside._id, force=True)
    elif isolating[0] == "sandboxd":
        host: SandboxHost = request.getfixturevalue("sandbox_host")
        runners = [left.split()[1] for left in leftovers(host.owner) if left.startswith("process")]
        assert runners
        for runner in runners:
            os.kill(int(runner), signal.SIGKILL)
    else:
        os.kill(box._process._pid, signal.SIGKILL)
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    gc.collect()  # a connection that was not closed is found here, and not by another test


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────

STORM = """
import os, sys, time
def spare_me():
    try: open("/proc/self/oom_score_adj", "w").write("0")
    except OSError: pass
spare_me()
for n in range(int(sys.argv[1])):
    try:
        if os.fork() == 0: break
    except OSError: pass
held = []
while True: held.append(bytearray(b"x" * 1_000_000))
"""


@pytest.mark.parametrize("processes", [1, 20])
async def test_memory_exhausted_by_forks_is_the_limit_and_the_box_goes_on(isolating: Backend, processes: int) -> None:
    box = await made(isolating, TIGHT.but(cpu_seconds=60))
    for _ in range(2):
        result = await box.run(["python3", "-c", STORM, str(processes)])
        assert result.limit == "memory", result
        assert (await box.run(["echo", "on"])).text == "on\n"


@pytest.fixture
async def docker_shell(engine_address: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backend]:
    """Docker, in whose containers a shell starts the commands."""
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    provider = await opened("docker-shell")
    try:
        yield "docker-shell", provider
    finally:
        await provider.aclose()


@pytest.mark.suite("sandbox")
async def test_memory_that_ends_a_container_is_the_limit_although_its_control_group_is_gone(
    engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine removes the group of a container that has ended, before a busy server has read the group's counters."""
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    provider = await opened("docker")
    try:
        box = await made(("docker", provider))
        assert (await box.run(["sh", "-c", FILES], limits=TIGHT)).ok
        inside = box._process
        if inside._counters is not None:
            monkeypatch.setattr(inside._counters, "broken", lambda: (0, 0))
            monkeypatch.setattr(inside._counters, "exists", lambda: False)
        hog = "from socket import *; held = []\nwhile True:\n  held.append(socketpair())\n  for end in held[-1]:\n"
        hog += "    end.setblocking(False); end.setsockopt(SOL_SOCKET, SO_SNDBUF, 1 << 30)\n"
        hog += "    try:\n      while True: end.send(b'x' * 65536)\n    except BlockingIOError: pass\n"
        running = asyncio.create_task(box.run(["sh", "-c", f'python3 -c "$0"; sleep {LONG}', hog]))
        about = {"container": inside._id, "event": "oom"}
        with closing(inside._api.events(since=1, until=time.time() + 50, filters=about)) as events:
            assert await asyncio.to_thread(next, events, None)
        await asyncio.to_thread(inside._api.kill, inside._id)
        result = await running
        assert (result.limit, result.rebuilt) == ("memory", True)
        await goes_on(box)
    finally:
        await provider.aclose()


async def test_a_container_outlives_that_what_was_to_end_a_command_is_ended_by_the_kernel(
    docker_shell: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await made(docker_shell, SHORT)
    await box.write("file", b"kept")
    ended, codes = box._exit_code, [137, 137, 137]
    monkeypatch.setattr(box, "_exit_code", lambda shell: codes.pop() if codes else ended(shell))
    result = await box.run(STUCK)
    assert (result.limit, result.rebuilt, codes) == ("seconds", False, [])
    assert (await box.run(["cat", "file"])).text == "kept"


@pytest.mark.suite("sandbox")
async def test_a_container_in_which_nothing_can_be_ended_is_ended_itself_and_made_again(
    docker_shell: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.sandbox import container  # an extra

    monkeypatch.setattr(container, "_END_SECONDS", 0.2)
    box = await made(docker_shell)
    first = box._id

    async def cannot() -> bool:
        return False

    monkeypatch.setattr(box, "_kill_all", cannot)  # it is not called for a command that ends by itself
    assert (await box.run(["sh", "-c", FILES], limits=TIGHT)).ok
    result = await box.run(STUCK, limits=SHORT)
    assert (result.limit, result.signal, result.exit_code, result.rebuilt) == ("seconds", signal.SIGKILL, None, True)
    assert sleeping() == []
    await goes_on(box)
    assert box._id != first
    await docker_shell[1].aclose()
    assert await containers() == []


async def containers() -> list[str]:
    """The containers of this server that are still there."""
    provider: Any = await opened("docker")
    from ludus.sandbox.docker import LABEL
    from ludus.sandbox.stale import OWNER

    found = provider._client.containers.list(all=True, filters={"label": f"{LABEL}={OWNER}"})
    await provider.aclose()
    return [one.id for one in found]


async def test_what_a_tampered_shell_leaves_running_ends_before_the_next_command(
    docker_shell: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's shell has the command's own user: here it was made to forget that it ends what is left."""
    from ludus.sandbox import shell_scripts

    box = await made(docker_shell)
    opens, seen = box._open_shell, threading.Event()

    def opens_once_seen() -> Any:
        seen.wait(30)
        return opens()

    monkeypatch.setattr(box, "_open_shell", opens_once_seen)  # the next shell ends what is left as soon as it starts
    with monkeypatch.context() as tampered:
        tampered.setattr(shell_scripts, "END_ALL", ":")
        left = f"setsid sleep {LONG} > /dev/null 2>&1 & until grep -q '^sleep' /proc/$!/cmdline; do :; done"
        assert (await box.run(["sh", "-c", left])).ok
    assert len(sleeping()) == 1
    seen.set()
    assert (await box.run(["true"])).ok
    assert sleeping() == []


# ── rebuilding ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def lost(kind: str, provider: SandboxProvider) -> Any:
    """A box that a command has taken down."""
    box = await made((kind, provider))
    with pytest.MonkeyPatch.context() as patch:
        if kind == "unsafe-local":
            result = await box.run(["sh", "-c", f"kill -9 $PPID; sleep {LONG}"])
        else:
            result = await stuck(box, patch)
    assert result.rebuilt
    return box


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("kind", ["bubblewrap", "bubblewrap-rlimits", "unsafe-local"])
@pytest.mark.parametrize("who", ["the box", "the provider"])
async def test_a_box_that_is_closed_while_it_is_rebuilt_leaves_nothing(
    kind: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = await opened(kind)
    box = await lost(kind, provider)
    reached, never = asyncio.Event(), asyncio.Event()

    async def held(process: BoxProcess, pid: int) -> None:
        reached.set()
        await never.wait()

    monkeypatch.setattr(BoxProcess, "_enter_group", held)
    using = asyncio.create_task(box.run(["true"]))
    async with asyncio.timeout(60):
        await reached.wait()
        await (box if who == "the box" else provider).aclose()
        assert leftovers() == []
        with pytest.raises(SandboxFailed, match="closed"):
            await using
    await provider.aclose()


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("kind", ["bubblewrap", "bubblewrap-rlimits", "unsafe-local"])
async def test_a_lost_box_that_is_not_used_again_leaves_nothing(kind: str) -> None:
    provider = await opened(kind)
    box = await lost(kind, provider)
    await box.aclose()
    assert leftovers() == []
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    await provider.aclose()


@pytest.mark.parametrize("kind", ["bubblewrap", "unsafe-local"])
async def test_a_box_that_cannot_be_rebuilt_is_the_machines_failure(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = await opened(kind)
    box = await lost(kind, provider)

    async def fails() -> BoxProcess:
        raise SandboxFailed("there is no room")

    monkeypatch.setattr(box, "_restart", fails)
    with pytest.raises(SandboxFailed, match="no room"):
        await box.run(["true"])
    await provider.aclose()
    assert leftovers() == []


async def test_files_that_cannot_be_copied_are_left_out_rather_than_fail_the_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sparse files larger than the disk; a policy that makes them has lost its own."""
    provider = await opened("bubblewrap-rlimits")
    box = await made(("bubblewrap-rlimits", provider))
    assert (await box.run(["sh", "-c", "for n in 1 2 3 4 5 6; do truncate -s 8000000 s$n; done"])).ok
    assert (await stuck(box, monkeypatch)).rebuilt
    assert await box.list() == ()
    assert (await box.run(["true"])).ok
    await provider.aclose()


# ── background processes ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("use", ["run", "spawn", "read", "nothing"])
async def test_a_background_process_that_takes_down_its_box_fails_no_episode(use: str) -> None:
    """Without isolation any process can; with it, none can but by the memory of a control group."""
    provider = await opened("unsafe-local")
    box = await made(("unsafe-local", provider))
    await box.write("kept", b"1")
    program = (
        "import os, time\nos.kill(os.getppid(), 19)\nrunner = int(open(f'/proc/{os.getppid()}/stat').read().split()[3])"
    )
    program += "\ninput()\nos.kill(runner, 9)\ntime.sleep(1000)"
    process = await box.spawn(["python3", "-c", program])
    await process.write(b"\n")
    async with asyncio.timeout(40):
        while process.end is None:
            if use == "run":
                await box.run(["sleep", "0.1"])
            elif use == "spawn":
                await (await box.spawn(["true"])).wait()
            elif use == "read":
                assert await box.read("kept") == b"1"
            else:
                await process.wait()
    assert (process.end.signal, process.end.rebuilt) == (signal.SIGKILL, True)
    assert await box.read("kept") == b"1"
    assert (await box.run(["cat", "kept"])).text == "1"
    await provider.aclose()
    assert leftovers() == []
