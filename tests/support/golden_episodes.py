"""Episodes recorded by a peer's own runner, and the same actions played through a served environment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hosted_peers import output_of
from peer_clients import python_of

from ludus.client import RemoteEnvironment
from ludus.protocol import ImageBlock, TextBlock
from ludus.protocol.content import Content
from ludus.server import Environment
from ludus.server.tasks.formats import parse_source, resolve


def record(peer: str, script: str, plan: Any) -> list[dict[str, Any]]:
    """Let a peer's interpreter play episodes with its own runner: `{"start", "steps": […]}` for each."""
    found: list[dict[str, Any]] = json.loads(output_of(peer, script, plan).splitlines()[-1])
    return found


def hosted(spec: str, peer: str | None = None) -> list[type[Environment[Any]]]:
    """Return the environments of a spec, in the peer's interpreter if there is one."""
    source = parse_source(spec)
    assert source is not None
    if peer is not None:
        source = source.with_options({"python": python_of(peer)})
    return resolve(source)


@contextmanager
def hosting(peer: str) -> Iterator[Callable[[str], Any]]:
    """A function that returns the last environment of a spec; their interpreters have ended afterwards."""
    made: list[Any] = []

    def make(spec: str) -> Any:
        made.extend(hosted(spec, peer))
        return made[-1]

    try:
        yield make
    finally:
        for environment in made:
            environment.process.close()


def shown(content: Sequence[Content]) -> list[Any]:
    """Return content as plain texts and images."""
    found: list[Any] = []
    for block in content:
        if isinstance(block, ImageBlock):
            found.append({"image": block.data, "mime": block.mime_type})
        else:
            assert isinstance(block, TextBlock)
            found.append(block.text)
    return found


async def replay(environment: RemoteEnvironment, split: str, golden: dict[str, Any]) -> dict[str, Any]:
    """Play the actions of a recorded episode, and return it in the same form."""
    found: dict[str, Any] = {"start": [], "steps": []}
    async with environment.episode(split=split, index=golden["index"]) as episode:
        for message in episode.prompt:
            found["start"].append([message.role, shown(message.content)])
        found["tools"] = sorted(tool.name for tool in episode.tools)
        for step in golden["steps"]:
            if step["action"] is None:
                graded = await episode.grade(step["answer"])
                found["steps"].append({"reward": None if graded.reward is None else graded.reward.value})
                continue
            result = await episode.call(step["action"][0], **step["action"][1])
            assert result.error is None, result
            found["steps"].append(
                {
                    "shown": shown(result.content),
                    "reward": None if result.reward is None else result.reward.value,
                    "done": result.terminated,
                    "truncated": result.truncated,
                }
            )
    return found


async def differences(
    environment: RemoteEnvironment, split: str, recorded: Sequence[dict[str, Any]], at_once: int = 8
) -> list[tuple[Any, Any]]:
    """Return what differs between recorded episodes and the same ones played here."""
    found: list[tuple[Any, Any]] = []
    room = asyncio.Semaphore(at_once)

    async def compare(golden: dict[str, Any]) -> None:
        async with room:
            played = await replay(environment, split, golden)
        for key in ("start", "tools"):
            if key in golden and golden[key] != played[key]:
                found.append((golden[key], played[key]))
        for one, other in zip(golden["steps"], played["steps"], strict=True):
            wanted = {key: one.get(key) for key in other}
            if wanted != other:
                found.append((one, other))

    async with asyncio.TaskGroup() as group:
        for golden in recorded:
            group.create_task(compare(golden))
    return found
