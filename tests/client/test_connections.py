"""What becomes of requests when connections, servers, tokens and callers go."""

from __future__ import annotations

import asyncio
import gc
import pickle
from pathlib import Path
from typing import Any

import pytest
from cutting import CuttingProxy
from free_ports import free_port
from loop_clock import advance
from waiting import wait_until
from worlds import Counting, Playground

from ludus.client import Client, connect
from ludus.protocol import EpisodeLimits, Task
from ludus.protocol.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    EpisodeEnded,
    PayloadTooLarge,
    SplitNotFound,
    TransportError,
    Unauthenticated,
)
from ludus.server import Environment, ServerLimits, tool
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.server.transports import channel as server_side


class Gate(Environment[Task]):
    """A tool that waits."""

    splits = {"train": [Task(id="t")]}
    entered: asyncio.Event
    opened: asyncio.Event
    runs: int

    def prompt(self) -> str:
        return "Wait."

    @tool
    async def wait(self) -> str:
        """Wait until the gate opens."""
        Gate.runs += 1
        self.entered.set()
        await self.opened.wait()
        return f"run {Gate.runs}"


@pytest.fixture
def gate() -> type[Gate]:
    Gate.entered, Gate.opened, Gate.runs = asyncio.Event(), asyncio.Event(), 0
    return Gate


async def test_a_running_step_is_answered_over_the_next_connection(serve: Any, wire: Any, gate: type[Gate]) -> None:
    server = await serve(gate)
    async with CuttingProxy(server.url).running() as proxy, connect(proxy.url, wire=wire) as client:
        async with client.environment("gate").episode() as episode:
            call = asyncio.create_task(episode.call("wait"))
            await gate.entered.wait()
            proxy.cut()
            gate.opened.set()
            assert (await call).content[0].text == "run 1"  # type: ignore[union-attr]
        assert gate.runs == 1
        assert proxy.connections >= 2


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_call_longer_than_the_time_to_reconnect_is_answered_although_its_connections_break(
    serve: Any, wire: Any, gate: type[Gate]
) -> None:
    server = await serve(gate)
    async with (
        CuttingProxy(server.url).running() as proxy,
        connect(proxy.url, wire=wire, reconnect_seconds=0.5) as client,
        client.environment("gate").episode() as episode,
    ):
        call = asyncio.create_task(episode.call("wait"))
        await gate.entered.wait()
        for _ in range(2):
            advance(0.6)  # longer than the client tries to reconnect
            proxy.connected.clear()
            proxy.cut()
            await proxy.connected.wait()
        gate.opened.set()
        assert (await call).content[0].text == "run 1"  # type: ignore[union-attr]
        assert gate.runs == 1


async def test_a_missing_server_is_reported_at_once(wire: Any) -> None:
    async with connect(f"http://127.0.0.1:{free_port()}", wire=wire, reconnect_seconds=60) as client:
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionFailed, match="is the server running"):
                await client.environments()


async def test_a_server_that_stays_away_is_given_up_after_some_time_and_found_again(serve: Any, wire: Any) -> None:
    server = await serve(Playground)
    async with (
        CuttingProxy(server.url).running() as proxy,
        connect(proxy.url, wire=wire, reconnect_seconds=0.3) as client,
    ):
        assert await client.environments()
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(ConnectionFailed):
            await client.environments()
        proxy.refusing = False
        assert await client.environments()


async def test_a_deadline_is_kept_and_the_episode_goes_on_afterwards(serve: Any, wire: Any, gate: type[Gate]) -> None:
    server = await serve(gate)
    async with connect(server.url, wire=wire, timeout=0.2) as hasty, connect(server.url, wire=wire) as patient:
        async with patient.environment("gate").episode() as theirs:
            assert not theirs.ended
        async with hasty.environment("gate").episode() as episode:
            with pytest.raises(DeadlineExceeded, match="calling a tool: no answer in time"):
                await episode.call("wait")
            gate.opened.set()
            again = await episode.call("wait")
        assert (again.step, gate.runs) == (2, 2)


async def test_closing_the_client_answers_those_who_wait(serve: Any, wire: Any, gate: type[Gate]) -> None:
    server = await serve(gate)
    client = connect(server.url, wire=wire)
    episode = await client.environment("gate").start()
    call = asyncio.create_task(episode.call("wait"))
    await gate.entered.wait()
    await client.close()
    await client.close()
    with pytest.raises((TransportError, EpisodeEnded)):
        await call
    with pytest.raises(ConnectionFailed):
        await client.environments()


