from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from waiting import wait_until

from ludus.cli import main
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.server.serving.serve import ServeError, build
from ludus.server.serving.settings import ServerSettings

SECRET = "hunter2-but-longer"
PATIENCE = 20.0


class Served:
    """A `ludus serve` process."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, notes: Path) -> None:
        self.process = process
        self.url = url
        self._notes = notes

    @property
    def notes(self) -> list[str]:
        """What the environment wrote down."""
        return self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []

    async def noted(self, what: str) -> None:
        """Wait until the environment has written something down."""
        await wait_until(lambda: what in self.notes, PATIENCE)

    async def end(self) -> tuple[int, str]:
        """Exit code and standard error."""
        async with asyncio.timeout(PATIENCE):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


Serve = Callable[..., Awaitable[Served]]


async def launch(*arguments: str, talk: bool = False, **variables: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LUDUS_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ludus.cli", *arguments,
        stdin=asyncio.subprocess.PIPE if talk else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment | variables,
    )  # fmt: skip


async def output(*arguments: str, **variables: str) -> tuple[int, str, str]:
    process = await launch(*arguments, talk=False, **variables)
    async with asyncio.timeout(PATIENCE):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), " ".join(errors.decode().split())


@pytest.fixture
async def serve(yard_file: Path, tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts `ludus serve` processes and ends them."""
    processes: list[asyncio.subprocess.Process] = []

    async def begin(*options: str, **variables: str) -> Served:
        notes = tmp_path / f"notes-{len(processes)}"
        process = await launch(
            "serve", str(yard_file), "--port", "0", *options, talk=False, YARD_NOTES=str(notes), **variables
        )
        processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://\S+", line)
        assert found, line
        return Served(process, found[0], notes)

    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.communicate()


class Channel:
    """The channel by hand: requests out, replies in."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._count = 0

    async def ask(self, method: str, **params: Any) -> None:
        self._count += 1
        request = {"jsonrpc": "2.0", "id": self._count, "method": f"dev.ludus/{method}", "params": params}
        await self._socket.send_str(json.dumps(request))

    async def reply(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            frame = await self._socket.receive_json()
        assert isinstance(frame, dict) or len(frame) == 1
        return frame if isinstance(frame, dict) else frame[0]

    async def start(self, **params: Any) -> Any:
        await self.ask("episodes/start", environment="yard", split="train", key=f"start-{self._count}", **params)
        return (await self.reply())["result"]["episodes"][0]

    async def step(self, episode: str, tool: str, **arguments: Any) -> None:
        await self.ask("episodes/step", episode=episode, step=1, tool=tool, arguments=arguments, key=f"k{self._count}")


Open = Callable[..., Awaitable[Channel]]


@pytest.fixture
async def channel() -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def begin(url: str, token: str | None = None) -> Channel:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            opening = session.ws_connect(f"{url}/channel", protocols=("ludus.channel.v0.2",), headers=headers)
            return Channel(await stack.enter_async_context(opening))

        yield begin


# ── stopping ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("LIFE-10")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_steps_end_tears_episodes_down_and_exits_with_success(
    serve: Serve, channel: Open, number: signal.Signals
) -> None:
    served = await serve()
    wire = await channel(served.url)
    idle, busy = await wire.start(), await wire.start()
    await wire.step(busy["episode"], "wait", seconds=0.5)
    await served.noted("waiting")
    served.process.send_signal(number)
    reply = await wire.reply()
    assert reply["result"]["content"][0]["text"] == "waited"
    code, errors = await served.end()
    assert (code, served.notes) == (0, ["waiting", "waited", "torn down", "torn down"])
    assert "Traceback" not in errors
    assert idle["episode"] != busy["episode"]


async def test_a_step_that_outlasts_the_grace_does_not_hold_the_server(serve: Serve, channel: Open) -> None:
    served = await serve("--shutdown-seconds", "0.2")
    wire = await channel(served.url)
    episode = await wire.start()
    await wire.step(episode["episode"], "wait", seconds=50)
    await served.noted("waiting")
    served.process.terminate()
    code, _ = await served.end()
    assert (code, served.notes) == (0, ["waiting", "torn down"])  # and not "waited": the step was not waited for


async def test_a_second_signal_exits_at_once(serve: Serve, channel: Open) -> None:
    served = await serve()
    wire = await channel(served.url)
    episode = await wire.start()
    await wire.step(episode["episode"], "wait", seconds=50)
    await served.noted("waiting")
    served.process.terminate()
    await wire.ask("episodes/start", environment="yard", split="train", key="late")
    assert (await wire.reply())["error"]["code"] == 5030
    served.process.terminate()
    code, errors = await served.end()
    assert code == 128 + signal.SIGTERM
    assert "a second signal" in errors


@pytest.mark.suite("breadth")
async def test_a_third_signal_does_not_wait_for_what_the_second_one_holds() -> None:
    program = """
