"""Other people's MCP clients play whole episodes, unchanged, over HTTP in both eras and over stdio."""

from __future__ import annotations

import importlib
import json
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ludus.protocol import Call, StepResult, TextBlock
from ludus.protocol.lifecycle import EndReason

HERE = Path(__file__).resolve().parent
BUILT_IN = ("guess_number", "countdown", "wordle")


def sampled(first: str, *others: str) -> list[Any]:
    """Return parameters of which `make test` takes the first; the suite `peers` has the others."""
    return [first, *(pytest.param(other, marks=pytest.mark.suite("peers")) for other in others)]


def built_in(name: str) -> Any:
    """A built-in environment's class."""
    module = importlib.import_module(f"ludus.environments.{name}")
    return next(getattr(module, each) for each in module.__all__ if not each.endswith("Task"))


def seen(result: Any) -> Any:
    """A player's view of a step, as the step's result would have it."""
    assert "failure" not in result, result
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    over = any(text.startswith("This episode is over") for text in texts)
    content = tuple(TextBlock(text=text) for text in texts)
    return StepResult(step=1, content=content, end_reason=EndReason.COMPLETED if over else None)


async def play_oracle(cls: Any, task: Any, call: Any) -> Any:
    """Let the oracle play through a client, and return the last thing it saw."""
    actions = cls.oracle(task)
    action = next(actions)
    while True:
        assert isinstance(action, Call)
        result = await call(action.tool, action.arguments)
        try:
            action = actions.send(seen(result))
        except StopIteration:
            return result


@pytest.mark.suite("peers", first=1)
@pytest.mark.requirement("PLAY-1", "PLAY-4")
@pytest.mark.parametrize("name", sampled(*BUILT_IN))
async def test_a_peer_plays_the_built_in_environments_to_the_best_reward(
    name: str, player: Any, serve: Any, start_episode: Any
) -> None:
    cls = built_in(name)
    server = await serve(cls)
    episode = await start_episode(server, name, index=3)
    host = server.app.context.host
    task = host.catalog.find(name).split("train").get(3)

    peer = await player("http", server.url + episode.play.path)
    assert peer.hello["tools"] == [tool.name for tool in host.store.find(episode.episode).view().tools]
    assert peer.hello["prompt"][0]["text"] == episode.prompt[0].content[0].text
    last = await play_oracle(cls, task, peer.call)

    assert "This episode is over (completed)." in [block.get("text") for block in last["content"]]
    view = host.store.find(episode.episode).view()
    assert view.end_reason is EndReason.COMPLETED
    after = await peer.call(episode.tools[0].name, {})
    assert after["isError"] is True
    assert "over" in after["content"][0]["text"]


@pytest.mark.suite("peers")
async def test_a_peer_sees_content_and_errors_in_mcps_own_forms(
    player: Any, serve: Any, start_episode: Any, vault: Any
) -> None:
    server = await serve(vault)
    episode = await start_episode(server, "vault", index=1)
    peer = await player("http", server.url + episode.play.path)
    assert peer.hello["tools"] == ["look", "dial", "kick", "peek", "open", "submit_answer"]
    assert peer.hello["prompt"][0]["text"] == "Open the vault. Hint: clue 1."
    looked = await peer.call("look", {})
    assert [block["type"] for block in looked["content"]] == ["text", "image"]
    assert not looked.get("structuredContent")
    wrong = await peer.call("dial", {"number": "far"})
    assert wrong["isError"] is True
    assert "number" in wrong["content"][0]["text"]
    refused = await peer.call("dial", {"number": -1})
    assert (refused["isError"], refused["content"][0]["text"]) == (True, "the dial does not go below 0")
    unknown = await peer.call("fly", {})
    assert "fly" in (unknown.get("failure") or unknown["content"][0]["text"])
    answered = await peer.call("submit_answer", {"answer": "42"})
    assert answered["isError"] is False
    assert answered["content"][-1]["text"] == "This episode is over (submitted)."
    assert "PRIVATE" not in "".join(peer.said)


@pytest.mark.suite("peers")
async def test_a_failing_environment_is_a_tool_error_with_an_incident(
    player: Any, serve: Any, start_episode: Any, vault: Any
) -> None:
    server = await serve(vault)
    episode = await start_episode(server, "vault", index=1)
    peer = await player("http", server.url + episode.play.path)
    failed = await peer.call("kick", {})
    incident = server.app.context.host.store.find(episode.episode).view().incident
    assert failed["isError"] is True
    assert incident in failed["content"][0]["text"]
    assert (await peer.call("look", {}))["isError"] is True
    assert "PRIVATE" not in "".join(peer.said)


