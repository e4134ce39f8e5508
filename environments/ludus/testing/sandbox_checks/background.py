"""Background processes, terminals and ports."""

from __future__ import annotations

import asyncio
import hashlib
import signal

import pytest

from ludus.sandbox import SandboxFailed, SandboxFileError, SandboxInputClosed, SandboxLimitReached, SandboxPortClosed
from ludus.testing.sandbox_checks.bench import Bench, check


@check("background")
async def a_process_answers_while_commands_and_file_operations_run(bench: Bench) -> None:
    async with await bench.box() as box, await box.spawn(["cat"]) as process:
        for number in range(20):
            await process.write(b"%d\n" % number)
            assert await process.stdout.read_line() == b"%d\n" % number
            assert (await box.run(["true"])).ok
            await box.write("file", b"%d" % number)
        slow = asyncio.create_task(box.run(["sh", "-c", "until [ -e done ]; do sleep 0.01; done"]))
        await process.write(b"meanwhile\n")
        assert await process.stdout.read_line() == b"meanwhile\n"
        await process.close_stdin()
        assert (await process.wait()).exit_code == 0
        assert (await (await box.spawn(["touch", "done"])).wait()).ok
        assert (await slow).ok


@check("background")
async def both_streams_arrive_in_full_and_separately_after_the_end(bench: Bench) -> None:
    async with await bench.box() as box:
        process = await box.spawn(["sh", "-c", "printf out; printf $A >&2; exit 7"], env={"A": "err"})
        end = await process.wait()
        assert (end.exit_code, end.signal, end.limit, end.ok) == (7, None, None, False)
        assert await process.stdout.read_all() == b"out"
        assert await process.stderr.read_all() == b"err"
        assert await process.stdout.read() == b""
        assert process.end == end


@check("background")
async def large_output_and_input_arrive_complete(bench: Bench) -> None:
    async with await bench.box() as box:
        counting = await box.spawn(["seq", "1", "100000"])
        number = 0
        async for line in counting.stdout:
            number += 1
            assert int(line) == number
        assert number == 100_000
        assert (await counting.wait()).ok
        async with await box.spawn(["sha256sum"]) as process:
            data = bytes(range(256)) * 10_000
            await process.write(data)
            await process.close_stdin()
            assert (await process.stdout.read_line()).split()[0].decode() == hashlib.sha256(data).hexdigest()


@check("background")
async def writing_to_a_process_that_closed_its_input_is_refused(bench: Bench) -> None:
    async def write_forever() -> None:
        while True:
            await process.write(b"x" * 100_000)

    async with await bench.box() as box:
        async with await box.spawn(["sh", "-c", "exec <&-; echo closed; sleep 50"]) as process:
            assert await process.stdout.read_line() == b"closed\n"
            with pytest.raises(SandboxInputClosed, match="closed"):
                await write_forever()


@check("background", "signal numbers")
async def a_signal_ends_a_process_and_is_reported(bench: Bench) -> None:
    async with await bench.box() as box:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGUSR1):
            async with await box.spawn(["sleep", "50"]) as process:
                await process.signal(number)
                end = await process.wait()
                assert (end.signal, end.exit_code, end.limit) == (number, None, None)
                await process.signal(number)  # nothing happens
                with pytest.raises(ValueError, match="not the number of a signal"):
                    await process.signal(65)


@check("background")
async def a_process_that_cannot_be_started_ends_as_in_a_shell(bench: Bench) -> None:
    async with await bench.box() as box:
        process = await box.spawn(["no-such-program"])
        assert (await process.wait()).exit_code == 127
        with pytest.raises(SandboxFileError, match="no directory"):
            await box.spawn(["true"], cwd="missing")


@check("background", "limit: seconds", "limit: output")
async def a_process_ends_by_the_limit_that_it_exceeds(bench: Bench) -> None:
    limits = bench.settings.limits
    async with await bench.box() as box, await box.spawn(["cat"]) as other:
        slow = await box.spawn(["sleep", "50"], limits=limits.but(spawned_seconds=0.3))
        assert (await slow.wait()).limit == "seconds"
        loud = await box.spawn(["yes"], limits=limits.but(spawned_output=100_000))
        assert len(await loud.stdout.read_all()) == 100_000
        assert (await loud.wait()).limit == "output"
        await other.write(b"still here\n")
        assert await other.stdout.read_line() == b"still here\n"


@check("background")
async def more_processes_than_allowed_are_refused_until_one_has_ended(bench: Bench) -> None:
    async with await bench.box(spawned=2) as box:
        first, _ = await box.spawn(["cat"]), await box.spawn(["cat"])
        with pytest.raises(SandboxLimitReached, match="spawned"):
            await box.spawn(["cat"])
        await first.kill()
        await (await box.spawn(["cat"])).kill()


@check("background")
async def a_process_ends_with_its_sandbox_and_its_readers_get_an_error(bench: Bench) -> None:
    box = await bench.box()
    process = await box.spawn(["sh", "-c", "echo begun; sleep 777"])
    assert await process.stdout.read_line() == b"begun\n"
    waiting = [asyncio.create_task(one) for one in (process.wait(), process.stdout.read(), process.stderr.read())]
    await asyncio.sleep(0)
    await box.aclose()
    with pytest.raises(SandboxFailed, match="closed"):
        await waiting[0]
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(SandboxFailed):
        await process.write(b"x")
    await process.aclose()
    with pytest.raises(SandboxFailed):
        await box.spawn(["cat"])


@check("terminals")
async def a_shell_on_a_terminal_keeps_its_state_and_sees_its_size(bench: Bench) -> None:
    prompt = {"PS1": "> ", "LC_ALL": "C.UTF-8"}
    async with await bench.box() as box, await box.open_terminal(rows=10, columns=60, env=prompt) as terminal:
        await terminal.wait_for("> ")
        await terminal.write("mkdir inner; cd inner; NAME=world\n")
        await terminal.write("echo hello $NAME $(basename $PWD)\n")
        shown = await terminal.wait_for("hello world inner\n")
        assert len(shown.lines) == 10
        # The loop: a shell that gets the signal just before it starts a command runs its trap after that command only.
        await terminal.write("sh -c 'trap \"echo caught; exit\" INT; echo arm''ed; while :; do sleep 0.1; done'\n")
        await terminal.wait_for("armed\n")
        await terminal.write("\x03")
        assert "caught" in (await terminal.wait_for("caught\n")).text
        await terminal.write("exit 3\n")
        assert (await terminal.process.wait()).exit_code == 3
        with pytest.raises(SandboxInputClosed):
            await terminal.write("more\n")


@check("ports", "background", "python")
async def a_port_is_reached_while_its_program_runs_and_closed_otherwise(bench: Bench) -> None:
    async with await bench.box_with_ports() as box:
        with pytest.raises(SandboxPortClosed, match="8000"):
            await box.connect(8000)
        await box.write("page.txt", b"x" * 300_000)
        server = await box.spawn(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
        async with await box.expose(8000) as port:
            pages = await asyncio.gather(*(port.get("/page.txt") for _ in range(5)))
            assert {(page.status, len(page.body)) for page in pages} == {(200, 300_000)}
            assert (await port.get("/missing")).status == 404
            await server.kill()
            with pytest.raises(SandboxPortClosed):
                await port.get("/page.txt")
