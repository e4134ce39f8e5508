"""What every backend does for those who use it well."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sandboxing import MIB, TIGHT, settings_of

from ludus.sandbox import Limits, Sandbox, SandboxFailed, SandboxFileError, SandboxProvider, SandboxUnsupported
from ludus.sandbox.stale import owner_of, remove_left_behind

Backend = tuple[str, SandboxProvider]


async def box_of(backend: Backend, limits: Limits = TIGHT) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, limits))


async def test_a_command_gets_its_arguments_input_and_environment(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    script = "import os,sys; print(sys.argv[1:], sys.stdin.read(), os.environ['COLOR']); sys.exit(3)"
    result = await box.run(
        ["python3", "-c", script, "two words", "new\nline", "'\"$x"], stdin="grüße".encode(), env={"COLOR": "red"}
    )
    assert result.text == "['two words', 'new\\nline', '\\'\"$x'] grüße red\n"
    assert (result.exit_code, result.signal, result.limit, result.ok) == (3, None, None, False)


async def test_output_comes_back_byte_for_byte_and_apart(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    script = "import sys; sys.stdout.buffer.write(bytes(range(256))*40); sys.stderr.buffer.write(b'\\xff\\0err')"
    result = await box.run(["python3", "-c", script])
    assert result.stdout == bytes(range(256)) * 40
    assert result.stderr == b"\xff\0err"
    assert result.ok
    assert result.text.startswith("\0\1")


async def test_much_input_passes_through(any_backend: Backend) -> None:
    box = await box_of(any_backend, TIGHT.but(output=4 * MIB))
    data = bytes(range(256)) * 8192
    assert (await box.run(["cat"], stdin=data)).stdout == data
    assert (await box.run(["true"], stdin=data)).ok


async def test_a_program_that_does_not_exist_or_may_not_run_has_the_shells_exit_codes(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    await box.write("plain", b"hello")
    assert (await box.run(["no-such-program"])).exit_code == 127
    assert (await box.run(["./plain"])).exit_code == 126
    assert (await box.run(["true", "nul\0"])).exit_code == 126


async def test_files_are_written_read_and_listed(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    await box.write("deep/er/file.bin", b"\0\1\2")
    await box.write("run.sh", b"#!/bin/sh\necho ran\n", executable=True)
    assert await box.read("deep/er/file.bin") == b"\0\1\2"
    assert [(one.name, one.kind, one.executable) for one in await box.list()] == [
        ("deep", "directory", False), ("run.sh", "file", True),
    ]  # fmt: skip
    assert (await box.run(["./run.sh"])).text == "ran\n"
    assert (await box.run(["cat", "file.bin"], cwd="deep/er")).stdout == b"\0\1\2"
    await box.write("run.sh", b"")
    assert await box.read("run.sh") == b""


DEEP = """
import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
open("file", "w").close()
os.mkdir("closed", 0)
"""


async def test_directories_deeper_than_a_path_can_say_are_replaced_and_removed(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    await box.write("first", b"1")
    before = await box.snapshot()
    assert (await box.run(["python3", "-c", DEEP])).ok
    await box.restore(before)
    assert [one.name for one in await box.list()] == ["first"]
    assert (await box.run(["python3", "-c", DEEP])).ok
    await box.aclose()


async def test_unreadable_and_read_only_files_are_copied_and_replaced(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    await box.write("closed/file", b"x")
    await box.write("secret", b"y")
    assert (await box.run(["chmod", "555", "closed"])).ok
    assert (await box.run(["chmod", "0", "secret"])).ok
    before = await box.snapshot()
    await box.restore(before)
    other = await box.fork()
    for one in (box, other):
        modes = (await one.run(["stat", "-c", "%a", "closed", "secret"])).text
        assert modes == ("755\n400\n" if any_backend[0] in ("docker", "podman") else "555\n0\n")
        assert await one.read("closed/file") == b"x"


async def test_a_directory_of_too_many_entries_is_refused_rather_than_cut(any_backend: Backend) -> None:
    box = await box_of(any_backend, TIGHT.but(disk=512 * MIB, seconds=60.0, cpu_seconds=60.0))
    many = "import os; os.mkdir('many'); [open(f'many/{n}', 'w').close() for n in range(10_001)]"
    assert (await box.run(["python3", "-c", many])).ok
    with pytest.raises(SandboxFileError, match="more than 10,000 entries"):
        await box.list("many")
    assert (await box.run(["rm", "many/7"])).ok
    assert len(await box.list("many")) == 10_000


async def test_files_larger_than_memory_are_read_copied_and_written(any_backend: Backend) -> None:
    box = await box_of(any_backend, TIGHT.but(memory=32 * MIB, disk=256 * MIB, file_size=256 * MIB))
    size = 100 * MIB
    await box.write("big", bytes(size))
    assert len(await box.read("big", limit=size)) == size
    await box.restore(await box.snapshot())
    assert (await box.list())[0].size == size
    assert (await box.run(["true"])).ok


async def test_a_signal_without_a_name_is_reported_by_its_number(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    result = await box.run(["python3", "-c", "import os; os.kill(os.getpid(), 40)"])
    assert (result.signal, result.ending) == (40, "ended by signal 40")


def test_what_a_server_left_behind_is_removed_however_deep_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # servers of other tests would remove it, too
    left = Path(tempfile.mkdtemp(prefix=f"{owner_of(999999999)}-"))
    subprocess.run([sys.executable, "-c", DEEP], cwd=left, check=True)
    remove_left_behind()
    assert not left.exists()


@pytest.mark.parametrize("path", ["missing", "missing/file", "../up", "/etc/passwd", "deep", ".", "a\0b"])
async def test_paths_that_lead_nowhere_or_outside_are_refused(any_backend: Backend, path: str) -> None:
    box = await box_of(any_backend)
    await box.write("deep/file", b"")
    with pytest.raises(SandboxFileError):
        await box.read(path)


async def test_a_missing_directory_and_an_oversized_file_are_named(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    with pytest.raises(SandboxFileError, match="nowhere"):
        await box.run(["true"], cwd="nowhere")
    await box.write("large", b"x" * 1000)
    with pytest.raises(SandboxFileError, match="1,000"):
        await box.read("large", limit=999)
    assert (await box.run(["true"])).ok


async def test_a_program_cannot_pass_its_own_failure_off_as_a_missing_directory(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    script = "import sys; sys.stderr.buffer.write(b'\\0ludus: no such directory\\0'); sys.exit(125)"
    result = await box.run(["python3", "-c", script])
    assert (result.exit_code, result.stderr) == (125, b"\0ludus: no such directory\0")


async def test_a_fork_has_the_files_and_goes_its_own_way(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    await box.write("state/one", b"1")
    await box.run(["sh", "-c", "ln -s one state/link; mkfifo state/pipe; chmod 000 state/one; chmod 400 state/one"])
    other = await box.fork()
    await other.write("state/one", b"2")
    assert await box.read("state/one") == b"1"
    assert await other.read("state/one") == b"2"
    assert {one.name: one.kind for one in await other.list("state")} == {"link": "link", "one": "file"}


async def test_a_snapshot_is_restored_over_whatever_came_since(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    await box.write("kept", b"before")
    snapshot = await box.snapshot()
    await box.run(["sh", "-c", "echo after > kept; mkdir -p new/deep; chmod 000 new; ln -s / outside"])
    await box.restore(snapshot)
    assert [one.name for one in await box.list()] == ["kept"]
    assert await box.read("kept") == b"before"


async def test_tighter_limits_hold_for_one_command_and_looser_ones_do_not(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    short = await box.run(["sleep", "60"], limits=TIGHT.but(seconds=0.1))
    assert (short.limit, short.exit_code, short.signal) == ("seconds", None, signal.SIGKILL)
    long = await box.run(["yes"], limits=TIGHT.but(output=100 * MIB))
    assert long.limit == "output"
    assert len(long.stdout) == TIGHT.output


async def test_what_a_command_used_is_reported(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    script = "import time; a = b'x' * 40_000_000; t = time.process_time()\nwhile time.process_time() < t + .2: pass"
    result = await box.run(["python3", "-c", script])
    assert result.ok
    assert 0.2 <= result.cpu_seconds <= TIGHT.cpu_seconds
    assert 40_000_000 <= result.peak_memory <= 96 * MIB
    assert result.seconds >= 0.2


async def test_a_cancelled_command_ends_and_leaves_the_box_usable(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    known = f"{os.getpid()}.25"
    task = asyncio.create_task(box.run(["sh", "-c", f"echo begun > mark; exec sleep {known}"]))
    while not await asyncio.to_thread(runs, "sleep", known):
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await box.run(["cat", "mark"])).text == "begun\n"
    assert not runs("sleep", known)


def runs(*argv: str) -> bool:
    """Whether such a command runs in any box of this machine."""
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "cmdline").read_bytes() == b"".join(word.encode() + b"\0" for word in argv):
                return True
        except OSError:
            continue
    return False


ASYNCIO = """
import asyncio
async def main():
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await child.communicate(b"through")
    print(out.decode(), await asyncio.to_thread(lambda: "a pipe"))
