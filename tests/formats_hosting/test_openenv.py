"""OpenEnv environments, from code and from running servers, against openenv's own client and server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from peer_clients import peer_variables, python_of

from ludus.protocol.errors import AuthoringError, EpisodeFailed, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.server import EpisodeLimits
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = [
    pytest.mark.suite("formats"),
    pytest.mark.timeout(300),
]  # importing the peer takes a minute on a busy machine

PEERS = Path(__file__).parent / "peers"
EXAMPLES = Path(__file__).parents[2] / "examples" / "formats" / "openenv"
WORLD = PEERS / "openenv_world.py"
EPISODES = 36
"""Recorded episodes of each of three environments."""
SAMPLE = 6
"""Those of them that every `make test` plays."""


@pytest.fixture(scope="module")
def golden() -> Iterator[dict[str, Any]]:
    """The peer's own servers, and what its own client recorded from them."""
    command = [python_of("openenv"), str(PEERS / "openenv_golden.py"), str(EXAMPLES), str(EPISODES)]
    variables = {**peer_variables(), "FASTMCP_LOG_LEVEL": "CRITICAL"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the peer's server did not start"
        yield json.loads(line)
        process.kill()


def environment_of(target: str, **options: Any) -> Any:
    source = parse_source(f"openenv:{target}")
    assert source is not None
    return resolve(source.with_options({name: str(value) for name, value in options.items()}))[0]


@pytest.fixture
def hosted() -> Iterator[Any]:
    """Return environments of code in the peer's interpreter."""
    made: list[Any] = []

    def make(target: str, **options: Any) -> Any:
        made.append(environment_of(target, python=python_of("openenv"), **options))
        return made[-1]

    yield make
    for environment in made:
        environment.process.close()


TARGETS = {"orchard": f"{EXAMPLES}/orchard.py:Orchard", "parcels": f"{EXAMPLES}/parcels.py:app",
           "dice": f"{WORLD}:Dice"}  # fmt: skip


async def differences(environment: Any, recorded: list[dict[str, Any]]) -> list[str]:
    """Play the recorded actions and return what differs."""
    found: list[str] = []
    async with play(environment) as world:
        for number, episode in enumerate(recorded):
            reset = episode["reset"]
            split, index = reset.get("split", "train"), reset.get("index", reset.get("seed"))
            local = await world.start(split=split, index=index)
            if not local.prompt.endswith(shown(episode["first"])):
                found.append(f"{number}: first {local.prompt!r}, not {episode['first']}")
            for position, step in enumerate(episode["steps"]):
                action = step["action"]
                tool, arguments = (
                    (action["tool_name"], action["arguments"]) if "tool_name" in action else ("step", action)
                )
                made = await local.call(tool, **arguments)
                told = (made.text, made.reward, made.ended, made.result.metadata.get("metadata") or {})
                want = (shown(step["observation"]), as_reward(step["reward"]), step["done"],
                        step["observation"]["metadata"])  # fmt: skip
                if told != want:
                    found.append(f"{number}.{position}: {told}, not {want}")
            total = sum(as_reward(step["reward"]) or 0.0 for step in episode["steps"])
            if episode["steps"][-1]["done"] and local.reward != pytest.approx(total):
                found.append(f"{number}: {local.reward}, not {total}")
            if not local.ended:
                await local.close()
    return found


def shown(observation: dict[str, Any]) -> str:
    """Return what an agent sees of an observation of the peer's client."""
    if "tool_name" in observation:
        if observation["error"]:
            return f"The tool failed: {observation['error']['message']}"
        return "\n".join(block["text"] for block in observation["result"]["content"])
    return json.dumps({name: value for name, value in observation.items() if name != "metadata"})


def as_reward(value: Any) -> float | None:
    return None if value is None else float(value)


@pytest.mark.parametrize("name", list(TARGETS))
async def test_episodes_of_hosted_code_equal_those_of_the_peers_own_client_and_server(
    golden: dict[str, Any], hosted: Any, name: str
) -> None:
    assert await differences(hosted(TARGETS[name]), golden["episodes"][name][:SAMPLE]) == []


@pytest.mark.parametrize("name", list(TARGETS))
async def test_episodes_of_a_running_server_equal_those_of_the_peers_own_client(
    golden: dict[str, Any], name: str
) -> None:
    assert await differences(environment_of(golden["urls"][name]), golden["episodes"][name][:SAMPLE]) == []


@pytest.mark.suite("formats")
@pytest.mark.parametrize("name", list(TARGETS))
async def test_all_recorded_episodes_are_equal_on_both_ways(golden: dict[str, Any], hosted: Any, name: str) -> None:
    assert len(golden["episodes"][name]) == EPISODES
    assert await differences(hosted(TARGETS[name]), golden["episodes"][name]) == []
    assert await differences(environment_of(golden["urls"][name]), golden["episodes"][name]) == []


async def test_the_tool_has_the_schema_of_the_actions_and_the_tasks_are_the_environments_own(
    golden: dict[str, Any], hosted: Any
) -> None:
    for environment in (hosted(TARGETS["orchard"]), environment_of(golden["urls"]["orchard"])):
        (tool,) = environment.catalog_tools()
        assert tool.name == "step"
        assert list(tool.input_schema["properties"]) == ["direction"]
        assert tool.description == "Walk to a neighboring tree and pick its fruit."
        assert {one.name: one.count for one in environment.described.splits} == {"train": 7, "test": 3}
        assert set(environment.described.not_promised) >= {"seeds", "truncation"}
        assert not environment.seedable
    promised = hosted(TARGETS["orchard"], deterministic="true")
    assert promised.seedable
    assert promised.forkable
    assert "seeds" not in promised.described.not_promised


async def test_tools_of_an_mcp_environment_keep_their_names(golden: dict[str, Any]) -> None:
    environment = environment_of(golden["urls"]["parcels"])
    assert {tool.name for tool in environment.catalog_tools()} == {"look", "read_label", "deliver"}
    assert set(environment.described.not_promised) >= {"exactly-once", "isolation"}


async def test_faults_of_hosted_code_end_one_episode_unscored_and_no_other(hosted: Any) -> None:
    environment = hosted(f"{WORLD}:Faults", tool_errors="fail")
    assert "accepts no seed" in environment.described.not_promised["seeds"]
    async with play(environment) as world:
        other = await world.start(index=1)
        for what in ("raise", "exit"):
            episode = await world.start()
            with pytest.raises(EpisodeFailed) as failure:
                await episode.step(what=what)
            assert what == "exit" or "this step is broken" in str(failure.value.__cause__)
            await episode.refresh()
            assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)
        assert (await other.step(what="print")).text == '{"text": "step 1", "number": 0.0}'
        refused = await other.step(what="unknown")
        assert refused.error == "refused"
        assert "no such deed" in refused.text
        nan = await other.step(what="nan")
        assert (nan.text, nan.reward) == ('{"text": "nan", "number": null}', None)  # as the peer's server writes it
        ended = await other.step(what="end")
        assert (ended.ended, ended.reward, other.end_reason) == (True, 0.5, EndReason.COMPLETED)


