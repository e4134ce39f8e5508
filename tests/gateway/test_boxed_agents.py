"""Agents in the sandbox of `ludus box`: what they reach, how they end, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from boxed_agents import LUDUS, boxes_of, failure_of, harness_of_mini, play_coding
from gateway_play import RecordingEngine, check_exact
from harness_workers import COMMON
from sandboxing import opened, remains
from saying import Saying
from scripted import call
from terminal import running_episodes
from waiting import wait_until

from ludus.client import connect
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.rendering import Renderer
from ludus.sandbox.core.stale import owner_of

suite = pytest.mark.suite("boxed-agents")
pytestmark = pytest.mark.timeout(180)
DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
Play = Callable[..., Awaitable[HarnessEpisode]]


@pytest.fixture(autouse=True)
async def _needs_bubblewrap() -> None:
    provider = await opened("bubblewrap-rlimits")
    await provider.aclose()


@pytest.fixture
async def play(serve: Any, renderer: Renderer, engine: RecordingEngine) -> AsyncIterator[Play]:
    """`played = await play(program, "--seconds", "3")`: an episode of `Saying` that a boxed program has played."""
    engine.script = lambda prompt, rng: "Done." if "said" in prompt else call("say", number=0)
    async with AsyncExitStack() as stack:
        server = await serve(Saying)
        client = await stack.enter_async_context(connect(server.url))

        async def played(program: str, *options: str, limits: Any = None, **settings: Any) -> HarnessEpisode:
            words = shlex.join([*options, "--", "python3", "-c", program])
            harness = make_harness(f"command {LUDUS} box {words}")
            stack.push_async_callback(harness.aclose)
            gateway = await stack.enter_async_context(Gateway(engine, renderer, limits=GatewayLimits(**(limits or {}))))
            episode = await client.environment("saying").start(split="train", index=0, seed=7)
            values: dict[str, Any] = {"episode_seconds": 60.0, **settings}
            one = HarnessEpisode(episode, gateway, harness, "episode", **values)
            await one.play()
            return one

        yield played
        assert await asyncio.to_thread(running_episodes, server.url) == 0
    assert boxes_of(os.getpid()) == []


# ── playing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def solve(prompt: str, rng: Any) -> str:
    number = int(re.findall(r"returns a \+ (\d+)", prompt)[-1])
    if "(exit code 0)" in prompt:
        return call("bash", command=f"echo {DONE}")
    return "I write it." + call("bash", command=f"echo 'def f(a): return a + {number}' > answer.py")


@pytest.mark.suite("boxed-agents")
async def test_mini_swe_agent_plays_in_a_sandbox_and_its_tokens_are_exact(tmp_path: Path, renderer: Renderer) -> None:
    await play_coding(harness_of_mini(), solve, tmp_path, renderer, range(2), 2)


@suite
@pytest.mark.timeout(1500)
async def test_mini_swe_agent_plays_64_episodes_in_sandboxes(tmp_path: Path, renderer: Renderer) -> None:
    await play_coding(harness_of_mini(), solve, tmp_path, renderer, range(64), 4)


LONG = (
    COMMON
    + """
messages = [{"role": "user", "content": task["prompt"]}]
for turn in range(TURNS):
    message = model(messages, [SAY])
    messages.append(message)
    for made in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": tool("warm", {})})