@pytest.mark.suite("peers")
@pytest.mark.requirement("NEG-11", "NEG-15")
async def test_a_peer_begins_and_plays_from_the_catalog(player: Any, serve: Any, vault: Any) -> None:
    server = await serve(vault)
    peer = await player("http", server.url + "/mcp")
    assert peer.hello["tools"] == ["list_environments", "start_episode", "call_tool"]
    begun = await peer.call("start_episode", {"environment": "vault", "index": 2})
    [text] = [block["text"] for block in begun["content"]]
    assert "Open the vault. Hint: clue 2." in text.splitlines()
    url = next(line for line in text.splitlines() if line.startswith(server.url + "/play/"))
    episode = text.split()[1]
    opened = await peer.call("call_tool", {"episode": episode, "tool": "open", "arguments": {"combination": "guess"}})
    assert opened["content"][0]["text"] == "It opens."
    over = await (await player("http", url)).call("look", {})
    assert over["isError"] is True
    assert "PRIVATE" not in "".join(peer.said).replace(url, "")


@pytest.mark.suite("peers", first=1)
async def test_a_peer_plays_one_episode_over_stdio(player: Any) -> None:
    ludus = Path(sys.executable).with_name("ludus")
    peer = await player("stdio", str(ludus), "serve", "guess_number", "--stdio", "--index", "3", "--play-only")
    assert peer.hello["tools"] == ["guess"]
    task = built_in("guess_number").splits["train"].get(3)
    last = await play_oracle(built_in("guess_number"), task, peer.call)
    assert "This episode is over (completed)." in [block.get("text") for block in last["content"]]


@pytest.mark.suite("peers")
@pytest.mark.requirement("NEG-15")
async def test_a_peer_plays_the_catalog_over_stdio(player: Any) -> None:
    ludus = Path(sys.executable).with_name("ludus")
    peer = await player("stdio", str(ludus), "serve", f"{HERE / 'environments.py'}:Vault", "--stdio")
    assert peer.hello["tools"] == ["list_environments", "start_episode", "call_tool"]
    begun = await peer.call("start_episode", {"environment": "vault"})
    assert "/play/" not in json.dumps(begun)
    episode = begun["content"][0]["text"].split()[1]
    opened = await peer.call("call_tool", {"episode": episode, "tool": "open", "arguments": {"combination": "x"}})
    assert opened["content"][0]["text"] == "It opens."
    assert "PRIVATE" not in "".join(peer.said)


INSPECTOR = "inspector/clients/launcher/build/index.js"


@pytest.mark.parametrize("era", sampled("modern", "auto", "legacy"))
async def test_the_inspector_plays_an_episode(
    era: str, node: Any, run: Any, serve: Any, start_episode: Any, vault: Any
) -> Any:
    binary, script = node(INSPECTOR)
    server = await serve(vault)
    episode = await start_episode(server, "vault", index=1)

    async def inspect(*options: Any) -> Any:
        where = (server.url + episode.play.path, "--transport", "http", "--protocol-era", era, "--format", "json")
        return await run(binary, script, "--cli", *where, *options)

    code, output = await inspect("--method", "tools/list")
    assert code == 0, output
    assert "submit_answer" in output
    code, output = await inspect("--method", "tools/call", "--tool-name", "dial", "--tool-arg", "number=7")
    assert code == 0, output
    assert "click" in output
    code, output = await inspect("--method", "tools/call", "--tool-name", "open", "--tool-arg", "combination=x")
    assert code == 0, output
    assert "This episode is over (completed)." in output
    assert "PRIVATE" not in output
    assert "0.73" not in output


@pytest.mark.suite("peers")
@pytest.mark.parametrize("name", sampled(*BUILT_IN))
async def test_the_inspector_plays_the_built_in_environments(
    name: str, node: Any, run: Any, serve: Any, start_episode: Any
) -> Any:
    binary, script = node(INSPECTOR)
    cls = built_in(name)
    server = await serve(cls)
    episode = await start_episode(server, name, index=3)
    host = server.app.context.host

    async def call(tool: Any, arguments: Any) -> Any:
        given = [part for key, value in arguments.items() for part in ("--tool-arg", f"{key}={value}")]
        where = (server.url + episode.play.path, "--transport", "http", "--protocol-era", "auto", "--format", "json")
        code, output = await run(binary, script, "--cli", *where, "--method", "tools/call", "--tool-name", tool, *given)
        assert code == 0, output
        return json.loads(output)["result"]

    await play_oracle(cls, host.catalog.find(name).split("train").get(3), call)
    assert host.store.find(episode.episode).view().end_reason is EndReason.COMPLETED


