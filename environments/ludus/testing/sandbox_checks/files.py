"""Files, snapshots and forks."""

from __future__ import annotations

import pytest

from ludus.sandbox import SandboxFileError
from ludus.testing.sandbox_checks.bench import MIB, Bench, check


@check()
async def files_are_written_read_and_listed(bench: Bench) -> None:
    box = await bench.box()
    await box.write("deep/er/file.bin", b"\0\1\2")
    await box.write("zero", b"")
    assert await box.read("deep/er/file.bin") == b"\0\1\2"
    assert [(one.name, one.kind) for one in await box.list()] == [("deep", "directory"), ("zero", "file")]
    assert [(one.name, one.size) for one in await box.list("deep/er")] == [("file.bin", 3)]
    assert (await box.run(["cat", "file.bin"], cwd="deep/er")).stdout == b"\0\1\2"
    await box.write("deep/er/file.bin", b"less")
    assert await box.read("deep/er/file.bin") == b"less"


@check("executable files")
async def a_file_is_executable_if_it_is_written_so(bench: Bench) -> None:
    box = await bench.box()
    await box.write("run.sh", b"#!/bin/sh\necho ran\n", executable=True)
    assert [one.executable for one in await box.list()] == [True]
    assert (await box.run(["./run.sh"])).text == "ran\n"
    await box.write("run.sh", b"")
    assert [one.executable for one in await box.list()] == [False]


@check()
async def paths_that_lead_nowhere_or_outside_are_refused(bench: Bench) -> None:
    box = await bench.box()
    await box.write("deep/file", b"")
    assert (await box.run(["sh", "-c", "ln -s /etc/passwd link; ln -s / way; mkfifo pipe"])).ok
    for path in ("missing", "missing/file", "../up", "/etc/passwd", "deep", ".", "a\0b", "link", "way/etc/passwd"):
        with pytest.raises(SandboxFileError):
            await box.read(path)
    for path in ("../up", "/tmp/file", "way/tmp/file", "deep", "deep/file/below", "a\0b"):
        with pytest.raises(SandboxFileError):
            await box.write(path, b"x")
    for path in ("missing", "..", "/", "deep/file", "way"):
        with pytest.raises(SandboxFileError):
            await box.list(path)
    assert (await box.run(["true"])).ok


@check()
async def a_file_that_is_too_large_is_refused_with_its_size(bench: Bench) -> None:
    box = await bench.box()
    await box.write("large", b"x" * 1000)
    with pytest.raises(SandboxFileError, match="1,000"):
        await box.read("large", limit=999)
    assert await box.read("large", limit=1000) == b"x" * 1000


@check()
async def a_directory_of_too_many_entries_is_refused_rather_than_cut(bench: Bench) -> None:
    box = await bench.box(disk=512 * MIB, seconds=60.0, cpu_seconds=60.0)
    made = await box.run(["sh", "-c", "mkdir many; cd many; i=0; while [ $i -le 10000 ]; do : > $i; i=$((i+1)); done"])
    assert made.ok, made
    with pytest.raises(SandboxFileError, match="more than 10,000 entries"):
        await box.list("many")
    assert (await box.run(["rm", "many/7"])).ok
    assert len(await box.list("many")) == 10_000


@check("snapshots")
async def a_snapshot_is_restored_over_what_came_since(bench: Bench) -> None:
    box = await bench.box()
    await box.write("kept", b"before")
    snapshot = await box.snapshot()
    await box.run(["sh", "-c", "echo after > kept; mkdir -p new/deep; chmod 000 new; ln -s / outside"])
    await box.restore(snapshot)
    assert [one.name for one in await box.list()] == ["kept"]
    assert await box.read("kept") == b"before"


@check("snapshots")
async def a_snapshot_is_restored_in_another_sandbox(bench: Bench) -> None:
    box, other = await bench.box(), await bench.box()
    await box.write("deep/file", bytes(range(256)))
    await other.write("rest", b"")
    await other.restore(await box.snapshot())
    assert [one.name for one in await other.list()] == ["deep"]
    assert await other.read("deep/file") == bytes(range(256))


@check("forks")
async def a_fork_has_the_files_and_goes_its_own_way(bench: Bench) -> None:
    box = await bench.box()
    await box.write("state/one", b"1")
    await box.run(["sh", "-c", "ln -s one state/link; mkfifo state/pipe; chmod 400 state/one"])
    other = await box.fork()
    await other.write("state/one", b"2")
    assert await box.read("state/one") == b"1"
    assert await other.read("state/one") == b"2"
    assert {one.name: one.kind for one in await other.list("state")} == {"link": "link", "one": "file"}
    await box.aclose()
    assert (await other.run(["cat", "state/one"])).stdout == b"2"
