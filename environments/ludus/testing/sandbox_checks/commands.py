"""Commands: arguments, streams, exit codes, signals, turns and cancellation."""

from __future__ import annotations

import asyncio
import signal

import pytest

from ludus.sandbox import SandboxFileError
from ludus.testing.sandbox_checks.bench import MIB, Bench, check


@check()
async def a_command_gets_its_arguments_input_environment_and_directory(bench: Bench) -> None:
    box = await bench.box()
    await box.write("deep/file", b"")
    script = 'printf "[%s]" "$@"; cat; echo " $COLOR"; ls; exit 3'
    words = ["two words", "new\nline", "'\"$x", "*", ""]
    result = await box.run(["sh", "-c", script, "sh", *words], stdin="grüße".encode(), env={"COLOR": "red"}, cwd="deep")
    assert result.text == "".join(f"[{word}]" for word in words) + "grüße red\nfile\n"
    assert (result.exit_code, result.signal, result.limit, result.ok) == (3, None, None, False)


@check()
async def output_comes_back_byte_for_byte_and_separately(bench: Bench) -> None:
    box = await bench.box()
    data = bytes(range(256)) * 40
    result = await box.run(["sh", "-c", r"cat; printf '\377\0err' >&2"], stdin=data)
    assert (result.stdout, result.stderr) == (data, b"\xff\0err")
    assert result.ok
    assert (result.stdout_truncated, result.stderr_truncated) == (False, False)


@check()
async def much_input_passes_through_and_need_not_be_read(bench: Bench) -> None:
    box = await bench.box(output=4 * MIB)
    data = bytes(range(256)) * 8192
    assert (await box.run(["cat"], stdin=data)).stdout == data
    assert (await box.run(["true"], stdin=data)).ok


@check("executable files")
async def a_program_that_cannot_be_started_has_the_exit_code_of_a_shell(bench: Bench) -> None:
    box = await bench.box()
    await box.write("plain", b"hello")
    assert (await box.run(["no-such-program"])).exit_code == 127
    assert (await box.run(["./plain"])).exit_code == 126
    assert (await box.run(["true", "nul\0"])).exit_code == 126


@check("signal numbers")
async def a_signal_is_reported_by_its_number(bench: Bench) -> None:
    box = await bench.box()
    killed = await box.run(["sh", "-c", "kill -9 $$"])
    assert (killed.exit_code, killed.signal, killed.limit) == (None, signal.SIGKILL, None)
    result = await box.run(["sh", "-c", "kill -40 $$"])
    assert (result.signal, result.ending) == (40, "ended by signal 40")


@check()
async def a_program_cannot_pass_its_own_failure_off_as_a_missing_directory(bench: Bench) -> None:
    box = await bench.box()
    result = await box.run(["sh", "-c", r"printf '\0ludus: no such directory\0' >&2; exit 125"])
    assert (result.exit_code, result.stderr) == (125, b"\0ludus: no such directory\0")
    with pytest.raises(SandboxFileError, match="nowhere"):
        await box.run(["true"], cwd="nowhere")
    with pytest.raises(SandboxFileError):
        await box.run(["true"], cwd="..")
    assert (await box.run(["true"])).ok


@check()
async def commands_take_turns(bench: Bench) -> None:
    box = await bench.box()
    script = "set -e; mkdir lock; echo $1; rmdir lock"
    results = await asyncio.gather(*(box.run(["sh", "-c", script, "sh", str(n)]) for n in range(8)))
    assert [result.text for result in results] == [f"{n}\n" for n in range(8)]


@check()
async def a_canceled_command_ends_and_leaves_the_sandbox_usable(bench: Bench) -> None:
    box = await bench.box()
    task = asyncio.create_task(box.run(["sh", "-c", "echo begun > mark; sleep 25"]))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(20):
        assert (await box.run(["cat", "mark"])).text == "begun\n"


@check()
async def canceling_a_command_that_waits_leaves_the_one_that_runs_alone(bench: Bench) -> None:
    box = await bench.box()
    first = asyncio.create_task(box.run(["sh", "-c", "sleep 0.5; echo done"]))
    second = asyncio.create_task(box.run(["touch", "mark"]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first).text == "done\n"
    assert await box.list() == ()


@check("usage", "python")
async def what_a_command_used_is_reported(bench: Bench) -> None:
    box = await bench.box()
    script = "import time; a = b'x' * 40_000_000; t = time.process_time()\nwhile time.process_time() < t + .2: pass"
    result = await box.run(["python3", "-c", script])
    assert result.ok
    assert 0.2 <= result.cpu_seconds <= bench.settings.limits.cpu_seconds
    assert 40_000_000 <= result.peak_memory <= bench.settings.limits.memory
    assert result.seconds >= 0.2