asyncio.run(main())
"""


async def test_asyncio_works_where_there_is_no_network(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    result = await box.run(["python3", "-c", ASYNCIO])
    assert result.text == "through a pipe\n", result


async def test_canceling_a_command_that_waits_leaves_the_one_that_runs_alone(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    first = asyncio.create_task(box.run(["sh", "-c", "sleep 0.5; echo done"]))
    second = asyncio.create_task(box.run(["touch", "mark"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first).text == "done\n"
    assert await box.list() == ()


async def test_commands_take_turns(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    script = "set -e; mkdir lock; echo $1; rmdir lock"
    results = await asyncio.gather(*(box.run(["sh", "-c", script, "sh", str(n)]) for n in range(8)))
    assert [result.text for result in results] == [f"{n}\n" for n in range(8)]


async def test_a_closed_box_says_that_it_is_gone(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    running = asyncio.create_task(box.run(["sleep", "60"]))
    await asyncio.sleep(0)
    await box.aclose()
    await box.aclose()
    with pytest.raises(SandboxFailed):
        await running
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    with pytest.raises(SandboxFailed):
        await box.read("x")


async def test_closing_the_provider_closes_every_box(any_backend: Backend) -> None:
    boxes = [await box_of(any_backend) for _ in range(3)]
    await any_backend[1].aclose()
    for box in boxes:
        with pytest.raises(SandboxFailed):
            await box.run(["true"])


async def test_warm_boxes_are_ready_and_replaced(any_backend: Backend) -> None:
    kind, provider = any_backend
    settings = settings_of(kind, warm=2)
    await provider.prepare(settings)
    boxes = [await provider.create(settings) for _ in range(5)]
    for number, box in enumerate(boxes):
        await box.write("mine", str(number).encode())
    assert [await box.read("mine") for box in boxes] == [b"0", b"1", b"2", b"3", b"4"]


async def test_boxes_do_not_see_each_other(isolating: Backend) -> None:
    one, two = await box_of(isolating), await box_of(isolating)
    await one.write("secret", b"of one")
    running = asyncio.create_task(one.run(["sleep", "2"]))
    seen = await two.run(["sh", "-c", "ls -a; ls /tmp; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "secret" not in seen.text
    assert "sleep" not in seen.text
    await one.aclose()
    with pytest.raises(SandboxFailed):
        await running


async def test_a_command_ends_with_its_box_and_not_at_its_own_limit(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    known = f"{os.getpid()}.75"
    running = asyncio.create_task(box.run(["sleep", known]))
    while not await asyncio.to_thread(runs, "sleep", known):
        pass
    await box.aclose()
    with pytest.raises(SandboxFailed):
        await asyncio.wait_for(running, TIGHT.seconds / 2)
    assert not runs("sleep", known)


async def test_what_a_backend_cannot_do_is_refused(isolating: Backend) -> None:
    kind, provider = isolating
    plain = settings_of(kind)
    for change in ({"image": "debian:12", "pull": "never"}, {"readonly": (("/no/such", "/x"),)}):
        with pytest.raises(SandboxUnsupported):
            await provider.create(plain.model_copy(update=change))


async def test_further_paths_are_shown_read_only(isolating: Backend) -> None:
    kind, provider = isolating
    with tempfile.TemporaryDirectory(prefix="ludus-shown-") as place:  # not below pytest's, which only root may enter
        await _show(kind, provider, Path(place))


async def _show(kind: str, provider: SandboxProvider, folder: Path) -> None:
    (folder / "rows.csv").write_text("1,2\n", encoding="utf-8")
    os.chmod(folder, 0o755)
    box = await provider.create(settings_of(kind).model_copy(update={"readonly": ((str(folder), "/data/set"),)}))
    assert (await box.run(["cat", "/data/set/rows.csv"])).text == "1,2\n"
    assert not (await box.run(["sh", "-c", "echo 3 >> /data/set/rows.csv || touch /data/set/new"])).ok
    assert (folder / "rows.csv").read_text(encoding="utf-8") == "1,2\n"


async def test_python_in_a_box_is_the_servers_and_has_nothing_installed(isolating: Backend) -> None:
    box = await box_of(isolating)
    result = await box.run(["python3", "-c", "import sys, importlib.util as u; print(sys.version, u.find_spec('pip'))"])
    assert result.text == f"{sys.version} None\n"
