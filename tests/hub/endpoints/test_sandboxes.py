"""Environments with a sandbox, as endpoints: they play, and the code in the sandbox reaches nothing around it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client as McpClient
from waiting import wait_until

from ludus.client import Episode, connect, text_of
from ludus.protocol.errors import EpisodeFailed, EpisodeNotFound, InfrastructureFailed
from ludus.sandbox.cgroups import Groups

pytestmark = [pytest.mark.timeout(120)]

CODER = '''
"""Runs programs in a sandbox."""

import asyncio, contextlib, io

from ludus.server import Environment, Limits, Private, Result, SandboxSettings, Task, tool


class Coder(Environment[Task]):
    """Runs programs in a sandbox."""

    version = "1.0.0"
    splits = {"train": [Task(id="only")]}
    sandbox_settings = SandboxSettings()

    def prompt(self):
        """Say what to do."""
        return "Write a program."

    @tool
    async def execute(self, code: str) -> Result:
        """Run Python code in the sandbox."""
        result = await self.sandbox.run(["python3", "-c", code])
        return Result(f"{result.text}{result.stderr.decode()[-500:]}|{result.ending}", reward=1.0)

    @tool
    def run(self, code: str) -> str:
        """Run Python code in the process of the environment."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, {})
        return output.getvalue()
