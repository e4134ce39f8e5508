"""Images by task, through a real server: each episode runs in its task's image, and a bad one harms no other task."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from engine import BARE, engine
from sandboxing import command_runs, leftovers
from serving import served
from waiting import wait_until

from ludus.client import connect
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import LudusError, Unsupported
from ludus.sandbox import SandboxUnsupported
from ludus.server.serving.serve import serving
from ludus.server.tasks.loading import load_environment

docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")

WORLD = """
from ludus.sandbox import Limits, SandboxSettings
from ludus.server import Environment, Private, Split, Task, tool


class Boxed(Task):
    place: Private[str] = ""
    image: str = ""


class Coding(Environment[Boxed]):
    splits = {"train": [TASKS]}
    sandbox_settings = SandboxSettings(provider="docker", limits=Limits(memory=64 * 2**20, disk=16 * 2**20))
    verifier_sandbox = "separate"

    @classmethod
    def sandbox_for(cls, task):
        if task.image == "wrong type":
            return task.image
        return cls.sandbox_settings.but(image=task.image or None, build=None if task.image else task.place)

    def prompt(self) -> str:
        return "Read /mark."

    @tool
    async def shell(self, command: str) -> str:
        '''Run a command.'''
        return (await self.sandbox.run(["sh", "-c", command])).text

    async def grade(self, answer: str) -> float:
        async with self.verifier() as box:
            return float((await box.run(["cat", "/mark"])).text == answer)
"""


def world(place: Path, *tasks: str) -> Path:
    path = place / "world.py"
    path.write_text(WORLD.replace("TASKS", ", ".join(f"Boxed({task})" for task in tasks)), encoding="utf-8")
    return path


def folders(place: Path, count: int, dockerfile: str = f"FROM {BARE}\nCOPY mark /mark\n") -> list[str]:
    """Folders next to the environment's file, each for an image with its own mark; the tasks that use them."""
    tasks = []
    for number in range(count):
        inside = place / "images" / str(number)
        inside.mkdir(parents=True)
        (inside / "Dockerfile").write_text(dockerfile, encoding="utf-8")
        (inside / "mark").write_text(f"image {number}", encoding="utf-8")
        tasks.append(f'id="{number}", place="images/{number}"')
    return tasks


