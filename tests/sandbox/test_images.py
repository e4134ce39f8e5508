"""Images: pulled by policy from a real registry, built from folders, refused by name, and removed beyond the cap."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import signal
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from engine import BARE, IMAGE, libraries_of
from free_ports import free_port
from registry import Registry, registry
from sandboxing import MIB, TIGHT, leftovers, opened

from ludus.sandbox import (
    Sandbox,
    SandboxFailed,
    SandboxFileError,
    SandboxImageError,
    SandboxPortClosed,
    SandboxSettings,
    SandboxUnsupported,
)
from ludus.sandbox.box import RunnerBox
from ludus.sandbox.core.processes import WINDOW
from ludus.sandbox.core.stale import OWNER, boot, is_alive

docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")

BASE = SandboxSettings(provider="docker", limits=TIGHT, warm=0)


@pytest.fixture
def api(engine_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client of the engine, whose images are as before when the test ends; the record is in a folder of its own."""
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    client = docker.APIClient(base_url=engine_address, timeout=60)
    before = {one["Id"] for one in client.images()}
    yield client
    assert client.containers(all=True) == []
    for one in client.images(all=True):
        if one["Id"] not in before:
            with suppress(docker.errors.APIError):  # it went with another one
                client.remove_image(one["Id"], force=True)
    assert client.volumes()["Volumes"] in (None, [])
    client.close()


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
async def provider(api: Any) -> AsyncIterator[Any]:
    opened_provider = await opened("docker")
    yield opened_provider
    await opened_provider.aclose()
    assert leftovers() == []


