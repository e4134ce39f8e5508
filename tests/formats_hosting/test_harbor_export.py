"""Tasks that `ludus export --form harbor` wrote earn in Harbor's own runner what Ludus gives for the same actions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import riddles
from peer_clients import ROOT, peer_variables, python_of
from riddles import Riddles
from sandboxing import NEEDS_BUBBLEWRAP
from terminal import run_ludus
from worlds import Playground

from ludus.client import connect
from ludus.environments.guess_number import GuessNumber
from ludus.protocol.actions import Call
from ludus.server import Environment
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.tasks.formats import parse_source, resolve

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "peers" / "harbor_exported.py"
LINTED = (
    "unknown-config-field", "unused-harborignore", "shared-verifier", "artifact-log-overlap", "overlapping-artifacts",
    "unpinned-python-dependency", "verifier-runtime-install", "verifier-network-download", "agent-image-test-leak",
)  # fmt: skip
"""The rules that Harbor's linter checks without Docker."""
Server = Callable[..., Awaitable[tuple[str, str]]]


@pytest.fixture
def guarded(serve: Callable[..., Any]) -> Server:
    """`url, token = await guarded(Environment, …, scopes=…)`: a server that wants a token."""

    async def start(
        *environments: type[Environment[Any]], scopes: Sequence[str] = ("episodes:run", "rewards:read")
    ) -> tuple[str, str]:
        token, record = new_token("harbor", list(scopes))
        server = await serve(*environments, variables={"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()})
        return server.url, token

    return start


def exported(target: str, url: str, out: Path, *options: object) -> list[Path]:
    done = run_ludus("export", target, "--form", "harbor", "--address", url, "--out", out, *options, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return sorted(out.iterdir())


async def harbor(requests: Sequence[Mapping[str, Any]], token: str | None) -> list[Any]:
    """Play episodes with Harbor's own runner; return the rewards of each, or the name of its error."""
    variables = peer_variables()
    variables.pop("LUDUS_TOKEN", None)
    process = await asyncio.create_subprocess_exec(
        python_of("harbor"), str(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=variables | ({} if token is None else {"LUDUS_TOKEN": token}), cwd=PROGRAM.parent,
    )  # fmt: skip
    out, errors = await process.communicate(json.dumps(list(requests)).encode())
    assert process.returncode == 0, errors.decode()[-3000:]
    outcomes = json.loads(out.decode().splitlines()[-1])
    return [outcome["rewards"] if "rewards" in outcome else outcome["error"] for outcome in outcomes]


@NEEDS_BUBBLEWRAP
async def test_answers_in_a_file_earn_what_the_server_gives_and_nothing_else_does(
    guarded: Server, tmp_path: Path
) -> None:
    url, token = await guarded(Riddles)
    first, second = exported(f"{riddles.__file__}:Riddles", url, tmp_path / "tasks")
    forged = "mkdir -p /logs/verifier; for f in reward.txt reward.json; do echo 1 > /logs/verifier/$f; done"
    played = [
        (first, "oracle", {"reward": 1.0, "words": 1}),
        (second, "oracle", {"reward": 1.0, "words": 1}),
        (first, "nop", {"reward": -0.5, "words": 0}),
        (first, "printf 'two words\\r\\n' > /app/answer.txt", {"reward": 0.25, "words": 2}),
        (first, "mkdir /app/answer.txt", {"reward": -0.5, "words": 0}),
        (second, "printf '\\377\\000' > /app/answer.txt", {"reward": 0.25, "words": 1}),
        (second, "head -c 8000000 /dev/zero > /app/answer.txt", {"reward": 0.25, "words": 1}),
        (second, forged, {"reward": -0.5, "words": 0}),
        (second, 'env > /app/answer.txt; [ -z "$(env | grep TOKEN)" ]', {"reward": 0.25, "words": None}),
        (second, "printf break > /app/answer.txt", "RewardFileNotFoundError"),
    ]
    rewards = await harbor([{"task": str(task), "agent": agent} for task, agent, _ in played], token)
    for (_, agent, expected), found in zip(played, rewards, strict=True):
        if isinstance(expected, dict) and expected["words"] is None:
            found = {**found, "words": None}
        assert found == expected, agent


@NEEDS_BUBBLEWRAP
async def test_tools_are_played_through_the_container_next_to_the_agents(guarded: Server, tmp_path: Path) -> None:
    url, token = await guarded(GuessNumber, Playground)
    (guess, other) = exported("guess_number", url, tmp_path / "guess", "-n", 2, "--split", "validation")
    (words,) = exported(f"{ROOT}/tests/support/worlds.py:Playground", url, tmp_path / "words", "-n", 1)
    call = 'import json, urllib.request as r; print(r.urlopen(r.Request("http://ludus:8000%s", json.dumps(dict(jsonrpc="2.0", id=1, method="%s", params=%s)).encode(), {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})).read())'  # noqa: E501
    add = call % ("/mcp", "tools/call", '{"name": "add", "arguments": {}}')
    closing = call % ("/mcp", "dev.ludus/episodes/start", "{}")
    elsewhere = call % ("/../mcp", "tools/list", "{}")
    tries = (
        f"python3 -c '{closing}'; python3 -c '{elsewhere}'; ls /ludus /opt/ludus /tests /solution; python3 -c '{add}'"
    )
    played = [
        (guess, "oracle"), (other, "oracle"), (guess, "nop"), (words, "oracle"), (words, "nop"), (words, tries),
    ]  # fmt: skip
    rewards = await harbor([{"task": str(task), "agent": agent} for task, agent in played], token)
    values = [found["reward"] for found in rewards]
    assert values[:2] == [oracle_reward(guess), oracle_reward(other)] == [1.0, 1.0]
    assert values[2:] == [0.0, oracle_reward(words), 0.0, 0.25]


def oracle_reward(folder: Path) -> float:
    config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    reward: float = config["metadata"]["ludus"]["oracle_reward"]
    return reward


@NEEDS_BUBBLEWRAP
async def test_an_outage_and_a_token_without_rights_are_errors_and_never_a_reward(
    guarded: Server, tmp_path: Path
) -> None:
    url, token = await guarded(Riddles, Playground, scopes=("episodes:run",))
    answer, _ = exported(f"{riddles.__file__}:Riddles", url, tmp_path / "answers")
    (tools,) = exported(f"{ROOT}/tests/support/worlds.py:Playground", url, tmp_path / "tools", "-n", 1)
    gone = {"LUDUS_URL": "http://127.0.0.1:9"}
    requests: list[dict[str, Any]] = [{"task": str(task), "agent": "oracle"} for task in (answer, tools)]
    assert await harbor(requests, token) == ["RewardFileNotFoundError"] * 2
    away = await harbor([request | {"env": gone} for request in requests], token)
    assert away == ["RewardFileNotFoundError", "RuntimeError"]
    assert await harbor(requests[:1], None) == ["ValueError"]


@NEEDS_BUBBLEWRAP
async def test_exported_answers_are_hosted_again_with_the_same_rewards(
    guarded: Server, serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = await guarded(Riddles)
    exported(f"{riddles.__file__}:Riddles", url, tmp_path / "tasks")
    monkeypatch.setenv("LUDUS_TOKEN", token)
    source = parse_source(f"harbor:{tmp_path / 'tasks'}#network={url.removeprefix('http://')}")
    assert source is not None
    (cls,) = resolve(source)
    server = await serve(cls)
    async with connect(server.url) as client:
        values = [
            await hosted(client.environment(cls.name), cls, index, agent)
            for index in (0, 1)
            for agent in ("oracle", "")
        ]
    assert values == [1.0, -0.5, 1.0, -0.5]
    monkeypatch.setenv("LUDUS_URL", "http://127.0.0.1:9")
    away = parse_source(f"harbor:{tmp_path / 'tasks'}#failed-verifier=unscored")
    assert away is not None
    (cls,) = resolve(away)
    server = await serve(cls)
    async with connect(server.url) as client:
        assert await hosted(client.environment(cls.name), cls, 0, "oracle") is None


async def hosted(environment: Any, cls: type[Environment[Any]], index: int, agent: str) -> float | None:
    async with environment.episode(split="train", index=index) as episode:
        if agent == "oracle":
            policy = cls.oracle(episode.task)
            action = next(policy)
            while isinstance(action, Call):
                action = policy.send(await episode.call(action))
        else:
            result = await episode.call("bash", command="env")
            assert "LUDUS_TOKEN" not in str(result.content)
        reward = (await episode.grade("done")).reward
        assert reward is not None
        value: float | None = reward.value
        return value


def test_harbors_own_linter_finds_no_error_in_exported_folders(tmp_path: Path) -> None:
    python = python_of("harbor")
    answers = exported(f"{riddles.__file__}:Riddles", "http://10.0.0.5:8000", tmp_path / "answers")
    tools = exported("guess_number", "http://10.0.0.5:8000", tmp_path / "tools", "-n", 1)
    command = [str(Path(python).with_name("harbor")), "lint"]
    variables = peer_variables() | {"HARBOR_TELEMETRY": "off"}
    without_docker = [word for rule in LINTED for word in ("--select", rule)]
    for arguments in (answers, [*without_docker, *tools]):
        done = subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, check=False, env=variables
        )
        assert done.returncode == 0, done.stdout + done.stderr
