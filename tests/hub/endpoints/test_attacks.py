"""Code of a package that breaks, or attacks the hub and its neighbors: typed errors, and no harm."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from ludus.client import Episode, connect, text_of
from ludus.protocol.errors import EpisodeFailed, EpisodeNotFound, LudusError

pytestmark = [pytest.mark.timeout(120)]

CODE = {
    "fills its disk": """
import os
written = 0
try:
    for number in range(10_000):
        with open(f"/tmp/{number}", "wb") as file:
            written += file.write(bytes(1 << 20))
except OSError as error:
    print("refused", error.errno, written < 64 << 20)
""",
    "forks without end": """
import os, time
children = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        children += 1
except OSError as error:
    print("refused", error.errno, children < 64)
""",
    "writes a large file": """
try:
    with open("/tmp/large", "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39); file.write(b"x")
except OSError as error:
    print("refused", error.errno, True)
""",
}


@asynccontextmanager
async def playing(hub: Any, wire: Any = "channel", package: str = "counter") -> AsyncIterator[Episode]:
    """An episode of the counter, whose server may be gone at the end."""
    async with connect(hub.address(package), wire=wire) as client:
        episode = await client.environment("counter").start(index=0)
        yield episode


async def runs(episode: Episode, code: str) -> str:
    """Run code in the process of an episode, and return what it printed."""
    return text_of((await episode.call("run", code=code)).content)


async def assert_plays(hub: Any) -> None:
    """Check that the endpoint runs new episodes."""
    async with playing(hub) as episode:
        assert text_of((await episode.call("add", number=1)).content).startswith("1")


@pytest.mark.suite("hub-endpoints")
@pytest.mark.parametrize("what", CODE)
async def test_a_limit_stops_code_that(start_hub: Any, tools: Any, what: str) -> None:
    hub = await start_hub(limits={"disk": 48 << 20, "processes": 48, "file_size": 16 << 20})
    await hub.publish()
    async with playing(hub) as episode:
        said = await runs(episode, CODE[what])
        assert said.startswith("refused")
        assert "True" in said
    if what == "forks without end":
        for pid in tools.server_processes():  # a process has taken every place, unless the hub has ended it already
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    await assert_plays(hub)


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_process_that_ends_during_an_episode_fails_it_with_the_error_of_the_transport(
    hub: Any, wire: Any
) -> None:
    async with playing(hub, wire) as episode:
        with pytest.raises((EpisodeFailed, EpisodeNotFound)):
            await runs(episode, "import os; os._exit(3)")
    await assert_plays(hub)


@pytest.mark.suite("hub-endpoints")
async def test_kill_9_of_a_process_fails_its_episodes_and_the_next_one_plays(hub: Any, tools: Any) -> None:
    async with playing(hub) as episode:
        (pid,) = tools.server_processes()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises((EpisodeFailed, EpisodeNotFound)):
            await episode.call("add", number=1)
    await assert_plays(hub)
    assert tools.server_processes() != [pid]


@pytest.mark.suite("hub-endpoints")
async def test_a_process_that_does_not_answer_is_killed_and_replaced(start_hub: Any) -> None:
    hub = await start_hub(unresponsive_seconds=1.0)
    await hub.publish()
    async with playing(hub) as episode:
        with pytest.raises((EpisodeFailed, EpisodeNotFound)):
            await episode.call("block", code="import time; time.sleep(1000)")
    await assert_plays(hub)


@pytest.mark.suite("hub-endpoints")
async def test_a_process_that_takes_too_much_memory_is_ended(start_hub: Any) -> None:
    hub = await start_hub(limits={"memory": 256 << 20})
    await hub.publish()
    async with playing(hub) as episode:
        with pytest.raises((EpisodeFailed, EpisodeNotFound)):
            await runs(episode, "found = []\nwhile True: found.append(bytearray(1 << 22))")
    await assert_plays(hub)


async def test_code_sees_nothing_of_the_hub_and_only_the_secrets_granted_by_name(
    start_hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_OWN_SECRET", "of-the-hub")
    given = {"ada/counter": {"API_KEY": "granted", "OTHER_KEY": "not-wanted"}}
    hub = await start_hub(secrets=given)
    await hub.publish(secrets=("API_KEY", "MISSING_KEY"))
    async with playing(hub) as episode:
        said = await runs(
            episode,
            f"""
import os
from pathlib import Path
print(sorted(name for name in os.environ if "KEY" in name or "SECRET" in name or "LUDUS" in name))
print(os.environ["API_KEY"], os.path.exists({str(hub.data)!r}), os.getuid() not in (0, {os.getuid() or -1}))
print([pid for pid in os.listdir("/proc") if pid.isdigit() and b"pytest" in Path("/proc", pid, "cmdline").read_bytes()])
for place in ("/environment/lib", "/packages/0", "/usr", "/etc"):
    try: Path(place, "written").write_text(""); print("wrote to", place)
    except OSError: pass
for line in Path("/proc/self/mountinfo").read_text().splitlines():
    if {str(hub.data)!r} in line: print("mounted", line.split()[4])
""",
        )
    lines = said.splitlines()
    assert lines[0] == "['API_KEY']"
    assert lines[1] == "granted False True"
    assert lines[2] == "[]"
    assert [line for line in lines[3:] if line.startswith("wrote")] == []
    assert all(line.endswith("/environment") for line in lines[3:] if line.startswith("mounted"))


async def test_code_cannot_reach_the_hub_or_a_neighbor(hub: Any) -> None:
    await hub.publish("neighbor")
    port = int(hub.url.rpartition(":")[2])
    async with playing(hub, package="neighbor") as other:
        theirs = int(await runs(other, "import ludus.server.workers.child; " + LISTENING))
        async with playing(hub) as episode:
            own = int(await runs(episode, LISTENING))
            tried = f"""
import socket
for port in {sorted({port, theirs} - {own})}:
    for host in ("127.0.0.1", "::1"):
        try: socket.create_connection((host, port), 2).close(); print("reached", host, port)
        except OSError: pass
for line in open("/proc/net/tcp").readlines()[1:]:
    if line.split()[3] == "0A": print("listens", int(line.split()[1].rpartition(":")[2], 16))
print("done")
"""
            said = await runs(episode, tried)
    assert said.split() == ["listens", str(own), "done"]


LISTENING = """
for line in open("/proc/net/tcp").readlines()[1:]:
    if line.split()[3] == "0A": print(int(line.split()[1].rpartition(":")[2], 16))
"""


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("granted", [True, False])
async def test_a_wish_for_a_network_is_granted_by_the_operator_alone(start_hub: Any, site: str, granted: bool) -> None:
    hub = await start_hub(network=("ada/counter",) if granted else ())
    await hub.publish(network=(site,))
    async with playing(hub) as episode:
        said = await runs(
            episode,
            f"""
import urllib.request
try: print(urllib.request.urlopen("http://{site}/", timeout=5).read().decode())
except OSError as error: print("refused")
""",
        )
    assert said.strip() == ("reached" if granted else "refused")


async def test_the_credentials_of_clients_never_reach_the_code(hub: Any) -> None:
    seen = """
import gc
from ludus.server.workers.child import FromGateway
import ludus.server.workers.child as child
print("s3cret" in "".join(repr(one) for one in gc.get_objects() if isinstance(one, (bytes, list)) and len(one) < 100
      and type(one) is bytes))
"""
    headers = {"Authorization": "Bearer t0ken-s3cret", "X-API-Key": "k3y-s3cret", "Cookie": "session=c00kie-s3cret"}
    async with aiohttp.ClientSession(headers=headers) as session, playing(hub) as episode:
        async with session.get(hub.address() + "/list_environments") as answered:
            assert answered.status == 200
        body = {"env_name": "counter", "split": "train", "index": 0}
        async with session.post(hub.address() + "/create", json=body, headers={"X-Session-ID": "one"}) as answered:
            assert answered.status == 200
        assert (await runs(episode, seen)).strip() == "False"


async def test_a_package_that_does_not_start_answers_with_the_end_of_its_log_and_is_not_started_again(
    start_hub: Any, tools: Any
) -> None:
    hub = await start_hub(retry_seconds=60.0)
    source = 'import sys\nfor n in range(500): print("line", n, file=sys.stderr)\n'
    source += 'print("about to break", file=sys.stderr)\nraise RuntimeError("no such luck")\n'
    await hub.publish("broken", source=source + tools.counter.format(version="1.0.0"))
    async with aiohttp.ClientSession() as session:
        messages = []
        for _ in range(2):
            async with session.get(hub.address("broken") + "/health") as answer:
                assert answer.status == 424
                assert int(answer.headers["retry-after"]) > 10
                messages.append((await answer.json())["error"]["message"])
        assert "ada/broken@1.0.0 does not run" in messages[0]
        assert "no such luck" in messages[0]
        assert "about to break" in messages[0]
        assert messages[0] == messages[1]
        assert hub.server("broken").ring.tail(100).count("about to break") == 1
    assert not tools.server_processes()


@pytest.mark.suite("hub-endpoints")
async def test_a_process_that_dies_again_and_again_is_given_up(start_hub: Any) -> None:
    hub = await start_hub(retry_seconds=60.0, crashes=3)
    await hub.publish(source=DYING.replace("Dying", "Counter"))
    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(60):
            while True:
                body = {"env_name": "counter", "split": "train", "index": 0}
                async with session.post(
                    hub.address() + "/create", json=body, headers={"X-Session-ID": "one"}
                ) as answer:
                    if answer.status == 424:
                        message = (await answer.json())["error"]["message"]
                        break
    assert "3 times in turn" in message
    assert "dying now" in message


DYING = '''
import os, sys
from ludus.server import Environment, Result, Task, tool

class Dying(Environment[Task]):
    """Dies when an episode starts."""
    version = "1.0.0"
    splits = {"train": [Task(id="only")]}
    def setup(self):
        """Die."""
        print("dying now", file=sys.stderr, flush=True)
        os._exit(5)
    def prompt(self):
        """Say what to do."""
        return "Wait."
    @tool
    def add(self, number: int) -> str:
        """Add a number."""
        return "0"
'''


@pytest.mark.suite("hub-endpoints")
async def test_a_process_that_answers_nonsense_is_a_failed_start(start_hub: Any, tools: Any) -> None:
    hub = await start_hub()
    await hub.publish(source=NONSENSE + tools.counter.format(version="1.0.0"))
    async with aiohttp.ClientSession() as session:
        async with session.get(hub.address() + "/health") as answer:
            assert answer.status == 424
            assert "nonsense" in (await answer.json())["error"]["message"]
    async with connect(hub.address()) as client:
        with pytest.raises(LudusError, match="nonsense"):
            await client.environment("counter").start(index=0)


NONSENSE = """
import os
for number in range(3, 20):
    try: os.write(number, b"[]\\n")
    except OSError: pass
"""