'''


async def publish(hub: Any, name: str = "coder") -> str:
    """Publish the environment with a sandbox, and return its address."""
    address: str = await hub.publish(name, source=CODER, cls="Coder")
    return address


@asynccontextmanager
async def playing(hub: Any, package: str = "coder") -> AsyncIterator[Episode]:
    """An episode of an environment with a sandbox."""
    async with connect(hub.address(package)) as client:
        yield await client.environment("coder").start(index=0)


async def executes(episode: Episode, code: str, *, ending: bool = False) -> str:
    """Run code in the sandbox of an episode, and return what it printed, or how it ended."""
    output, _, ended = text_of((await episode.call("execute", code=code)).content).rpartition("|")
    return ended if ending else output


async def runs(episode: Episode, code: str) -> str:
    """Run code in the process of an episode, and return what it printed."""
    return text_of((await episode.call("run", code=code)).content)


@pytest.mark.suite("hub-endpoints")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_an_environment_with_a_sandbox_plays_unchanged(start_hub: Any, wire: Any) -> None:
    hub = await start_hub()
    async with connect(await publish(hub), wire=wire) as client:
        episode = await client.environment("coder").start(index=0)
        step = await episode.call("execute", code="open('kept', 'w').write('7'); print(6 * 7)")
        assert text_of(step.content).startswith("42")
        assert step.reward is not None
        assert step.reward.value == 1.0
        assert text_of((await episode.call("execute", code="print(open('kept').read())")).content).startswith("7")
        if episode.play_url is not None:
            async with McpClient(episode.play_url) as stock:
                said = await stock.call_tool("execute", {"code": "print(open('kept').read() * 3)"})
                assert said.model_dump(mode="json")["content"][0]["text"].startswith("777")


ESCAPES = """
import os, signal, socket
from pathlib import Path
secret = "ANSW" + "ER-42"
seen = []
for place in ("/environment", "/packages", "/sandboxes", "/proc/1/root/environment", {data!r}, *{sockets!r}):
    try:
        os.stat(place)
        seen.append(place)
    except OSError:
        pass
print("places", seen)
print("variables", [name for name in os.environ if "KEY" in name or "LUDUS" in name or os.environ[name] == "granted"])
def of(pid, name):
    try:
        return Path("/proc", pid, name).read_bytes()
    except OSError:
        return b""
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and b"ludus." + b"hub" in of(pid, "cmdline")]
print("processes", others)
print("mounts", [line for line in open("/proc/self/mountinfo") if {data!r} in line])
print("user", os.getuid() not in (0, {user}))
reached = []
for port in {ports!r}:
    for host in ("127.0.0.1", "::1", "10.0.0.1"):
        try:
            socket.create_connection((host, port), 1).close()
            reached.append((host, port))
        except OSError:
            pass
try:
    socket.getaddrinfo("pypi.org", 443)
    reached.append("pypi.org")
except OSError:
    pass
for path in {sockets!r}:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        reached.append(path)
    except OSError:
        pass
print("reached", reached)
for pid in {pids!r}:
    try:
        os.kill(pid, signal.SIGKILL)
        print("killed", pid)
    except (ProcessLookupError, PermissionError):
        pass
"""


def sockets_of_brokers() -> list[str]:
    """Return where the sockets of all brokers lie on this machine."""
    return [str(path) for path in Path(tempfile.gettempdir()).glob("ludus-*/shown/socket")]


async def test_code_in_the_sandbox_reaches_neither_the_endpoint_nor_the_hub_nor_a_network(
    start_hub: Any, tools: Any
) -> None:
    hub = await start_hub(secrets={"ada/coder": {"API_KEY": "granted"}})
    source = CODER.replace("SandboxSettings()", "SandboxSettings(loopback=True)")
    await hub.publish("coder", source=source, cls="Coder", secrets=("API_KEY",))
    await publish(hub, "neighbor")
    async with playing(hub, "neighbor") as other, playing(hub) as episode:
        listening = (
            "print([int(line.split()[1].rpartition(':')[2], 16) for line in open('/proc/net/tcp').readlines()[1:]])"
        )
        ports = {int(hub.url.rpartition(":")[2]), *json.loads(await runs(episode, listening))}
        user = int(await runs(episode, "import os; print(os.getuid())"))
        assert await runs(episode, "import os; print(os.environ['API_KEY'], os.path.exists('/sandboxes/socket'))") == (
            "granted True\n"
        )
        pids = sorted(tools.processes_below(os.getpid()))
        sockets = ["/sandboxes/socket", *sockets_of_brokers()]
        assert len(sockets) > 2, "the sockets of both brokers are tried"
        said = await executes(
            episode,
            ESCAPES.format(data=str(hub.data), sockets=sockets, user=user, ports=sorted(ports), pids=[1, *pids]),
        )
        assert said.splitlines()[:6] == [
            "places []", "variables []", "processes []", "mounts []", "user True", "reached []",
        ]  # fmt: skip
        assert await executes(episode, "import os, signal; os.kill(-1, signal.SIGKILL); print('sent')")
        for one in (episode, other):
            assert await executes(one, "print('on')") == "on\n"
        users = {await executes(one, "import os; print(os.getuid())") for one in (episode, other)}
        assert len(users) == 2


@pytest.mark.suite("hub-endpoints")
async def test_a_sandbox_that_uses_up_its_limits_hurts_no_other_episode(start_hub: Any) -> None:
    hub = await start_hub()
    async with connect(await publish(hub)) as client:
        first, second = [await client.environment("coder").start(index=0) for _ in range(2)]
        forks = "import os\nwhile True: os.fork()"
        for code in (
            forks,
            "found = []\nwhile True: found.append(bytearray(1 << 22))",
            "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))\n    n += 1",
        ):
            results = await asyncio.gather(*(executes(one, code, ending=True) for one in (first, second)))
            for result in results:
                assert "exit code 0" not in result
            assert await runs(
                first, "import threading; t = threading.Thread(target=print, args=('on',)); t.start(); t.join()"
            )
            assert await executes(second, "print('on')") == "on\n"


@pytest.mark.suite("hub-endpoints")
async def test_what_a_sandbox_leaves_behind_ends_with_its_episode_and_all_of_it_with_the_endpoint(
    start_hub: Any, tools: Any
) -> None:
    def lasting() -> list[int]:
        return [pid for pid, line in tools.processes_below(os.getpid()).items() if line.startswith("sleep 100123")]

    def boxes() -> list[int]:
        return [pid for pid, line in tools.processes_below(os.getpid()).items() if "ludus.sandbox.inside" in line]

    hub = await start_hub()
    background = CODER.replace(
        'result = await self.sandbox.run(["python3", "-c", code])',
        "self.kept = await self.sandbox.spawn(['sh', '-c', 'setsid sleep 100123 & sleep 100123'])\n"
        "        result = await self.sandbox.run(['true'])",
    )
    await hub.publish("coder", source=background, cls="Coder")
    async with connect(hub.address("coder")) as client:
        episode = await client.environment("coder").start(index=0)
        await episode.call("execute", code="")
        await wait_until(lambda: len(lasting()) == 2)
        await episode.close()
        await wait_until(lambda: not lasting())
        second = await client.environment("coder").start(index=0)
        await second.call("execute", code="")
        brokers = [pid for pid, line in tools.processes_below(os.getpid()).items() if "endpoints.broker" in line]
        assert len(brokers) == 1
        os.kill(brokers[0], signal.SIGKILL)
        await wait_until(lambda: not lasting())
        with pytest.raises((EpisodeFailed, EpisodeNotFound, InfrastructureFailed)):
            await second.call("execute", code="")
        third = await client.environment("coder").start(index=0)
        await third.call("execute", code="")
        await wait_until(lambda: len(lasting()) == 2)
        servers = tools.server_processes()
        os.kill(max(servers), signal.SIGKILL)
        with pytest.raises((EpisodeFailed, EpisodeNotFound)):
            await third.call("execute", code="")
        await wait_until(lambda: not lasting())
    await hub.endpoints.close()
    assert not boxes()


ATTACKS = """
import asyncio
from ludus.protocol.errors import LudusError
from ludus.sandbox import Limits, SandboxSettings
from ludus.sandbox.core.registry import find_provider

async def attempt(provider, title, settings):
    try:
        box = await provider.create(settings)
        print(title, "made", [one.name for one in await box.list(".")])
        await box.aclose()
    except (LudusError, ValueError) as error:
        print(title, type(error).__name__, error)

async def attack():
    provider = find_provider("bubblewrap")
    await provider.open()
    own = SandboxSettings(warm=0)
    for path in ("/etc/shadow", {data!r}, "/environment/../etc", "/sandboxes", "/root", "/", "/proc/1/root"):
        await attempt(provider, "shows", own.but(readonly=((path, "/shown"),)))
    await attempt(provider, "own", own.but(readonly=(("/environment/lib", "/shown"), ("/usr/lib", "/shown-too"))))
    await attempt(provider, "reaches", own.but(network=("127.0.0.1:{port}",)))
    await attempt(provider, "large", own.but(limits=Limits(memory=8 << 30)))
    await attempt(provider, "many", own.but(limits=Limits(processes=10_000)))
    await attempt(provider, "image", own.but(image="debian"))
    boxes = await asyncio.gather(*(provider.create(own) for _ in range(6)), return_exceptions=True)
    print("boxes", sum(not isinstance(one, BaseException) for one in boxes))
    await provider.aclose()

asyncio.run(attack())
"""

GARBAGE = """
import os, socket
for data in (os.urandom(1 << 16), b"GET /v1/sandboxes HTTP/1.1\\r\\n" + b"X: " + b"a" * (1 << 20), b"\\0" * 1000):
    for _ in range(20):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(10)
        one.connect("/sandboxes/socket")
        try:
            one.sendall(data)
            one.recv(100)
        except OSError:
            pass
        one.close()
print("sent")
"""


@pytest.mark.suite("hub-endpoints")
async def test_an_endpoint_cannot_get_more_from_its_broker_than_it_was_granted(start_hub: Any) -> None:
    hub = await start_hub(limits={"sandboxes": 4})
    await publish(hub)
    async with playing(hub) as episode:
        port = hub.url.rpartition(":")[2]
        said = (await runs(episode, ATTACKS.format(data=str(hub.data), port=port))).splitlines()
        shown = [line for line in said if line.startswith("shows")]
        assert len(shown) == 7
        assert [line for line in shown if "SandboxUnsupported" not in line or "does not show" not in line] == []
        rest = dict(line.split(" ", 1) for line in said if not line.startswith("shows"))
        assert rest["own"] == "made []"
        assert "must name each host" in rest["reaches"]
        assert "does not fit into ada/coder@1.0.0" in rest["large"]
        assert "does not fit into ada/coder@1.0.0" in rest["many"]
        assert "not the image 'debian'" in rest["image"]
        assert int(rest["boxes"]) < 4, "one is that of the episode"
        assert (await runs(episode, GARBAGE)).strip() == "sent"
        assert await executes(episode, "print('on')") == "on\n"


KEEPING = "kept = bytearray(160 << 20)\nprint(len(kept)); import time; time.sleep(8)"


@pytest.mark.suite("hub-endpoints")
@pytest.mark.parametrize("counted", [True, False], ids=["control-groups", "without"])
async def test_the_limits_of_an_endpoint_include_its_sandboxes(
    start_hub: Any, tools: Any, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    if not counted:
        monkeypatch.setattr(Groups, "find", lambda: None)
    elif Groups.find() is None:
        pytest.skip("this machine has no control groups")
    hub = await start_hub(limits={"memory": 448 << 20, "disk": 64 << 20})
    small = CODER.replace(
        "SandboxSettings()", "SandboxSettings(warm=0, limits=Limits(memory=176 << 20, disk=8 << 20, processes=16))"
    )
    await hub.publish("coder", source=small, cls="Coder")
    async with connect(hub.address("coder")) as client:
        coder = client.environment("coder")
        first, second = await coder.start(index=0), await coder.start(index=0)
        if not counted:
            with pytest.raises(InfrastructureFailed):
                await coder.start(index=0)
            await wait_until(lambda: "leave no room for another" in hub.server("coder").ring.tail(100))
        else:
            third = await coder.start(index=0)
            ends = await asyncio.gather(*(executes(one, KEEPING, ending=True) for one in (first, second, third)))
            assert sorted(ends).count("exit code 0") in (1, 2)
            assert any("memory" in end for end in ends)
        assert await runs(first, "print('on')") == "on\n"


@pytest.mark.suite("hub-endpoints")
async def test_what_needs_a_container_or_too_much_says_so_at_the_start(start_hub: Any) -> None:
    hub = await start_hub()
    for name, settings, words in (
        ("contained", "SandboxSettings(provider='docker', image='debian')", "endpoints cannot have containers"),
        ("greedy", "SandboxSettings(limits=Limits(memory=16 << 30))", "does not fit into ada/greedy@1.0.0"),
        ("online", "SandboxSettings(network=('pypi.org',))", "must name each host"),
    ):
        address = await hub.publish(name, source=CODER.replace("SandboxSettings()", settings), cls="Coder")
        async with aiohttp.ClientSession() as session, session.get(f"{address}/health") as answer:
            assert answer.status == 424
            assert words in (await answer.json())["error"]["message"]


@pytest.mark.suite("hub-endpoints")
async def test_a_sandbox_reaches_a_host_that_the_manifest_names_and_the_operator_grants(
    start_hub: Any, site: str
) -> None:
    hub = await start_hub(network=("ada/coder",))
    source = CODER.replace("SandboxSettings()", f"SandboxSettings(network=({site!r},))")
    await hub.publish("coder", source=source, cls="Coder", network=(site,))
    async with playing(hub) as episode:
        code = f"import urllib.request as r; print(r.urlopen('http://{site}/', timeout=20).read().decode())"
        assert await executes(episode, code) == "reached\n"