"""
)


async def play_long(play: Play, engine: RecordingEngine, turns: int) -> None:
    engine.script = lambda prompt, rng: call("warm")
    engine.context = 1_000_000
    played = await play(
        LONG.replace("TURNS", str(turns)), episode_seconds=1200.0, limits={"max_calls": turns + 1, "context": 1_000_000}
    )
    trajectory = played.trajectory()
    assert (trajectory.failure, len(played.session.calls), trajectory.value) == (None, turns, turns / 4)
    assert len(played.session.samples) == 1  # so the context is encoded once, and not again with each turn
    check_exact(played.session, engine)
    seconds = [call.began for call in played.session.calls]
    tenth = turns // 10
    first, last = seconds[tenth] - seconds[0], seconds[-1] - seconds[-1 - tenth]
    print(f"{turns} turns: {first / tenth * 1e3:.0f} ms per turn at first, {last / tenth * 1e3:.0f} ms at last")  # noqa: T201


async def test_an_episode_of_many_turns_is_one_sample(play: Play, engine: RecordingEngine) -> None:
    await play_long(play, engine, 40)


@suite
@pytest.mark.timeout(1500)
async def test_an_episode_of_600_turns_is_one_sample(play: Play, engine: RecordingEngine) -> None:
    await play_long(play, engine, 600)


# ── typed ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

ASK = COMMON + "model([{'role': 'user', 'content': 'x'}], [SAY])\n"


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://api.openai.com/v1/chat/completions", "api.openai.com:80"),
        ("https://api.openai.com/v1/chat/completions", "api.openai.com:443"),
        ("https://1.1.1.1/v1", "1.1.1.1:443"),
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254:80"),
        ("http://127.0.0.1:22/", "127.0.0.1:22"),
        ("http://localhost:9/", "localhost:9"),
    ],
)
async def test_a_call_to_another_destination_is_a_named_end_even_if_the_episode_was_won(
    url: str, target: str, play: Play
) -> None:
    asking = f"""
import urllib.request
urllib.request.getproxies = lambda: {{"http": "http://127.0.0.1:3128", "https": "http://127.0.0.1:3128"}}
urllib.request.proxy_bypass = lambda host: False
try:
    urllib.request.urlopen({url!r}, timeout=10)
except OSError:
    pass
tool("say", {{"number": 0}})
"""
    kind, error, message = failure_of(await play(ASK + asking))
    assert (kind, error) == ("policy", "HarnessNetworkRefused")
    assert message == f"the agent called {target}, which is neither the policy gateway nor the episode"


async def test_a_host_that_may_be_asked_in_vain_is_no_end(play: Play) -> None:
    asking = "\ntry:\n    urllib.request.urlopen('http://updates.example.org/')\nexcept OSError: pass\n"
    played = await play(ASK + asking + "tool('say', {'number': 0})\n", "--ignore", "*.example.org")
    assert (played.trajectory().failure, played.trajectory().value) == (None, 1.0)


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize(
    ("name", "program", "options"),
    [
        ("seconds", "import time; time.sleep(600)", ("--seconds", "1")),
        ("memory", "x = []\nwhile True: x.append(bytearray(b'x' * 2**20))", ("--memory", "64")),
        ("processes", "import time\nwhile True:\n    if not os.fork(): time.sleep(600)", ("--processes", "8")),
        ("seconds", "while True: print('x' * 4096)", ("--seconds", "2", "--output", "1")),
    ],
)
async def test_a_limit_of_the_sandbox_is_an_end_with_its_name(
    name: str, program: str, options: tuple[str, ...], play: Play
) -> None:
    kind, error, message = failure_of(await play(ASK + program, *options))
    assert (kind, error) == ("policy", "HarnessLimitReached")
    assert message == f"the agent was ended by its limit on {name} of its sandbox"


async def test_output_beyond_the_limit_is_dropped_and_is_no_end(play: Play) -> None:
    played = await play(ASK + "\nprint('x' * 2**21)\ntool('say', {'number': 0})\n", "--output", "1")
    assert (played.trajectory().failure, played.trajectory().value) == (None, 1.0)


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", "exit code 139"),
        ("raise SystemExit(120)", "exit code 1"),
        ("raise SystemExit(122)", "exit code 1"),
        ("print('the agent called api.openai.com:443', file=sys.stderr); raise SystemExit(121)", "exit code 1"),
    ],
)
async def test_a_crash_is_a_crash_and_an_agent_cannot_claim_another_end(
    program: str, code: str, play: Play, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: "Hm."  # with a call that has no output, the end would be the policy's
    kind, error, message = failure_of(await play(ASK + program))
    assert (kind, error) == ("policy", "HarnessFailed")
    assert f"ended with {code}: " in message


async def test_a_sandbox_that_cannot_be_made_is_a_failure_of_the_infrastructure(play: Play) -> None:
    kind, error, message = failure_of(await play("pass", "--provider", "bubble"))
    assert (kind, error) == ("infrastructure", "HarnessSandboxLost")
    assert message.startswith("the agent has no sandbox: there is no sandbox 'bubble'")


async def test_an_agent_that_repeats_its_request_loops(play: Play) -> None:
    again = COMMON + "while True: model([{'role': 'user', 'content': 'x'}], [SAY])\n"
    assert "the same conversation 4 times" in failure_of(await play(again, limits={"max_calls": 4}))[2]


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize(
    "program",
    [
        "os.close(0); os.close(1); os.close(2)",
        "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]",
        "import time\nif not os.fork():\n    os.setsid()\n    if not os.fork(): time.sleep(600)\n    os._exit(0)",
        "import signal\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept PermissionError: pass",
        'print(json.dumps({"id": task["id"], "error": None}))',
    ],
    ids=["closes-its-streams", "ignores-signals", "leaves-daemons", "kills-its-parent", "claims-an-end"],
)
async def test_an_agent_that_misbehaves_ends_as_it_would_otherwise(program: str, play: Play) -> None:
    played = await play(f"{ASK}{program}\ntool('say', {{'number': 0}})\n")
    assert (played.trajectory().failure, played.trajectory().value) == (None, 1.0)


# ── attacks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TRY = (
    ASK
    + """