import logging, os, signal, types
from ludus.server.web import logs
from ludus.server.serving import serve

class Interrupted:
    def stop(self):
        os.kill(os.getpid(), signal.SIGTERM)

logs._active = (logging.NullHandler(), Interrupted())
stopping = types.SimpleNamespace(should_exit=True)
signal.signal(signal.SIGTERM, lambda number, frame: serve.LudusServer.handle_exit(stopping, number, frame))
os.kill(os.getpid(), signal.SIGTERM)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    try:
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_signal_ends_a_server_on_stdio_and_tears_its_episode_down(yard_file: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    arguments = ("serve", str(yard_file), "--stdio", "--environment", "yard")
    process = await launch(*arguments, talk=True, YARD_NOTES=str(notes))
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode())
    process.stdin.write(b"\n")
    async with asyncio.timeout(PATIENCE):
        assert "result" in json.loads(await process.stdout.readline())
        process.terminate()
        assert await process.wait() == 0
    assert notes.read_text() == "torn down\n"


# ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("breadth")
@pytest.mark.requirement("CRED-7")
async def test_other_addresses_are_refused_without_tokens_with_how_to_make_one(yard_file: Path) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        code, _, errors = await output("serve", str(yard_file), "--host", host)
        assert code != 0
        assert f"refusing to listen on {host}" in errors
        assert "`ludus token create --name trainer --file tokens.json`" in errors