def build(api: Any, tag: str, dockerfile: str, mode: int = 0o644, **files: bytes) -> str:
    """Build an image with the engine itself, and return its id."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in {"Dockerfile": dockerfile.encode(), **files}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    archive.seek(0)
    for event in api.build(fileobj=archive, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True):
        assert "error" not in event, event
    return str(api.inspect_image(tag)["Id"])


def push(api: Any, hub: Registry, name: str, dockerfile: str = f"FROM {BARE}\n", **files: bytes) -> str:
    """Put an image into the registry and remove it from the engine; return its name."""
    full = f"{hub.address}/{name}"
    build(api, full, dockerfile, 0o644, **files)
    for event in api.push(full, stream=True, decode=True):
        assert "error" not in event, event
    api.remove_image(full)
    return full


def folder(place: Path, dockerfile: str, **files: str) -> str:
    place.mkdir(parents=True, exist_ok=True)
    for name, content in {"Dockerfile": dockerfile, **files}.items():
        (place / name).write_text(content, encoding="utf-8")
    return str(place)


async def shown(box: Sandbox, path: str) -> str:
    return (await box.run(["cat", path])).text


def has(api: Any, name: str) -> bool:
    try:
        api.inspect_image(name)
    except docker.errors.NotFound:
        return False
    return True


# ── pulling ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_missing_image_is_pulled_once_for_many_boxes(api: Any, hub: Registry, provider: Any) -> None:
    name = push(api, hub, "once:1", f"FROM {BARE}\nCOPY note /note\n", note=b"from the registry")
    boxes = await asyncio.gather(*(provider.create(BASE.but(image=name)) for _ in range(4)))
    assert [await shown(box, "/note") for box in boxes] == ["from the registry"] * 4
    manifests = hub.pulls("once")
    await (await provider.create(BASE.but(image=name))).aclose()
    assert hub.pulls("once") == manifests


async def test_never_refuses_an_image_that_the_engine_lacks(api: Any, hub: Registry, provider: Any) -> None:
    name = push(api, hub, "never:1")
    with pytest.raises(SandboxImageError, match=r"has no image '127.0.0.1:\d+/never:1'.*forbid pulling"):
        await provider.create(BASE.but(image=name, pull="never"))
    assert not has(api, name)


@pytest.mark.suite("sandbox")
async def test_always_follows_a_tag_once_per_server(api: Any, hub: Registry, provider: Any) -> None:
    name = push(api, hub, "moving:latest", f"FROM {BARE}\nCOPY note /note\n", note=b"old")
    always, missing = BASE.but(image=name, pull="always"), BASE.but(image=name)
    assert await shown(await provider.create(missing), "/note") == "old"
    build(api, "aside", f"FROM {BARE}\nCOPY note /note\n", note=b"new")
    api.tag("aside", name.rpartition(":")[0], "latest")
    for _ in api.push(name, stream=True):
        pass
    old = await opened("docker")
    assert await shown(await old.create(missing), "/note") == "new"  # the engine's tag has moved with the push
    asked = hub.pulls("moving")
    assert await shown(await old.create(always), "/note") == "new"
    await old.aclose()
    # The first server keeps to the image that it found first.
    assert await shown(await provider.create(missing), "/note") == "old"
    other = await opened("docker")
    before = hub.pulls("moving")
    assert await shown(await other.create(always), "/note") == "new"
    after = hub.pulls("moving")
    assert after > before >= asked
    await (await other.create(always)).aclose()
    assert hub.pulls("moving") == after
    await other.aclose()


@pytest.mark.suite("sandbox")
async def test_the_log_names_the_digest(
    api: Any, hub: Registry, provider: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = push(api, hub, "digest:1")
    caplog.set_level(logging.INFO, "ludus.sandbox")
    await provider.obtain(BASE.but(image=name))
    (digest,) = api.inspect_image(name)["RepoDigests"]
    assert f"image {name} is {digest.partition('@')[2]} (pulled" in caplog.text
    pinned = digest
    api.remove_image(name)
    await (await provider.create(BASE.but(image=pinned))).aclose()


async def test_an_image_that_does_not_exist_is_refused_by_name(hub: Registry, provider: Any) -> None:
    name = f"{hub.address}/no/such:image"
    with pytest.raises(SandboxImageError, match=r"no image '127.0.0.1:\d+/no/such:image'.*correct the name"):
        await provider.create(BASE.but(image=name))
    asked = hub.pulls("no/such")
    with pytest.raises(SandboxImageError, match="correct the name"):
        await provider.create(BASE.but(image=name))
    assert hub.pulls("no/such") == asked > 0  # other episodes of the task do not ask the registry at once


async def test_a_registry_that_does_not_answer_is_no_fault_of_the_image(provider: Any) -> None:
    port = free_port()
    with pytest.raises(SandboxFailed, match="pulling the image"):
        await provider.create(BASE.but(image=f"127.0.0.1:{port}/any:1"))


@pytest.mark.parametrize("name", ["", "Upper/Case", "a b", "../containers/x", "-x", "x:y:z", "a" * 600, "x@sha256:12"])
def test_a_name_that_no_image_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an image"):
        BASE.but(image=name)


@pytest.mark.parametrize(
    "name",
    ["python", "python:3.12-slim", "library/python@sha256:" + "0" * 64, "localhost:5000/a/b__c/d.e:V1.0",
     "[::1]:5000/x", "REGISTRY.example.org/team/name", "sha256:" + "f" * 64],
)  # fmt: skip
def test_names_of_images_are_taken(name: str) -> None:
    assert BASE.but(image=name).image == name


# ── bad images ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("sandbox")
async def test_an_image_without_a_shell_is_refused_by_name(api: Any, provider: Any) -> None:
    build(api, "no-shell", "FROM scratch\nCOPY note /note\n", note=b"x")
    with pytest.raises(SandboxImageError, match="'no-shell' has no /bin/sh"):
        await provider.create(BASE.but(image="no-shell"))
    await (await provider.create(BASE.but(image=BARE))).aclose()


async def test_an_image_without_the_needed_programs_is_refused_by_name(api: Any, provider: Any) -> None:
    _build_only_a_shell(api, "poor")
    with pytest.raises(SandboxImageError, match=r"'poor' lacks .*: env, cat, .* tar"):
        await provider.create(BASE.but(image="poor"))


def _build_only_a_shell(api: Any, name: str) -> None:
    """Build an image with nothing but this machine's shell; busybox's has the programs in itself."""
    shell = os.path.realpath("/bin/sh")
    files = {path.lstrip("/"): Path(path).read_bytes() for path in libraries_of([shell])}
    copied = "".join(f"COPY {name} /{name}\n" for name in files)
    build(api, name, f"FROM scratch\nCOPY sh /bin/sh\n{copied}", sh=Path(shell).read_bytes(), mode=0o755, **files)


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(
    ("name", "files", "why"),
    [
        ("no-python", {}, "it has no `python3`"),
        (
            "broken-python",
            {"python3": b"#!/bin/sh\necho cannot >&2; exit 127\n"},
            "its `python3` does not start: cannot",
        ),
        ("odd-python", {"python3": b"#!/no/such/loader\n"}, "its `python3` does not start: exec"),
    ],
)
async def test_an_image_without_a_python_for_our_program_runs_commands_and_says_what_it_cannot_do(
    api: Any, provider: Any, name: str, files: dict[str, bytes], why: str
) -> None:
    build(api, name, f"FROM {BARE}\n{''.join(f'COPY {one} /usr/bin/{one}' for one in files)}\n", mode=0o755, **files)
    for _ in range(2):
        async with await provider.create(BASE.but(image=name, loopback=True)) as box:
            assert (await box.run(["echo", "here"])).text == "here\n"
            for call in (box.open_terminal(), box.connect(80)):
                with pytest.raises(SandboxUnsupported, match=f"'{name}' cannot .*{re.escape(why)}.*install Python 3.9"):
                    await call


@pytest.fixture
async def bare(api: Any, provider: Any) -> AsyncIterator[Sandbox]:
    """A sandbox in an image without Python."""
    limits = TIGHT.but(spawned_seconds=60, spawned_cpu_seconds=2, spawned_output=MIB)
    async with await provider.create(BASE.but(image=BARE, limits=limits)) as box:
        yield box


async def test_without_python_a_process_takes_input_and_answers_until_its_input_ends(bare: Sandbox) -> None:
    script = 'printf "%s" "$NAME" >name; while read -r line; do echo "got $line"; done; echo over >&2; exit 3'
    process = await bare.spawn(["sh", "-c", script], env={"NAME": "it's\n2"})
    for word in (b"one", b"two"):
        await process.write(word + b"\n")
        assert await process.stdout.read_line() == b"got " + word + b"\n"
    await process.close_stdin()
    end = await process.wait()
    assert (end.exit_code, end.signal, end.limit) == (3, None, None)
    assert await process.stderr.read_all() == b"over\n"
    assert await process.stdout.read_all() == b""
    assert await bare.read("name") == b"it's\n2"


@pytest.mark.suite("sandbox")
async def test_without_python_nothing_else_runs_next_to_a_process_and_everything_does_after_it(bare: Sandbox) -> None:
    await bare.write("file", b"kept")
    process = await bare.spawn(["sh", "-c", "sleep 50 & cat"])
    for call in (bare.run(["true"]), bare.read("file"), bare.snapshot(), bare.spawn(["true"])):
        with pytest.raises(SandboxUnsupported, match="cannot do anything else while a background process runs"):
            await call
    assert (await process.kill()).signal == signal.SIGKILL
    found = await bare.run(["sh", "-c", "cat file; ps | grep -c '[s]leep 50'"])
    assert found.text == "kept0\n"
    again = await bare.spawn(["echo", "here"])
    assert (await again.wait()).exit_code == 0
    assert await again.stdout.read_all() == b"here\n"


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(
    ("script", "limit"),
    [
        ("yes", "output"),
        ("while true; do true; done", "cpu_seconds"),
        ("x=x; while true; do x=$x$x; done", "memory"),
    ],
)
async def test_without_python_the_limits_of_a_process_hold_by_name(bare: Sandbox, script: str, limit: str) -> None:
    process = await bare.spawn(["sh", "-c", script])
    reading = asyncio.create_task(process.stdout.read_all(1 << 40))
    end = await asyncio.wait_for(process.wait(), 60)
    await reading
    assert end.limit == limit
    assert end.peak_memory > 0
    assert (await bare.run(["echo", "alive"])).text == "alive\n"


@pytest.mark.suite("sandbox")
async def test_without_python_a_flood_that_is_not_read_waits_and_a_closed_sandbox_ends_it(bare: Sandbox) -> None:
    process = await bare.spawn(["yes"])
    while len(process.stdout._data) < WINDOW:
        await asyncio.wait_for(process.stdout._changed.wait(), 30)
        process.stdout._changed.clear()
    assert len(process.stdout._data) == WINDOW
    await bare.aclose()
    with pytest.raises(SandboxFailed):
        await process.wait()


async def test_without_python_what_cannot_be_started_ends_as_in_other_sandboxes(bare: Sandbox) -> None:
    with pytest.raises(SandboxFileError, match="no directory 'none'"):
        await bare.spawn(["true"], cwd="none")
    assert (await (await bare.spawn(["echo", "a\0b"])).wait()).exit_code == 126
    process = await bare.spawn(["no-such-program"])
    assert (await process.wait()).exit_code == 127
    assert b"no-such-program" in await process.stderr.read_all()


@pytest.mark.suite("sandbox")
async def test_without_python_an_engine_that_loses_a_process_is_a_failure_and_no_end_of_it(
    bare: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "_exit_code", lambda shell: None)
    process = await bare.spawn(["true"])
    with pytest.raises(SandboxFailed, match="the engine has lost a process"):
        await process.wait()


@pytest.mark.suite("sandbox")
async def test_without_python_a_signal_reaches_the_process(bare: Sandbox) -> None:
    process = await bare.spawn(
        ["sh", "-c", "trap 'echo caught; exit 7' TERM; echo ready; while true; do sleep 0.1; done"]
    )
    assert await process.stdout.read_line() == b"ready\n"
    await process.signal(signal.SIGTERM)
    assert (await asyncio.wait_for(process.wait(), 30)).exit_code == 7
    assert await process.stdout.read_all() == b"caught\n"


@pytest.mark.suite("sandbox")
async def test_without_python_a_spawn_that_is_canceled_leaves_no_process(bare: Sandbox) -> None:
    task = asyncio.create_task(bare.spawn(["sleep", "50"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        while True:
            with suppress(SandboxUnsupported):
                found = await bare.run(["sh", "-c", "ps | grep -c '[s]leep 50'"])
                break
    assert found.text == "0\n"


def find_python(installer: ModuleType, version: str) -> Path:
    """A Python of that version on this machine, or a skip."""
    try:
        return Path(installer.find_python(version)).resolve()
    except installer.InstallError as error:
        pytest.skip(str(error))


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
async def test_our_program_runs_on_the_python_of_the_image_which_is_not_that_of_the_server(
    api: Any, provider: Any, installer: ModuleType, version: str
) -> None:
    python = find_python(installer, version)
    prefix = str(python.parents[1])
    build(
        api, f"python-{version}", f'FROM {IMAGE}\nRUN ["/bin/busybox", "ln", "-sf", "{python}", "/usr/bin/python3"]\n'
    )
    settings = BASE.but(image=f"python-{version}", readonly=((prefix, prefix),), loopback=True)
    async with await provider.create(settings) as box:
        assert (await box.run(["python3", "-V"])).text.startswith(f"Python {version}")
        await box.write("file", b"x" * 100_000)
        assert len(await box.read("file")) == 100_000
        if version == "3.8":
            with pytest.raises(SandboxUnsupported, match="its `python3` does not start: it is older than 3.9"):
                await box.open_terminal()
            return
        async with await box.spawn(["cat"]) as process:
            await process.write(b"here\n")
            assert await process.stdout.read_line() == b"here\n"
        limited = await box.run(["sleep", "50"], limits=box.limits.but(seconds=0.2))
        assert limited.limit == "seconds"
        (await (await box.fork()).aclose())
        async with await box.open_terminal(["tty"]) as terminal:
            await terminal.wait_for("/dev/pts/0")
        with pytest.raises(SandboxPortClosed):
            await box.connect(8000)


async def test_an_image_of_another_architecture_is_refused_by_name(api: Any, provider: Any) -> None:
    build(api, "foreign-base", f"FROM {BARE}\n")
    _load_for(api, "foreign-base", "foreign:latest", "arm64")
    with pytest.raises(SandboxImageError, match="'foreign:latest' is for linux/arm64, and this engine runs"):
        await provider.create(BASE.but(image="foreign:latest"))


def _load_for(api: Any, name: str, tag: str, architecture: str) -> None:
    """Load a copy of an image that says that it is for another architecture."""
    saved, changed = io.BytesIO(b"".join(api.get_image(name))), io.BytesIO()
    with tarfile.open(fileobj=saved) as source, tarfile.open(fileobj=changed, mode="w") as target:
        (manifest,) = json.load(source.extractfile("manifest.json"))  # type: ignore[arg-type]
        for member in source:
            content = b"" if not member.isfile() else source.extractfile(member).read()  # type: ignore[union-attr]
            if member.name == "repositories":
                continue
            if member.name == manifest["Config"]:
                content = json.dumps({**json.loads(content), "architecture": architecture}).encode()
            if member.name == "manifest.json":
                content = json.dumps([{**manifest, "RepoTags": [tag]}]).encode()
            member.size = len(content)
            target.addfile(member, io.BytesIO(content) if member.isfile() else None)
    for event in api.load_image(changed.getvalue()):
        assert "error" not in event, event


async def test_an_image_that_is_too_large_is_refused_by_name(api: Any, hub: Registry, provider: Any) -> None:
    build(api, "large", f"FROM {BARE}\nCOPY big /big\n", big=bytes(8 * MIB))
    with pytest.raises(SandboxImageError, match=r"'large' has \d+ bytes, more than `image_bytes=4194304`"):
        await provider.create(BASE.but(image="large", image_bytes=4 * MIB))
    assert has(api, "large")  # a person's image stays
    await (await provider.create(BASE.but(image="large"))).aclose()


@pytest.mark.suite("sandbox")
@pytest.mark.parametrize("packs_well", [True, False])
async def test_an_image_that_is_too_large_does_not_stay_after_its_pull(
    api: Any, hub: Registry, provider: Any, packs_well: bool
) -> None:
    import random

    content = bytes(12 * MIB) if packs_well else random.Random(1).randbytes(12 * MIB)
    name = push(api, hub, f"huge:{int(packs_well)}", f"FROM {BARE}\nCOPY big /big\n", big=content)
    with pytest.raises(SandboxImageError, match=rf"'{name}' has \d+ bytes{'' if packs_well else ' packed'}, more than"):
        await provider.create(BASE.but(image=name, image_bytes=8 * MIB))
    assert not has(api, name)


HOSTILE = """
FROM {base}
ENV LD_PRELOAD=/nowhere.so ENV=/etc/profile PYTHONPATH=/evil PATH={path} SECRET=image
WORKDIR /work
RUN ["/bin/busybox", "mkdir", "-p", "/data/deep", "/evil"]
RUN ["/bin/busybox", "sh", "-c", "/bin/busybox chmod 777 /data /data/deep /work; echo kept > /data/file"]
VOLUME /data /tmp /box
VOLUME /data/deep
USER 1234
ENTRYPOINT ["/no/such/entry"]
CMD ["neither"]
STOPSIGNAL SIGUSR1
HEALTHCHECK --interval=1s --timeout=1s --retries=1 CMD /bin/busybox sh -c 'echo sick >> /tmp/health; exit 1'
ONBUILD RUN false
"""


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(("path", "program"), [("/evil", False), ("/evil:/usr/bin", True)])
async def test_nothing_that_an_image_sets_weakens_its_box(api: Any, provider: Any, path: str, program: bool) -> None:
    build(api, "hostile", HOSTILE.format(base=IMAGE, path=path))
    box = await provider.create(BASE.but(image="hostile"))
    assert isinstance(box, RunnerBox) == program  # our program runs if the image's own path leads to Python
    result = await box.run(["/bin/busybox", "env"])
    assert "SECRET" not in result.text
    assert "/nowhere" not in result.text
    assert "/evil" not in result.text
    assert (await box.run(["pwd"])).text == "/box\n"
    ids = (await box.run(["id", "-u"])).text
    assert ids == f"{box.user}\n"
    assert (await box.run(["ls", "/data"])).text == "deep\n"  # not the image's files, but an empty directory
    for place in ("/data", "/data/deep", "/work", "/"):
        result = await box.run(["sh", "-c", f"echo x > {place}/mine"])
        assert (result.exit_code, b"Read-only" in result.stderr) == (1, True), place
    filled = await box.run(["sh", "-c", "dd if=/dev/zero of=/tmp/full bs=1M count=100"])
    assert not filled.ok
    assert (await box.run(["ls", "/tmp/health"])).exit_code != 0
    (container,) = api.containers()
    about = api.inspect_container(container["Id"])
    assert {mount["Destination"] for mount in about["Mounts"]} <= {"/dev/pts", "/.ludus-handoff"}
    assert len(api.volumes()["Volumes"]) == 1
    assert about["State"].get("Health", {"Status": "none"})["Status"] == "none"
    await box.aclose()
    assert api.volumes()["Volumes"] in (None, [])


async def test_a_container_that_a_person_removes_leaves_no_volume_after_the_server_ends(api: Any) -> None:
    provider = await opened("docker")
    try:
        await provider.create(BASE.but(image=IMAGE))
        (container,) = api.containers()
        api.remove_container(container["Id"], force=True)  # without `v`, the engine keeps the volume of terminals
        assert len(api.volumes()["Volumes"]) == 1
    finally:
        await provider.aclose()
    assert api.volumes()["Volumes"] in (None, [])


async def test_a_server_removes_the_volumes_of_a_killed_one_and_no_others(api: Any, provider: Any) -> None:
    from ludus.sandbox.docker import BOOT_LABEL, LABEL  # an extra

    dead = re.sub(r"[^-]+$", "0", OWNER)  # this process's id, of a process that began at another time
    assert not is_alive(dead)
    cases = {
        "left": {LABEL: dead, BOOT_LABEL: boot()},
        "of-another-machine": {LABEL: dead, BOOT_LABEL: "another"},
        "of-a-server-that-runs": {LABEL: OWNER, BOOT_LABEL: boot()},
        "of-a-person": {},
    }
    for name, labels in cases.items():
        api.create_volume(name, "local", {}, labels)
    other = await opened("docker")
    try:
        assert {volume["Name"] for volume in api.volumes()["Volumes"]} == set(cases) - {"left"}
    finally:
        await other.aclose()
        for name in set(cases) - {"left", "of-a-server-that-runs"}:
            api.remove_volume(name)


# ── building ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("sandbox")
async def test_a_folder_is_built_once(
    api: Any, provider: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ludus.sandbox")
    place = folder(tmp_path / "one", f"FROM {BARE}\nCOPY note /note\n", note="built")
    box = await provider.create(BASE.but(build=place))
    assert await shown(box, "/note") == "built"
    for _ in range(2):
        other = await opened("docker")
        assert await shown(await other.create(BASE.but(build=place)), "/note") == "built"
        await other.aclose()
    assert caplog.text.count("building image") == 1
    (tmp_path / "one" / "note").write_text("changed", encoding="utf-8")
    other = await opened("docker")
    assert await shown(await other.create(BASE.but(build=place)), "/note") == "changed"
    await other.aclose()
    assert caplog.text.count("building image") == 2


@pytest.mark.suite("sandbox")
async def test_two_servers_that_build_one_folder_build_it_once(
    api: Any, provider: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ludus.sandbox")
    place = folder(tmp_path / "both", f"FROM {BARE}\nRUN sleep 1\nCOPY note /note\n", note="built")
    other = await opened("docker")
    boxes = await asyncio.gather(*(one.create(BASE.but(build=place)) for one in (provider, other)))
    assert [await shown(box, "/note") for box in boxes] == ["built", "built"]
    assert caplog.text.count("building image") == 1
    await other.aclose()


async def test_dockerignore_keeps_files_out_of_the_image_and_its_name(api: Any, provider: Any, tmp_path: Path) -> None:
    place = tmp_path / "ignoring"
    settings = BASE.but(build=folder(
        place, f"FROM {BARE}\nCOPY . /all\n", note="kept", secret="left out", **{".dockerignore": "# none\nsecret\n"}
    ))  # fmt: skip
    box = await provider.create(settings)
    assert "secret" not in (await box.run(["ls", "-A", "/all"])).text.split()
    images = len(api.images())
    (place / "secret").write_text("other", encoding="utf-8")
    other = await opened("docker")
    await (await other.create(settings)).aclose()
    await other.aclose()
    assert len(api.images()) == images


async def test_a_build_that_fails_quotes_its_last_lines(api: Any, provider: Any, tmp_path: Path) -> None:
    place = folder(tmp_path / "bad", f"FROM {BARE}\nRUN echo what went wrong; exit 7\n")
    with pytest.raises(SandboxImageError, match=r"(?s)bad cannot be built.*what went wrong.*code: 7"):
        await provider.create(BASE.but(build=place))


@pytest.mark.parametrize(
    ("make", "why"),
    [(lambda place: place / "missing", "is not a folder"), (lambda place: place, "has no Dockerfile")],
)
async def test_a_folder_that_cannot_be_built_is_refused(
    provider: Any, tmp_path: Path, make: Callable[[Path], Path], why: str
) -> None:
    with pytest.raises(SandboxImageError, match=why):
        await provider.create(BASE.but(build=str(make(tmp_path))))


async def test_a_folder_that_is_too_large_is_refused(
    provider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.sandbox.build_context import BuildContext

    place = folder(tmp_path / "big", f"FROM {BARE}\n", big="x" * 5000)
    with pytest.raises(SandboxImageError, match=r"more than 4000 bytes.*\.dockerignore"):
        BuildContext.read(place, 4000)
    os.mkfifo(tmp_path / "big" / "pipe")
    with pytest.raises(SandboxImageError, match="pipe is neither a file"):
        BuildContext.read(place)


async def test_never_builds_only_from_images_that_are_there(api: Any, provider: Any, tmp_path: Path) -> None:
    place = folder(tmp_path / "away", "FROM example.invalid/away:1\n")
    with pytest.raises(SandboxImageError, match="starts from 'example.invalid/away:1'"):
        await provider.create(BASE.but(build=place, pull="never"))
    here = folder(tmp_path / "here", f"ARG B={BARE}\nFROM $B AS one\nFROM scratch\nCOPY --from=one / /\n")
    await (await provider.create(BASE.but(build=here, pull="never"))).aclose()


async def test_an_image_and_a_folder_exclude_each_other(provider: Any) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        SandboxSettings(image="x", build="y")
    assert BASE.but(build="y").but(image="x").build is None
    with pytest.raises(SandboxUnsupported, match="need an image"):
        await provider.create(BASE)


# ── the cap ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def capped(cap: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LUDUS_IMAGE_CAP", str(cap))
    return await opened("docker")


@pytest.mark.suite("sandbox")
async def test_the_least_recently_used_images_go_beyond_the_cap(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import random

    places = []
    for number in range(4):
        place = folder(tmp_path / str(number), f"FROM {BARE}\nCOPY data /data\n")
        (tmp_path / str(number) / "data").write_bytes(random.Random(number).randbytes(4 * MIB))
        places.append(BASE.but(build=place))
    build(api, "of-a-person", f"FROM {BARE}\nCOPY data /data\n", data=random.Random(9).randbytes(4 * MIB))
    size = api.inspect_image(BARE)["Size"]
    first = await capped(size + 13 * MIB, monkeypatch)
    names = []
    for settings in places[:3]:
        await (await first.create(settings)).aclose()
        names.append((await first.images.obtain(settings)).name)
    assert all(has(api, name) for name in names)  # three of 4 MiB each, and the layer below them once
    await first.aclose()
    second = await capped(size + 13 * MIB, monkeypatch)
    held = await second.create(places[0])  # now the second is the least recently used
    await (await second.create(places[3])).aclose()
    assert [has(api, name) for name in names] == [True, False, True]
    assert has(api, "of-a-person")
    assert has(api, BARE)
    again = await second.create(places[1])  # built again, in place of the third
    assert [has(api, name) for name in names] == [True, True, False]
    assert (await held.run(["ls", "/data"])).ok
    assert (await again.run(["ls", "/data"])).ok
    await second.aclose()


@pytest.mark.suite("sandbox")
async def test_an_image_that_was_removed_meanwhile_is_obtained_again(api: Any, hub: Registry, provider: Any) -> None:
    name = push(api, hub, "gone:1", f"FROM {BARE}\nCOPY note /note\n", note=b"x")
    await (await provider.create(BASE.but(image=name))).aclose()
    api.remove_image(name)
    await (await provider.create(BASE.but(image=name))).aclose()
    assert has(api, name)


@pytest.mark.suite("sandbox")
async def test_an_image_in_use_stays_and_one_above_the_cap_is_refused(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = folder(tmp_path / "a", f"FROM {BARE}\nCOPY x /x\n", x="a" * MIB)
    second = folder(tmp_path / "b", f"FROM {BARE}\nCOPY x /x\n", x="b" * MIB)
    large = folder(tmp_path / "c", f"FROM {BARE}\nCOPY x /x\n", x="c" * 4 * MIB)
    provider = await capped(api.inspect_image(BARE)["Size"] + MIB * 3 // 2, monkeypatch)
    held = await provider.create(BASE.but(build=first))
    other = await provider.create(BASE.but(build=second))
    assert (await held.run(["ls", "/x"])).ok
    assert (await other.run(["ls", "/x"])).ok
    with pytest.raises(SandboxImageError, match=r"more than the cap of \d+ on all images \(LUDUS_IMAGE_CAP\)"):
        await provider.create(BASE.but(build=large))
    assert len([one for one in api.images() if "ludus-build" in str(one["RepoTags"])]) == 2
    await provider.aclose()