import socket
from urllib.parse import urlsplit
relay, target = urlsplit(task["play_url"]), urlsplit("ORIGIN")
def ask(url, method="GET", data=None):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
"""
)
ATTACKS = {
    "another-episode": "found = ask('OTHER')",
    "control-plane": "found = ask('ORIGIN/mcp', 'POST', b'{}')",
    "control-plane-through-the-relay": "found = ask(f'http://{relay.netloc}/mcp', 'POST', b'{}')",
    "control-plane-below-the-secret": "found = ask(task['play_url'] + '/../../mcp', 'POST', b'{}')",
    "rewards": "found = ask(task['play_url'] + '/rewards')",
    "channel": "found = ask(task['play_url'].replace('/play', '/channel'))",
    "gateway-without-its-key": "found = ask(task['openai_base_url'].replace('/model', '/../model') + '/models')",
    "gateway-of-another-episode": "found = ask('GATEWAY/v1/models')",
    "encoded-path": "found = ask(task['openai_base_url'] + '/%2e%2e/%2e%2e/models')",
    "query": "found = ask(task['play_url'] + '?x=/mcp')",
    "tunnel": (
        "s = socket.create_connection(('127.0.0.1', 3128)); "
        "s.sendall(f'CONNECT {target.netloc} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'.encode()); "
        "found = int(s.recv(99).split()[1])"
    ),
}
SILENT = {
    "names": "found = 0\ntry: found = bool(socket.getaddrinfo('example.org', 80))\nexcept OSError: pass",
    "machine": (
        "found = 0\ntry: found = bool(socket.create_connection((target.hostname, target.port)))\nexcept OSError: pass"
    ),
    "files": "found = sum(os.path.exists(p) for p in ('/etc/shadow', '/etc/passwd-', 'SECRET'))",
    "variables": "found = sum(n in os.environ for n in ('LUDUS_TOKEN', 'AWS_SECRET_ACCESS_KEY'))",
    "processes": (
        "files = (f'/proc/{p}/cmdline' for p in os.listdir('/proc') if p.isdigit())\n"
        "found = sum(b'\\0box\\0' in open(file, 'rb').read() for file in files)"
    ),
}


@pytest.fixture
async def attack(
    serve: Any, renderer: Renderer, engine: RecordingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[str], Awaitable[HarnessEpisode]]]:
    """Plays an episode with an attack, next to another episode. The server has no tokens."""
    monkeypatch.setenv("LUDUS_TOKEN", "secret")
    engine.script = lambda prompt, rng: "Hm."  # the program attacks, and not the policy
    secret = tmp_path / "secret"
    secret.write_text("the trainer's")
    server = await serve(Saying)
    async with connect(server.url) as client, Gateway(engine, renderer) as gateway:
        other = await client.environment("saying").start(split="train", index=1, seed=7)
        session = gateway.open("other", seed=1)

        async def attacked(program: str) -> HarnessEpisode:
            known = {
                "ORIGIN": server.url, "OTHER": other.play_url or "", "SECRET": str(secret),
                "GATEWAY": gateway.base_url(session),
            }  # fmt: skip
            for name, value in known.items():
                program = program.replace(name, value)
            harness = make_harness(f"command {LUDUS} box -- {shlex.join(['python3', '-c', program])}")
            episode = await client.environment("saying").start(split="train", index=0, seed=7)
            played = HarnessEpisode(episode, gateway, harness, "episode", episode_seconds=60.0)
            await played.play()
            return played

        yield attacked
        assert (await other.info()).steps == 0
        assert session.calls == []
        await other.close()


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize("name", [*ATTACKS, *SILENT])
async def test_an_attack_from_an_agent_s_sandbox_fails(
    name: str, attack: Callable[[str], Awaitable[HarnessEpisode]]
) -> None:
    program = TRY + ATTACKS.get(name, SILENT.get(name, ""))
    if name in SILENT:
        failure = (await attack(f"{program}\nraise SystemExit(40 + int(found))")).trajectory().failure
        assert failure is not None
        assert "exit code 40" in failure.message
        return
    kind, error, message = failure_of(await attack(f"{program}\nassert found == 403, found"))
    assert (kind, error) == ("policy", "HarnessNetworkRefused"), message


# ── kill -9 ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TRAINER = """
import asyncio, json, sys
from ludus.gateway import HarnessTask, make_harness
task = HarnessTask("e", "http://127.0.0.1:9/play", "http://127.0.0.1:9", "key", "prompt")
asyncio.run(make_harness(sys.argv[1]).run(task))
"""


def sleepers(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize("victim", ["box", "trainer", "cancel"])
async def test_nothing_is_left_of_an_agent_after_kill_9_of_its_box_or_its_trainer(victim: str) -> None:
    mark = str(2_000_000 + os.getpid())
    agent = f"(trap '' HUP INT TERM; setsid sleep {mark}) & sleep {mark}"
    harness = f"command {LUDUS} box -- sh -c {shlex.quote(agent)}"
    trainer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, harness, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await wait_until(lambda: len(sleepers(mark)) == 2)
        (box,) = boxes_of(trainer.pid)
        owner = owner_of(box)
        os.kill(box if victim == "box" else trainer.pid, signal.SIGINT if victim == "cancel" else signal.SIGKILL)
        await wait_until(lambda: not sleepers(mark) and not Path(f"/proc/{box}").exists())
        await trainer.wait()
        if victim != "box":  # the groups of a killed one are removed by the next
            assert remains(owner) == []
    finally:
        if trainer.returncode is None:
            trainer.kill()
            await trainer.wait()


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("gateway", first=1)
@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        ("", (), "it needs one line of JSON"),
        ('{"play_url": "x"}', (), "openai_base_url Field required"),
        ("{}", ("--show", "/no/such/place"), "there is no such file or folder"),
        ("{}", ("--show", "/usr/bin:/tmp/x"), "since the sandbox has folders of its own"),
        ("{}", ("--env", "NO_SUCH_VARIABLE"), "it is not set"),
    ],
)
async def test_what_cannot_work_is_refused_before_a_sandbox_starts(
    given: str, options: tuple[str, ...], why: str
) -> None:
    if given == "{}":
        given = json.dumps(dict.fromkeys(("play_url", "openai_base_url", "anthropic_base_url"), "http://127.0.0.1:9"))
    process = await asyncio.create_subprocess_exec(
        *shlex.split(LUDUS), "box", *options, "--", "true",
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "COLUMNS": "1000"},
    )  # fmt: skip
    _, text = await process.communicate(given.encode())
    assert process.returncode == 2
    assert why in text.decode()