@pytest.fixture
def api(engine_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client of the engine; what a test built is removed when it ends."""
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    client = docker.APIClient(base_url=engine_address, timeout=60)
    before = {one["Id"] for one in client.images()}
    yield client
    assert client.containers(all=True) == []
    assert leftovers() == []
    for one in client.images(all=True):
        if one["Id"] not in before:
            with suppress(docker.errors.APIError):  # it went with another one
                client.remove_image(one["Id"], force=True)
    client.close()


def said(result: StepResult) -> str:
    """The text of a call's result."""
    return result.content[0].text if result.content else ""  # type: ignore[union-attr]


async def played(client: Any, task: str) -> tuple[str, float | None]:
    """What an episode of a task reads in its own image, and its reward for having read it."""
    async with client.environment("coding").episode(task=task) as episode:
        mark = said(await episode.call("shell", command="cat /mark"))
        return mark, (await episode.grade(mark)).reward.value


@pytest.mark.timeout(240)
@pytest.mark.suite("sandbox")
async def test_50_tasks_run_in_50_images_that_share_their_base(api: Any, tmp_path: Path) -> None:
    layer = bytes(20_000_000)
    base = tmp_path / "base"
    base.mkdir()
    (base / "shared").write_bytes(layer)
    (base / "Dockerfile").write_text(f"FROM {BARE}\nCOPY shared /shared\n", encoding="utf-8")
    for event in api.build(path=str(base), tag="task-base:1", rm=True, decode=True):
        assert "error" not in event
    path = world(tmp_path, *folders(tmp_path, 50, "FROM task-base:1\nCOPY mark /mark\n"))
    before = api.df()["LayersSize"]
    async with served(path, dict(os.environ)) as server, connect(server.url) as client:
        built = [one for one in api.images() if "ludus-build" in str(one["RepoTags"])]
        assert len({one["Id"] for one in built}) == 50
        gate = asyncio.Semaphore(6)

        async def one(number: int) -> tuple[str, float | None]:
            async with gate:
                return await played(client, str(number))

        ends = await asyncio.gather(*(one(number) for number in range(50)))
    assert ends == [(f"image {number}", 1.0) for number in range(50)]
    assert api.df()["LayersSize"] - before < 1_000_000  # not 50 times the base
    from ludus.sandbox.image_record import ImageRecord
    from ludus.sandbox.images import Images

    images = Images({}, ImageRecord("count", tmp_path / "count"))
    total = images.size_of(api, [one["Id"] for one in built])
    assert len(layer) < total < 2 * len(layer)
    await images.aclose()


@pytest.mark.suite("sandbox")
async def test_public_and_private_fields_choose_the_image_of_agent_and_verifier(api: Any, tmp_path: Path) -> None:
    path = world(tmp_path, *folders(tmp_path, 2), f'id="public", image="{BARE}"')
    async with serving([load_environment(f"{path}:Coding")], variables=dict(os.environ)) as server:
        async with connect(server.url) as client:
            assert await played(client, "0") == ("image 0", 1.0)
            assert await played(client, "1") == ("image 1", 1.0)
            mark, reward = await played(client, "public")
            assert (mark, reward) == ("", 1.0)  # that image has no mark, for the verifier either


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('image="no/such/image:here", place=""', "no/such/image:here"),
        ('image="Not A Name"', "is not the name of an image"),
        ('image="wrong type"', "must return SandboxSettings"),
        ('place="images/nowhere"', "images/nowhere, which is not a folder"),
    ],
)
async def test_a_task_with_a_bad_image_keeps_no_other_task_from_running(
    api: Any, tmp_path: Path, bad: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = world(tmp_path, *folders(tmp_path, 1), f'id="bad", {bad}')
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace("limits=Limits(", 'pull="never", limits=Limits('), encoding="utf-8")
    async with serving([load_environment(f"{path}:Coding")], variables=dict(os.environ)) as server:
        assert "'bad'" in caplog.text
        assert why in caplog.text
        async with connect(server.url) as client:
            with pytest.raises(LudusError, match=f"(?s)'bad'.*{why}") as raised:
                await played(client, "bad")
            assert isinstance(raised.value, Unsupported)
            assert await played(client, "0") == ("image 0", 1.0)


async def test_a_server_none_of_whose_tasks_has_an_image_does_not_start(api: Any, tmp_path: Path) -> None:
    path = world(tmp_path, 'id="bad", place="images/nowhere"')
    with pytest.raises(SandboxUnsupported, match="no task of 'coding' has a sandbox.*images/nowhere"):
        async with serving([load_environment(f"{path}:Coding")], variables=dict(os.environ)):
            pass