async def test_an_action_over_which_the_environment_raises_is_answered_as_by_the_peers_own_server(
    golden: dict[str, Any], hosted: Any
) -> None:
    async with aiohttp.ClientSession() as http, http.ws_connect(golden["urls"]["faults"] + "/ws") as socket:
        answers = []
        for kind, data in (("reset", {}), ("step", {"what": "raise"}), ("step", {"what": "go"})):
            await socket.send_json({"type": kind, "data": data})
            answers.append(await socket.receive_json())
    assert [answer["type"] for answer in answers] == ["observation", "error", "observation"]
    for environment in (hosted(f"{WORLD}:Faults"), environment_of(golden["urls"]["faults"])):
        async with play(environment) as world:
            episode = await world.start()
            refused = await episode.step(what="raise")
            assert refused.error == "refused"
            assert answers[1]["data"]["message"] in refused.text
            assert json.loads((await episode.step(what="go")).text)["text"] == "step 2"
            assert (await episode.step(what="end")).ended
            assert (episode.reward, episode.end_reason) == (1.0, EndReason.COMPLETED)
    async with play(environment_of(golden["urls"]["faults"], tool_errors="fail")) as world:
        episode = await world.start()
        with pytest.raises(EpisodeFailed):
            await episode.step(what="raise")


@pytest.mark.parametrize(("errors", "fails"), [("show", False), ("fail", True)])
async def test_an_error_of_an_mcp_tool_is_shown_or_fails_the_episode(hosted: Any, errors: str, fails: bool) -> None:
    async with play(hosted(TARGETS["parcels"], tool_errors=errors)) as world:
        episode = await world.start()
        try:
            step = await episode.call("deliver", color="none", person="Ann")
        except EpisodeFailed:
            assert fails
        else:
            assert not fails
            assert "The tool failed" in step.text


async def test_an_action_that_makes_the_peers_server_end_the_session_does_not_leave_the_episode_unscored(
    golden: dict[str, Any],
) -> None:
    async with play(environment_of(golden["urls"]["faults"])) as world:
        episode = await world.start()
        await episode.step(what="go")
        step = await episode.step(what="unknown")
        assert (step.ended, episode.reward, episode.end_reason) == (True, 0.5, EndReason.COMPLETED)


async def test_a_step_that_hangs_reaches_its_limit(hosted: Any) -> None:
    environment = hosted(f"{WORLD}:Faults")
    environment.limits = EpisodeLimits(tool_seconds=0.3)
    async with play(environment) as world:
        other = await world.start(index=1)
        episode = await world.start()
        with pytest.raises(LudusError):
            await episode.step(what="hang")
        assert (await other.step(what="go")).reward == 0.5