async def test_a_closed_client_leaves_no_task_behind(serve: Any, wire: Any) -> None:
    server = await serve(Playground)
    before = asyncio.all_tasks()
    async with connect(server.url, wire=wire) as client:
        async with client.environment("playground").group(3):
            pass
        await client.environment("playground").start()
    ours = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not {name for name in ours if name.startswith("ludus-")}


@pytest.mark.suite("breadth", first=1)
async def test_idle_episodes_live_while_their_user_thinks(serve: Any, wire: Any) -> None:
    server = await serve(Playground, limits=ServerLimits(idle_seconds=1.2, grace_seconds=0.2))
    async with connect(server.url, wire=wire) as client:
        environment = client.environment("playground")
        async with environment.group(3) as group, environment.episode(limits=EpisodeLimits(idle_seconds=0.8)) as short:
            episodes = [server.app.context.host.store.find(one.id) for one in (*group, short)]
            await wait_until(lambda: all(one.used > one.began + 2.5 for one in episodes))  # several idle limits
            results = await asyncio.gather(*(episode.call("add") for episode in (*group, short)))
    assert [result.step for result in results] == [1, 1, 1, 1]


async def use_without_closing(url: str) -> Any:
    client = connect(url, wire="mcp")
    await client.environment("playground").start()
    return client._session.wire


async def leak(url: str) -> Any:
    """Use a client and forget it, with an open episode. Returns its wire."""
    wire = await use_without_closing(url)
    gc.collect()
    return wire


async def test_a_client_that_is_never_closed_is_reported(serve: Any) -> None:
    server = await serve(Playground)
    with pytest.warns(ResourceWarning, match="never closed"):
        wire = await leak(server.url)
    await wire.close()


async def test_errors_survive_pickling(serve: Any, wire: Any) -> None:
    server = await serve(Playground)
    async with connect(server.url, wire=wire) as client:
        with pytest.raises(SplitNotFound) as raised:
            await client.environment("playground").task("nope", index=0)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert type(copy) is SplitNotFound
    assert (str(copy), copy.message, copy.data, copy.code) == (
        str(raised.value),
        raised.value.message,
        raised.value.data,
        raised.value.code,
    )


async def test_a_request_over_the_limit_is_refused_and_the_others_are_not(serve: Any, wire: Any) -> None:
    server = await serve(Playground, limits=ServerLimits(body_bytes=20_000, grace_seconds=0.2))
    async with connect(server.url, wire=wire) as client, client.environment("playground").episode() as episode:
        for text in ("x" * 30_000, "y" * 90_000):
            with pytest.raises(PayloadTooLarge):
                await episode.call("say", text=text)
        assert (await episode.call("say", text="z" * 10_000)).step == 1


async def test_many_requests_fit_under_a_small_frame_limit(serve: Any) -> None:
    server = await serve(Playground, limits=ServerLimits(body_bytes=4_000, grace_seconds=0.2))
    async with connect(server.url) as client, client.environment("playground").episode() as episode:
        results = await asyncio.gather(*(episode.call("say", text="x" * 1000) for _ in range(50)))
    assert [result.step for result in results] == list(range(1, 51))


@pytest.mark.requirement("CHAN-21")
async def test_a_token_revoked_while_the_channel_lives_is_refused(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_side, "RECHECK_SECONDS", 0.05)
    token, record = new_token("trainer", ["tasks:read"])
    file = tmp_path / "tokens.json"
    write_token_file(file, TokenFile(tokens=(record,)))
    server = await serve(Playground, token_file=file)
    async with connect(server.url, token=token) as client:
        assert await client.environments()
        other = new_token("other", ["tasks:read"])[1]
        write_token_file(file, TokenFile(tokens=(other,)))
        with pytest.raises(Unauthenticated):
            await ask_again_and_again(client)


async def ask_again_and_again(client: Client) -> None:
    """Ask until it fails: a server looks at its token file once a second."""

    async def ask() -> bool:
        await client.environments()
        return False

    await wait_until(ask)


async def test_two_clients_do_not_share_steps(serve: Any) -> None:
    server = await serve(Counting)
    async with connect(server.url) as one, connect(server.url) as two:
        async with one.environment("counting").episode() as first, two.environment("counting").episode() as second:
            marks = [first.id, second.id] * 20
            await asyncio.gather(
                *(
                    (first if mark == first.id else second).call("tick", mark=f"{mark}-{number}")
                    for number, mark in enumerate(marks)
                )
            )
    assert all(Counting.runs[f"{mark}-{number}"] == 1 for number, mark in enumerate(marks))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "", "http://"])
def test_an_address_that_is_none_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ValueError, match="http://localhost:8000"):
        connect(url)


def test_an_unknown_wire_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'channel', 'mcp', 'ors'"):
        connect("http://localhost:1", wire="carrier-pigeon")  # type: ignore[arg-type]