# ── agent frameworks ───────────────────────────────────────────────────────────────────────────────────────────────

FRAMEWORKS = ("langchain", "openai-agents", "pydantic-ai", "google-adk", "smolagents", "inspect-ai")
framework = pytest.mark.parametrize("framework", sampled(*FRAMEWORKS))


@pytest.fixture
async def agent(peer: Any, run_player: Any) -> Any:
    """`agent = await agent("langchain", "http", url)`: the framework's own MCP client, in a process of its own."""
    async with AsyncExitStack() as stack:
        python = peer("agents")

        async def start(framework: str, *where: str) -> Any:
            script = HERE / "peers" / "agents_client.py"
            return await stack.enter_async_context(run_player(python, script, framework, *where))

        yield start


def framework_seen(result: Any) -> Any:
    """What a framework gave its agent, as the step's result would have it."""
    over = any("This episode is over" in text for text in result["texts"])
    content = tuple(TextBlock(text=text) for text in result["texts"])
    return StepResult(step=1, content=content, end_reason=EndReason.COMPLETED if over else None)


async def win(cls: Any, task: Any, call: Any) -> str:
    """Let the oracle play through a framework, and return all that the framework was shown at the end."""
    actions = cls.oracle(task)
    action = next(actions)
    while True:
        result = await call(action.tool, action.arguments)
        try:
            action = actions.send(framework_seen(result))
        except StopIteration:
            return " ".join(result["texts"])


@pytest.mark.suite("peers")
@framework
@pytest.mark.timeout(300)
async def test_a_framework_plays_an_episode_at_its_play_url(
    framework: str, agent: Any, serve: Any, start_episode: Any
) -> None:
    cls = built_in("guess_number")
    server = await serve(cls)
    episode = await start_episode(server, "guess_number", index=3)
    player = await agent(framework, "http", server.url + episode.play.path)
    assert player.hello["tools"] == ["guess"]
    refused = await player.call("guess", {"number": 0})
    assert "Guess a whole number" in " ".join(refused["texts"])
    host = server.app.context.host
    assert "This episode is over" in await win(
        cls, host.catalog.find("guess_number").split("train").get(3), player.call
    )
    assert host.store.find(episode.episode).view().end_reason is EndReason.COMPLETED


@pytest.mark.suite("peers")
@framework
@pytest.mark.timeout(300)
async def test_a_framework_starts_an_episode_at_the_control_endpoint(framework: str, agent: Any, serve: Any) -> None:
    cls = built_in("guess_number")
    server = await serve(cls)
    starter = await agent(framework, "http", server.url + "/mcp")
    assert sorted(starter.hello["tools"]) == ["call_tool", "list_environments", "start_episode"]
    assert "guess_number" in " ".join((await starter.call("list_environments", {}))["texts"])
    begun = " ".join((await starter.call("start_episode", {"environment": "guess_number", "index": 3}))["texts"])
    url = re.search(rf"{re.escape(server.url)}/play/\S+/mcp", begun)
    episode = re.search(r"e_[\w-]+", begun)
    assert url is not None
    assert episode is not None

    async def through_call_tool(tool: str, arguments: Any) -> Any:
        return await starter.call("call_tool", {"episode": episode[0], "tool": tool, "arguments": arguments})

    host = server.app.context.host
    task = host.catalog.find("guess_number").split("train").get(3)
    assert "This episode is over" in await win(cls, task, through_call_tool)
    assert host.store.find(episode[0]).view().end_reason is EndReason.COMPLETED


@pytest.mark.suite("peers")
@framework
@pytest.mark.timeout(300)
async def test_a_framework_plays_an_episode_over_stdio(framework: str, agent: Any) -> None:
    cls = built_in("guess_number")
    ludus = Path(sys.executable).with_name("ludus")
    options = ("serve", "guess_number", "--stdio", "--index", "3", "--play-only")
    player = await agent(framework, "stdio", str(ludus), *options)
    assert player.hello["tools"] == ["guess"]
    assert "This episode is over" in await win(cls, cls.splits["train"].get(3), player.call)