async def test_metadata_is_for_the_trainer_unless_an_option_shows_it(hosted: Any) -> None:
    async with play(hosted(f"{WORLD}:Faults")) as world:
        episode = await world.start()
        step = await episode.step(what="go")
        assert "s3cret" not in episode.prompt + step.text
        assert step.result.metadata == {"metadata": {"secret": "s3cret"}}
    async with play(hosted(f"{WORLD}:Faults", metadata="true")) as world:
        episode = await world.start()
        assert "s3cret" in episode.prompt


async def test_options_reach_the_constructor_and_the_reset(hosted: Any) -> None:
    environment = hosted(f"{WORLD}:Dice", make='{"sides": 1}', action="Guess", reset='{"other": 1}')
    async with play(environment) as world:
        episode = await world.start(index=3)
        assert episode.remote.task.fields == {"reset_seed": 3}
        steps = [await episode.step(number=1) for _ in range(5)]
        assert [step.reward for step in steps] == [pytest.approx(1 / 3)] * 5
        assert episode.ended


async def test_an_episode_in_a_folder_with_a_manifest_and_in_threads_is_played(hosted: Any, tmp_path: Path) -> None:
    (tmp_path / "openenv.yaml").write_text("spec_version: 1\nname: orchard\napp: made.app:app\n")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "__init__.py").write_text("")
    (tmp_path / "made" / "orchard.py").write_text((EXAMPLES / "orchard.py").read_text())
    (tmp_path / "made" / "app.py").write_text(
        "from openenv.core.env_server.http_server import create_app\n"
        "from .orchard import Orchard, View, Walk\n"
        "app = create_app(Orchard, Walk, View, env_name='yard', max_concurrent_envs=4)\n"
    )
    environment = hosted(str(tmp_path), isolation="thread")
    assert environment.name == "yard"
    async with play(environment) as world:
        first, second = await world.start(), await world.start(index=1)
        assert (await first.step(direction="up")).reward == 0.0
        assert (await second.step(direction="up")).text == '{"rows": ["9@.", "...", "..9"], "steps_left": 5}'


@pytest.mark.parametrize(
    "manifest",
    [None, "name: orchard_env\naction: Walk\nobservation: View\n", "name: orchard_env\napp: server.app:app\n"],
    ids=["without a manifest", "without an app", "with an app that only works in the package"],
)
async def test_a_package_in_openenvs_own_layout_is_served_as_package_server_app(
    hosted: Any, tmp_path: Path, manifest: str | None
) -> None:
    folder = tmp_path / "orchard_env"
    (folder / "server").mkdir(parents=True)
    if manifest is not None:
        (folder / "openenv.yaml").write_text(manifest)
    for place in (folder, folder / "server"):
        (place / "__init__.py").write_text("")
    (folder / "orchard.py").write_text((EXAMPLES / "orchard.py").read_text())
    (folder / "server" / "app.py").write_text(
        "from openenv.core.env_server.http_server import create_app\n"
        "from ..orchard import Orchard, View, Walk\n"
        "app = create_app(Orchard, Walk, View, env_name='orchard_env')\n"
    )
    async with play(hosted(str(folder))) as world:
        episode = await world.start()
        assert (await episode.step(direction="up")).reward == 0.0