@pytest.mark.suite("sandbox")
async def test_nothing_is_left_of_a_server_that_is_killed_while_it_builds(api: Any, tmp_path: Path) -> None:
    (task,) = folders(tmp_path, 1, f"FROM {BARE}\nRUN sleep 600\nCOPY mark /mark\n")
    path = world(tmp_path, task)
    command = [sys.executable, "-m", "ludus.cli", "serve", f"{path}:Coding", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def builds() -> bool:
        assert process.returncode is None
        return bool(await asyncio.to_thread(api.containers))

    await wait_until(builds)
    async with asyncio.timeout(60):
        process.kill()
        await process.wait()
        for container in await asyncio.to_thread(api.containers, all=True):
            with suppress(docker.errors.NotFound):
                await asyncio.to_thread(api.wait, container["Id"], condition="removed", timeout=40)
    (tmp_path / "images" / "0" / "Dockerfile").write_text(f"FROM {BARE}\nCOPY mark /mark\n", encoding="utf-8")
    async with served(path, dict(os.environ)) as server, connect(server.url) as client:
        assert await played(client, "0") == ("image 0", 1.0)


@asynccontextmanager
async def _own_engine() -> AsyncIterator[str]:
    with engine() as address:
        yield address


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(180)
async def test_episodes_of_an_engine_that_is_killed_are_unscored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = world(tmp_path, *folders(tmp_path, 2))
    async with _own_engine() as address:
        variables = {**os.environ, "DOCKER_HOST": address}
        pid = int(Path(address.removeprefix("unix://")).with_name("pid").read_text(encoding="ascii"))
        async with served(path, variables) as server, connect(server.url) as client:
            episode = await client.environment("coding").start(task="0")
            assert said(await episode.call("shell", command="cat /mark")) == "image 0"
            seconds = f"600.{os.getpid()}"
            call = asyncio.create_task(episode.call("shell", command=f"exec sleep {seconds}"))
            await wait_until(lambda: command_runs("sleep", seconds))
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(LudusError):
                await call
            with pytest.raises(LudusError):
                await played(client, "1")
            rewards = await episode.rewards()
            assert rewards.total.value is None
    async with _own_engine() as address:
        async with served(path, {**os.environ, "DOCKER_HOST": address}) as server, connect(server.url) as client:
            assert await played(client, "1") == ("image 1", 1.0)


ORDINARY = """
import asyncio
from ludus.sandbox import Limits, SandboxSettings
from ludus.sandbox.podman import Podman


async def main():
    provider = Podman()
    await provider.open()
    limits = Limits(memory=96 * 2**20, disk=16 * 2**20)
    settings = SandboxSettings(provider="podman", build=FOLDER, limits=limits, warm=0)
    box = await provider.create(settings)
    print((await box.run(["cat", "/mark"])).text, (await box.run(["id", "-u"])).text.strip(), flush=True)
    await box.run(["sleep", "600"])

asyncio.run(main())
"""


def processes_of(uid: int) -> dict[int, list[bytes]]:
    """The command lines of the processes of a user and of those in its containers."""
    found = {}
    low = int(next(line for line in Path("/etc/subuid").read_text("utf-8").splitlines()
                   if line.startswith(f"{pwd.getpwuid(uid).pw_name}:")).split(":")[1])  # fmt: skip
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry.stat().st_uid == uid or low <= entry.stat().st_uid < low + 65536):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    return found


def _python_of_everyone() -> tuple[str, str]:
    """A Python of this version that other users may run, and where it finds our packages."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    version = "import sys; print(*sys.version_info[:2])"
    wanted = " ".join(map(str, sys.version_info[:2]))
    found = python and subprocess.run([python, "-c", version], capture_output=True, text=True, check=False).stdout
    if python is None or not found or found.strip() != wanted:
        pytest.skip(f"an ordinary user has no Python {wanted} here")
    return python, os.pathsep.join(place for place in sys.path if place and not place.startswith(sys.base_prefix))


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(150)
async def test_an_ordinary_users_server_starts_podman_which_ends_with_it(podman_address: str, tmp_path: Path) -> None:
    run = Path(podman_address.removeprefix("unix://")).parent
    uid = run.stat().st_uid
    inside = run.parent / "folder"
    inside.mkdir()
    (inside / "Dockerfile").write_text(f"FROM localhost/{BARE}\nCOPY mark /mark\n", encoding="utf-8")
    (inside / "mark").write_text("built", encoding="utf-8")
    before = set(processes_of(uid))
    python, paths = _python_of_everyone()
    process = await asyncio.create_subprocess_exec(
        python, "-c", ORDINARY.replace("FOLDER", repr(str(inside))), stdout=subprocess.PIPE, user=uid,
        group=run.stat().st_gid, extra_groups=[], cwd="/",
        env={
            "PATH": os.environ["PATH"], "PYTHONPATH": paths, "HOME": str(run.parent / "home"),
            "XDG_RUNTIME_DIR": str(run),
        },
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            said = (await process.stdout.readline()).decode().split()
        assert said[0] == "built", said
        assert int(said[1]) > 0
        started = {pid: words for pid, words in processes_of(uid).items() if pid not in before and not _idles(words)}
        assert any(b"service" in words for words in started.values())
        assert any(words[0] == b"/bin/sh" for words in started.values())  # the container's first process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def left() -> dict[int, list[bytes]]:
        return {pid: words for pid, words in processes_of(uid).items() if pid in started}

    await wait_until(lambda: not left(), 30, lambda: str(left()))


def _idles(words: list[bytes]) -> bool:
    """Whether a process is Podman's own: one for each user, and `conmon`, which keeps exit codes for five minutes."""
    return words == [b"podman"] or words[0].endswith(b"/conmon")
