"""What every backend does for those who use it well."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sandboxing import MIB, TIGHT, command_runs, settings_of
from waiting import wait_until

from ludus.sandbox import Limits, Sandbox, SandboxFailed, SandboxProvider, SandboxUnsupported
from ludus.sandbox.core.stale import owner_of, remove_left_behind

Backend = tuple[str, SandboxProvider]


async def box_of(backend: Backend, limits: Limits = TIGHT) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, limits))


DEEP = """
import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
open("file", "w").close()
os.mkdir("closed", 0)
"""


@pytest.mark.suite("sandbox", first=1)
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
        assert modes == ("755\n400\n" if any_backend[0].endswith("-shell") else "555\n0\n")
        assert await one.read("closed/file") == b"x"


async def test_files_larger_than_memory_are_read_copied_and_written(any_backend: Backend) -> None:
    box = await box_of(any_backend, TIGHT.but(memory=32 * MIB, disk=256 * MIB, file_size=256 * MIB))
    size = 100 * MIB
    await box.write("big", bytes(size))
    assert len(await box.read("big", limit=size)) == size
    await box.restore(await box.snapshot())
    assert (await box.list())[0].size == size
    assert (await box.run(["true"])).ok


def test_what_a_server_left_behind_is_removed_however_deep_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # servers of other tests would remove it, too
    left = Path(tempfile.mkdtemp(prefix=f"{owner_of(999999999)}-"))
    subprocess.run([sys.executable, "-c", DEEP], cwd=left, check=True)
    remove_left_behind()
    assert not left.exists()


async def test_a_cancelled_command_ends_and_leaves_the_box_usable(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    known = f"{os.getpid()}.25"
    task = asyncio.create_task(box.run(["sh", "-c", f"echo begun > mark; exec sleep {known}"]))
    await wait_until(lambda: command_runs("sleep", known))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await box.run(["cat", "mark"])).text == "begun\n"
    assert not command_runs("sleep", known)


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


async def test_a_command_ends_with_its_box_and_not_at_its_own_limit(any_backend: Backend) -> None:
    box = await box_of(any_backend)
    known = f"{os.getpid()}.75"
    running = asyncio.create_task(box.run(["sleep", known]))
    await wait_until(lambda: command_runs("sleep", known))
    await box.aclose()
    with pytest.raises(SandboxFailed):
        await asyncio.wait_for(running, TIGHT.seconds / 2)
    assert not command_runs("sleep", known)


async def test_what_a_backend_cannot_do_is_refused(isolating: Backend) -> None:
    kind, provider = isolating
    plain = settings_of(kind)
    for change in ({"image": "debian:12", "pull": "never"}, {"readonly": (("/no/such", "/x"),)}):
        with pytest.raises(SandboxUnsupported):
            await provider.create(plain.model_copy(update=change))


async def test_further_paths_are_shown_read_only(isolating: Backend, tmp_path: Path) -> None:
    kind, provider = isolating
    if kind == "sandboxd":  # its host shows what is below pytest's folder
        return await _show(kind, provider, tmp_path)
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