def test_a_manifest_that_is_broken_is_named(hosted: Any, tmp_path: Path) -> None:
    for text, message in (("app: 7\n", "`app: 7` is not of the form module:name"), ("app: [", "cannot be read")):
        (tmp_path / "openenv.yaml").write_text(text)
        with pytest.raises(AuthoringError, match=message):
            hosted(str(tmp_path))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("missing.py:Thing", {}, "there is no file 'missing.py'"),
        ("no_such_module_here:Thing", {}, "there is no module 'no_such_module_here'"),
        (f"{WORLD}", {}, "names no class; write openenv:path/to/file.py:MyEnvironment"),
        (f"{WORLD}:dice", {}, "has no 'dice'; did you mean 'Dice'?"),
        (f"{WORLD}:not_an_environment", {}, "is neither an OpenEnv Environment class nor an application"),
        (f"{WORLD}:Unfinished", {}, "is abstract; it lacks state, step"),
        (f"{WORLD}:Untyped", {}, "name the model with the option action=NAME"),
        (f"{WORLD}:Dice", {"action": "Nothing"}, "has no 'Nothing'"),
        (f"{WORLD}:Dice", {"make": '{"size": 1}'}, "unexpected keyword argument 'size'"),
        (f"{PEERS}", {}, "has neither an openenv.yaml with `app: module:name` nor server/app.py"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_with_the_reason(
    hosted: Any, target: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AuthoringError) as refusal:
        hosted(target, **options)
    assert message in refusal.value.message


def test_a_missing_package_and_a_wrong_option_are_refused_with_what_to_do() -> None:
    with pytest.raises(AuthoringError, match="-m pip install openenv"):
        environment_of(TARGETS["orchard"])
    with pytest.raises(AuthoringError, match="has no option 'detemin"):
        environment_of(TARGETS["orchard"], deteministic="true")
    with pytest.raises(AuthoringError, match="the option 'make' is for code that is run here"):
        environment_of("http://127.0.0.1:9", make="{}")
    with pytest.raises(AuthoringError, match="the option 'wait_seconds' is for running servers"):
        environment_of(TARGETS["orchard"], wait_seconds="1")
    with pytest.raises(AuthoringError, match="'NO_SUCH_VARIABLE' of token_variable is not set"):
        environment_of("http://127.0.0.1:9", token_variable="NO_SUCH_VARIABLE")
    with pytest.raises(AuthoringError, match=r"127\.0\.0\.1:9 cannot be reached: .* start the server"):
        environment_of("http://127.0.0.1:9")


class Scripted:
    """A server that speaks OpenEnv's protocol and counts what it gets; `mode` says how it fails."""

    def __init__(self) -> None:
        self.mode = ""
        self.connections = 0
        self.steps = 0
        self.url = ""

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/schema", self.schema)
        app.router.add_get("/metadata", self.metadata)
        app.router.add_get("/ws", self.socket)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def schema(self, request: web.Request) -> web.Response:
        action = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        return web.json_response({"action": action, "observation": {}, "state": {}})

    async def metadata(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "Scripted", "description": "A script."})

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        if self.mode == "full" and self.connections < 3:
            await socket.send_json({"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}})
            return socket
        async for message in socket:
            kind = json.loads(message.data)["type"]
            if kind == "close":
                break
            self.steps += kind == "step"
            if kind == "step" and self.mode == "cut":
                break
            if kind == "step" and self.mode == "silent":
                continue
            if kind == "step" and self.mode == "garbage":
                await socket.send_str("[]")
                continue
            await socket.send_json({"type": "observation", "data": {"observation": {"n": self.steps}, "reward": 1}})
        return socket


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[aiohttp.ClientWebSocketResponse]:
    """Every WebSocket to a `Scripted` that the test opened."""
    opened: list[aiohttp.ClientWebSocketResponse] = []
    connect = aiohttp.ClientSession.ws_connect

    async def recorded(http: aiohttp.ClientSession, url: str, **options: Any) -> aiohttp.ClientWebSocketResponse:
        socket: aiohttp.ClientWebSocketResponse = await connect(http, url, **options)
        if url.endswith("/ws"):
            opened.append(socket)
        return socket

    monkeypatch.setattr(aiohttp.ClientSession, "ws_connect", recorded)
    return opened


@pytest.mark.parametrize("mode", ["cut", "silent", "garbage"])
async def test_a_lost_reply_fails_the_episode_and_the_step_is_never_repeated(
    mode: str, sockets: list[aiohttp.ClientWebSocketResponse]
) -> None:
    server = Scripted()
    runner = await server.start()
    try:
        async with play(await asyncio.to_thread(environment_of, server.url, timeout_seconds="0.5")) as world:
            episode = await world.start()
            assert (await episode.step(word="one")).reward == 1
            server.mode = mode
            with pytest.raises(EpisodeFailed):
                await episode.step(word="two")
            await episode.refresh()
            assert episode.reward is None
            assert episode.end_reason in (EndReason.ENVIRONMENT_ERROR, EndReason.INFRASTRUCTURE_ERROR)
            assert (server.connections, server.steps) == (1, 2)
        # Closing only its session leaves a connection to the garbage collector, which warns or not by its order.
        assert [socket.closed for socket in sockets] == [True]
    finally:
        await runner.cleanup()


async def test_an_episode_waits_for_a_free_session_and_fails_unscored_if_there_is_none(
    sockets: list[aiohttp.ClientWebSocketResponse],
) -> None:
    server = Scripted()
    runner = await server.start()
    server.mode = "full"
    try:
        async with play(await asyncio.to_thread(environment_of, server.url)) as world:
            assert (await (await world.start()).step(word="one")).reward == 1
            assert server.connections == 3
        server.connections = -1000
        async with play(await asyncio.to_thread(environment_of, server.url, wait_seconds="0")) as world:
            with pytest.raises(LudusError):
                await world.start()
        assert [socket.closed for socket in sockets] == [True] * 4
    finally:
        await runner.cleanup()


async def test_a_server_that_is_none_of_openenv_is_refused() -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        with pytest.raises(AuthoringError, match="GET /schema returned 404, so this is no OpenEnv server"):
            await asyncio.to_thread(environment_of, f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
