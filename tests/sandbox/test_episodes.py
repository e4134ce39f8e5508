"""Sandboxes in episodes: there from setup to teardown, gone with the episode, and verified where nothing is forged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from sandboxing import TIGHT, leftovers, remains, settings_of
from waiting import block_until

from ludus.protocol import episodes as e
from ludus.protocol.errors import EpisodeFailed, InfrastructureFailed
from ludus.sandbox import Sandbox, Sandboxes, SandboxFailed, SandboxSettings, SandboxUnavailable, find_provider
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.cgroups import Groups
from ludus.sandbox.core.stale import is_alive, kill_stale_processes, owner_of, remove_left_behind
from ludus.server import Environment, EpisodeHost, Private, Split, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.serving.serve import serving
from ludus.server.tasks.loading import load_environment

ROOT = Path(__file__).parents[2]
Start = Callable[..., Awaitable[EpisodeHost]]
BWRAP = settings_of("bubblewrap", TIGHT, warm=1)


class Sum(Task):
    """Write a program that adds."""

    answer: Private[int] = 5


class Coding(Environment[Sum]):
    """The policy writes files and runs them; the verifier runs what it left."""

    splits = {"train": [Sum(id="one")]}
    blocking = False
    sandbox_settings = BWRAP
    artifacts = ("answer.py", "missing.py")

    async def setup(self) -> None:
        await self.sandbox.write("README", b"write answer.py")

    def prompt(self) -> str:
        return "Write answer.py, which prints the sum of its two arguments."

    @tool
    async def shell(self, command: str) -> str:
        """Run a command.

        Args:
            command: for the shell.
        """
        result = await self.sandbox.run(["sh", "-c", command])
        return f"{result.text}({result.ending})"

    async def grade(self, answer: str) -> float:
        async with self.verifier() as box:
            result = await box.run(["python3", "answer.py", "2", "3"])
        return float(result.ok and result.text == f"{self.task.answer}\n")


class Separate(Coding):
    verifier_sandbox = "separate"


def needs_bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")


async def played(host: EpisodeHost, trainer: Principal, name: str, *commands: str) -> tuple[str, list[str]]:
    started = await host.start(e.StartParams(environment=name, split="train", key=os.urandom(8).hex()), trainer)
    episode = started.episodes[0].episode
    shown = []
    for command in commands:
        result = await host.play(episode, "shell", {"command": command})
        shown.append(result.content[0].text)  # type: ignore[union-attr]
    return episode, shown


async def graded(host: EpisodeHost, trainer: Principal, episode: str) -> float | None:
    result = await host.grade(e.GradeParams(episode=episode, answer="done", key=os.urandom(8).hex()), trainer)
    assert result.reward is not None
    return result.reward.value


RIGHT = "printf 'import sys\\nprint(int(sys.argv[1]) + int(sys.argv[2]))\\n' > answer.py"
FORGED = "mkdir -p bin; printf 'import sys; print(5); sys.exit()' > sys.py; printf 'import sys\\n' > answer.py"


async def test_an_episode_has_a_sandbox_of_its_own(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Coding)
    one, shown = await played(running, trainer, "coding", "cat README; echo mine > mine; pwd")
    assert shown == ["write answer.py/box\n(exit code 0)"]
    two, shown = await played(running, trainer, "coding", "cat mine 2>&1", RIGHT)
    assert shown[0].endswith("(exit code 1)")
    assert await graded(running, trainer, two) == 1.0
    assert await graded(running, trainer, one) == 0.0


async def test_the_sandbox_is_gone_when_the_episode_is(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Coding)
    episode, _ = await played(running, trainer, "coding", "echo x")
    instance = running.store.find(episode).instance
    await running.close(e.CloseParams(episode=episode), trainer)
    with pytest.raises(SandboxFailed):
        await instance.sandbox.run(["true"])
    await running.__aexit__(None, None, None)
    assert leftovers() == []


class Searching(Coding):
    """Looks further in copies of its box, and forgets some of them."""

    verifier_sandbox = "separate"

    @tool
    async def branch(self) -> str:
        """Try something else."""
        fork: Sandbox = await self.sandbox.fork()
        await (await fork.fork()).write("README", b"two below")
        async with await fork.fork() as closed:
            await closed.write("README", b"closed at once")
        return (await fork.read("README")).decode()

    async def grade(self, answer: str) -> float:
        async with self.verifier() as box:
            await box.fork()
        return 1.0


async def test_forks_are_gone_when_the_episode_is(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Searching)
    await running.sandboxes.open([BWRAP])
    before = leftovers()
    episode, _ = await played(running, trainer, "searching", "echo x")
    for _ in range(2):
        result = await running.play(episode, "branch", {})
        assert result.content[0].text == "write answer.py"  # type: ignore[union-attr]
    assert await graded(running, trainer, episode) == 1.0
    await running.close(e.CloseParams(episode=episode), trainer)
    await running.sandboxes.open([BWRAP])
    assert len(leftovers()) == len(before), "no more than the warm ones"


async def test_a_fork_that_comes_after_the_episodes_end_is_not_handed_out(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Coding)
    episode, _ = await played(running, trainer, "coding", "echo x")
    sandboxes: Any = running.store.find(episode).sandboxes
    fork = await sandboxes.agent._box.fork()
    await sandboxes.aclose()
    with pytest.raises(SandboxFailed):
        await sandboxes._adopt(fork)
    assert not fork.alive


async def test_a_separate_verifier_sees_the_artifacts_and_nothing_else(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Coding, Separate)
    forged = "printf 'import helper' > answer.py; printf 'print(5)' > helper.py"
    shared, _ = await played(running, trainer, "coding", forged)
    separate, _ = await played(running, trainer, "separate", forged)
    assert await graded(running, trainer, shared) == 1.0
    assert await graded(running, trainer, separate) == 0.0
    honest, _ = await played(running, trainer, "separate", RIGHT)
    assert await graded(running, trainer, honest) == 1.0


async def test_an_artifact_that_is_a_trap_is_left_out(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Separate)
    for trap in ("ln -s /proc/self/environ answer.py", "mkfifo answer.py", "mkdir answer.py", "ln -s . answer.py"):
        episode, _ = await played(running, trainer, "separate", trap)
        assert await graded(running, trainer, episode) == 0.0


async def test_a_sandbox_that_dies_leaves_the_episode_unscored(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(Coding)
    episode, _ = await played(running, trainer, "coding", RIGHT)
    await running.store.find(episode).instance.sandbox.aclose()
    with pytest.raises(InfrastructureFailed):
        await running.play(episode, "shell", {"command": "true"})
    info = await running.get_episode(e.GetEpisodeParams(episode=episode), trainer)
    assert (info.info.end_reason, info.info.reward.value) == ("infrastructure_error", None)  # type: ignore[union-attr]


async def test_a_setup_that_fails_leaves_no_sandbox(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()

    class Broken(Coding):
        async def setup(self) -> None:
            raise ValueError("no")

    running = await host(Broken)
    with pytest.raises(EpisodeFailed):
        await played(running, trainer, "broken")
    await running.__aexit__(None, None, None)
    assert leftovers() == []


async def test_the_environment_of_the_documentation_works(host: Start, trainer: Principal) -> None:
    needs_bubblewrap()
    running = await host(load_environment(f"{ROOT}/docs/snippets/coding.py:Coding"))
    write = "printf 'def add(a, b):\\n    return a + b\\n' > answer.py; sleep 60"
    episode, shown = await played(running, trainer, "coding", write)
    assert shown == ["(ended by its limit on seconds)"]
    assert await graded(running, trainer, episode) == 1.0
    episode, _ = await played(running, trainer, "coding", "echo 'import os; os._exit(1)' > answer.py")
    assert await graded(running, trainer, episode) == 0.0


async def test_the_environment_of_the_documentation_with_an_allowlist_shows_what_was_refused(
    host: Start, trainer: Principal
) -> None:
    needs_bubblewrap()
    running = await host(load_environment(f"{ROOT}/docs/snippets/packages.py:Packages"))
    fetch = "python3 -c \"import urllib.request as u; u.urlopen('https://example.org/')\""
    _, shown = await played(running, trainer, "packages", fetch)
    assert shown == ["\nnetwork: refused example.org:443: it is not on the allowlist"]


async def test_an_environment_without_settings_says_what_it_lacks() -> None:
    class Plain(Environment[Task]):
        splits = {"train": Split([Task(id="one")])}

    with pytest.raises(RuntimeError, match="sandbox_settings"):
        _ = Plain().sandbox


# ── at startup ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_missing_bubblewrap_is_reported_at_startup_with_package_and_alternative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxUnavailable, match="package `bubblewrap`.*docker.*unsafe-local"):
        async with serving([Coding]):
            pass


async def test_a_bubblewrap_that_cannot_work_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: no permission here' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxUnavailable, match="no permission here"):
        await Bubblewrap().open()
    assert leftovers() == []


async def test_an_unknown_provider_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SandboxUnavailable, match="did you mean 'bubblewrap'"):
        await Sandboxes().open([SandboxSettings(provider="bublewrap")])
    assert find_provider("unsafe-local").name == "unsafe-local"


def test_serving_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from ludus.server import Environment, Task; from ludus.sandbox import SandboxSettings\n"
        "class E(Environment[Task]):\n  splits = {'train': [Task(id='1')]}\n"
        "  sandbox_settings = SandboxSettings(provider='nowhere')\n"
        "  def prompt(self): return 'x'\n  def grade(self, answer): return 1\n"
        "from ludus.server.serving.serve import run; from ludus.server.serving.settings import ServerSettings\n"
        "try: run([E], ServerSettings(port=0))\n"
        "except Exception as error: print('REFUSED', type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert "REFUSED SandboxUnavailable there is no sandbox 'nowhere'" in done.stdout


# ── lifetime ───────────────────────────────────────────────────────────────────────────────────────────────────────


NO_MORE = owner_of(999_999_999)
"""A server that has ended."""
ELSEWHERE = "ludus-1-999999999-1"
"""One that this process cannot see."""

SERVER = """
import asyncio
from ludus.sandbox import Sandbox, Sandboxes, SandboxFailed, SandboxSettings, SandboxUnavailable, find_provider
from ludus.sandbox.core.stale import OWNER