async def test_the_advice_works_and_the_token_opens_the_door(serve: Serve, channel: Open, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    code, token, advice = await output("token", "create", "--name", "trainer", "--file", str(file))
    assert code == 0
    assert "tasks:read, episodes:run, rewards:read without expiry" in advice
    served = await serve("--host", "0.0.0.0", "--token-file", str(file))
    wire = await channel(served.url, token.strip())
    assert (await wire.start())["prompt"]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await channel(served.url, token.strip()[:-1] + "x")
    assert refused.value.status == 401


def test_an_empty_token_file_is_no_tokens(tmp_path: Path) -> None:
    write_token_file(tmp_path / "t.json", TokenFile())
    with pytest.raises(ServeError, match="empty token file"):
        build([], ServerSettings(host="0.0.0.0", token_file=tmp_path / "t.json"), {})


def test_unusable_credentials_are_refused_at_startup(tmp_path: Path) -> None:
    for settings, variables, says in (
        (ServerSettings(token_file=tmp_path / "none.json"), {}, "no token file"),
        (ServerSettings(), {"LUDUS_TOKENS": "ludus_pasted"}, "LUDUS_TOKENS: Invalid JSON"),
        (ServerSettings(), {"LUDUS_CAPABILITY_KEY": "short"}, "LUDUS_CAPABILITY_KEY must hold"),
        (ServerSettings(capability_key_file=tmp_path / "none"), {}, "cannot read the capability key"),
        (ServerSettings(cors=True), {}, "--allow-origin"),
    ):
        with pytest.raises(ServeError, match=says) as refused:
            build([], settings, variables)
        assert "pasted" not in str(refused.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_a_full_disk_at_startup_is_one_clear_line(yard_file: Path) -> None:
    command = (sys.executable, "-m", "ludus.cli", "serve", str(yard_file), "--port", "0")
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230
        process = await asyncio.create_subprocess_exec(*command, stdout=full, stderr=asyncio.subprocess.PIPE)
    _, errors = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 3
    said = "cannot write to standard output: No space left on device. Free some space, or send the output elsewhere"
    assert errors.decode().splitlines() == [f"ludus: {said}"]


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("command", [("create", "--name", "x"), ("revoke", "trainer")])
def test_a_token_file_that_cannot_be_written_is_named(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.json"
    write_token_file(file, TokenFile(tokens=(new_token("trainer", ("tasks:read",))[1],)))
    before = file.read_text()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    monkeypatch.setattr(sys, "argv", ["ludus", "token", *command, "--file", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert capsys.readouterr().err.strip() == f"ludus: cannot write {file}: No space left on device"
    assert [file.read_text(), list(tmp_path.iterdir())] == [before, [file]]


async def test_a_taken_port_is_a_failure_with_a_reason(yard_file: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, errors = await output("serve", str(yard_file), "--port", str(taken.getsockname()[1]))
    assert code == 3
    assert "is in use" in errors
    assert "--port" in errors


async def test_several_environments_share_a_process(serve: Serve, yard_file: Path) -> None:
    served = await serve("guess_number")
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}/list_environments") as answer:
        assert {"guess_number", "yard"} <= set(await answer.json())


@pytest.mark.suite("breadth", first=4)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gues_number",), "did you mean 'guess_number'?"),
        (("wordle-easy",), "name 'wordle', which includes its variants."),
        (("nonsense",), "there are: "),
        (("no_such_module:Yard",), "no module 'no_such_module'"),
        (("ludus.server:Enviroment",), "did you mean 'Environment'?"),
        (("ludus.protocol:Task",), "is not an environment"),
        (("{folder}/yrad.py:Yard",), "did you mean {folder}/yard.py?"),
        (("{folder}/yard.py:Yrad",), "did you mean 'Yard'?"),
        (("{here}/empty.py",), "has 0 environments"),
        (("{here}/broken.py",), "broken.py, line 3"),
        (("{here}/broken.py", "--port", "99999"), "65535"),
        (("{folder}/yard.py", "--idle-seconds", "-1"), "--idle-seconds"),
        (("{folder}/yard.py", "--log-format", "xml"), "--log-format"),
        (("{folder}/yard.py", "--play-only"), "works only with --stdio"),
        ((), "environments"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(
    yard_file: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken.py").write_text("from ludus.server import Environment\n\n1 / 0\n")
    (tmp_path / "empty.py").touch()
    places = {"folder": str(yard_file.parent), "here": str(tmp_path)}
    monkeypatch.setattr(sys, "argv", ["ludus", "serve", *(argument.format(**places) for argument in arguments)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in (0, 70)
    shown = re.sub(r"[│\s]+", " ", capsys.readouterr().err)
    assert says.format(**places).lower() in shown.lower()


# ── the log ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("CRED-14")
@pytest.mark.parametrize("style", ["console", "json"])
async def test_no_credential_or_secret_is_in_the_log_and_the_incident_is(
    serve: Serve, channel: Open, tmp_path: Path, style: str
) -> None:
    token, record = new_token("trainer", ("episodes:run", "rewards:read"))
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=(record,)))
    options = ("--access-log", "--log-level", "DEBUG", "--log-format", style)
    served = await serve("--token-file", str(tmp_path / "tokens.json"), *options)
    wire = await channel(served.url, token)
    episode = await wire.start(secrets={"api_key": SECRET})
    play = episode["play"]["path"]
    wrong = "ludus_" + "w" * 43
    async with aiohttp.ClientSession() as session:
        for path in (
            play,
            play + "?x=" + token,
            play[:-8] + "xx/mcp",
            f"/mcp?token={token}",
            f"/{token}",
            "/yard/tools",
        ):
            for headers in ({"Authorization": f"Bearer {wrong}"}, {"X-API-Key": token, "X-Secrets": SECRET}):
                async with session.post(served.url + path, data=b"{" + SECRET.encode(), headers=headers) as answer:
                    await answer.read()
    await wire.step(episode["episode"], "stumble")
    error = (await wire.reply())["error"]
    served.process.terminate()
    code, log = await served.end()
    capability = play.split("/")[2]
    assert code == 0
    assert error["code"] == 5001
    assert error["data"]["incident"] in log
    assert "RuntimeError: cannot log in with ***" in log
    assert "WEBSOCKET /channel 101 " in log
    assert SECRET not in json.dumps(error)
    for hidden in (token, wrong, capability, capability[:40], SECRET, token[6:]):
        assert hidden not in log
    assert "/play/{capability}/mcp" in log
    if style == "json":
        lines = [json.loads(line) for line in log.splitlines()]
        failure = next(line for line in lines if line.get("incident") == error["data"]["incident"])
        assert failure["level"] == "error"
        assert failure["episode"] == episode["episode"]
        assert "Traceback" in failure["exception"]


async def test_spans_reach_the_collector_and_name_routes_not_paths(serve: Serve, channel: Open) -> None:
    received: list[bytes] = []

    async def collect(request: web.Request) -> web.Response:
        received.append(gzip.decompress(body) if (body := await request.read())[:2] == b"\x1f\x8b" else body)
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", collect)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served = await serve(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{runner.addresses[0][1]}")
    wire = await channel(served.url)
    play = (await wire.start())["play"]["path"]
    async with aiohttp.ClientSession() as session, session.post(served.url + play, data=b"{}") as answer:
        await answer.read()
    served.process.terminate()
    await served.end()
    await runner.cleanup()
    spans = b"".join(received)
    assert b"POST /play/{capability}/mcp" in spans
    assert b"WEBSOCKET /channel" in spans
    assert play.split("/")[2].encode() not in spans


async def test_a_refused_upgrade_is_answered_and_is_no_error_in_the_log(serve: Serve) -> None:
    served = await serve()
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(served.url + "/channel")
    assert refused.value.status == 400
    served.process.send_signal(signal.SIGTERM)
    code, errors = await served.end()
    assert (code, "ERROR" in errors) == (0, False)