async def main():
    provider = find_provider("unsafe-local")
    await provider.open()
    settings = SandboxSettings(provider="unsafe-local", warm=2)
    boxes = [await provider.create(settings) for _ in range(3)]
    await provider.prepare(settings)
    runs = [asyncio.create_task(box.run(["sh", "-c", "setsid sleep 1000 & sleep 1000 & wait"])) for box in boxes]
    print(OWNER, flush=True)
    await asyncio.gather(*runs)

asyncio.run(main())
"""


def family_of(pid: int) -> set[int]:
    """The processes below one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    known: set[int] = {pid}
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return known - {pid}


def test_a_killed_server_leaves_nothing_where_nothing_isolates_it() -> None:
    """Three boxes run commands with daemons, two are warm; bubblewrap and docker are in `test_killed_server`."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        owner = server.stdout.readline().strip()
        block_until(lambda: len(family_of(server.pid)) >= 5 + 3 * 3, 50, lambda: str(family_of(server.pid)))
        family = family_of(server.pid)
        waiting = select.poll()
        pids = {os.pidfd_open(pid): pid for pid in family}
        for descriptor in pids:
            waiting.register(descriptor, select.POLLIN)
        server.kill()
        while pids:
            ended = waiting.poll(50_000)
            assert ended, f"still running: {pids}"
            for descriptor, _ in ended:
                waiting.unregister(descriptor)
                os.close(descriptor)
                del pids[descriptor]
    assert not is_alive(owner)
    asyncio.run(reopened("unsafe-local"))
    assert remains(owner) == []


def test_a_container_that_outlived_its_server_is_removed_and_one_of_another_namespace_is_not(
    engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with contextlib.closing(docker.DockerClient(base_url=engine_address, timeout=20)) as client:
        left, other = (
            client.containers.run(
                IMAGE, ["sleep", "1000"], detach=True, network_mode="none",
                labels={"dev.ludus.owner": owner, "dev.ludus.boot": boot},
            )
            for owner in (NO_MORE, ELSEWHERE)
        )  # fmt: skip
        try:
            asyncio.run(reopened("docker"))
            assert [one.id for one in client.containers.list(all=True) if one.id in (left.id, other.id)] == [other.id]
        finally:
            other.remove(force=True)


async def test_a_missing_engine_is_reported_at_startup_with_package_and_alternative(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SandboxUnavailable, match=r"package `docker\.io`.*bubblewrap"):
        await Sandboxes().open([SandboxSettings(provider="docker", image=IMAGE)])


async def reopened(name: str) -> None:
    provider = find_provider(name)
    await provider.open()
    await provider.aclose()


def test_a_box_whose_server_died_while_starting_it_is_swept() -> None:
    words = ["ludus.sandbox.inside", NO_MORE]
    script = "print('up', flush=True); import time; time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", script, *words], stdout=subprocess.PIPE) as left:
        assert left.stdout is not None
        left.stdout.readline()
        try:
            kill_stale_processes()
            assert left.wait(5) == -signal.SIGKILL
        finally:
            left.kill()


def test_groups_of_dead_servers_are_swept() -> None:
    groups = Groups.find()
    if groups is None:
        pytest.skip("this machine lets us make no control groups")
    places = {owner: [base / f"{owner}-abc" for base in set(groups._bases.values())] for owner in (NO_MORE, ELSEWHERE)}
    for place in (*places[NO_MORE], *places[ELSEWHERE]):
        place.mkdir()
    groups.sweep()
    assert not any(place.exists() for place in places[NO_MORE])
    for place in places[ELSEWHERE]:
        place.rmdir()  # it is still there


OTHERS = """
import asyncio, sys
from ludus.sandbox import SandboxSettings, find_provider
from ludus.sandbox.core.stale import OWNER

async def main():
    provider = find_provider("bubblewrap")
    await provider.open()
    async with await provider.create(SandboxSettings(warm=0)) as box:
        print(OWNER, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print((await box.run(["echo", "alive"])).text, end="", flush=True)
    await provider.aclose()

asyncio.run(main())
"""


def test_the_boxes_of_a_server_in_a_container_are_left_alone() -> None:
    """Its processes have other numbers there; under these numbers there is no process here, or another one."""
    needs_bubblewrap()
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which(apart[0]) is None or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets us make no process namespace")
    argv = [*apart, sys.executable, "-c", OTHERS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        owner = server.stdout.readline().strip()
        place = Path(tempfile.mkdtemp(prefix=f"{owner}-"))
        kill_stale_processes()
        remove_left_behind()
        assert is_alive(owner)
        place.rmdir()
        assert server.communicate("go on\n", timeout=30)[0] == "alive\n"
