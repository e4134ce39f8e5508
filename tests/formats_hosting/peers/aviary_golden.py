"""Plays Aviary's environments with Aviary alone: scripted random actions on `reset` and `step`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

from aviary.core import DummyEnv, ToolCall, ToolRequestMessage

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "formats" / "aviary"))
sys.path.insert(0, str(Path(__file__).parent))
import ledger


def texts(message: Any) -> list[Any]:
    """Return a message's content as text and images."""
    content = message.deserialized_content
    if not isinstance(content, list):
        return [content or ""]
    found: list[Any] = []
    for block in content:
        if block["type"] == "text":
            found.append(block["text"])
        else:
            head, _, data = block["image_url"]["url"].partition(";base64,")
            found.append({"image": data, "mime": head[len("data:") :]})
    return found


def choose(name: str, state: Any, rng: random.Random) -> tuple[str, dict[str, Any]] | str:
    """Return an action: a call, or a final message."""
    if rng.random() < 0.03:
        return "Done."
    if name == "dummy":
        tool = rng.choice(["print_story", "cast_float", "cast_int"])
        return tool, {
            "print_story": {"story": "Five words about a fox"},
            "cast_float": {"x": str(rng.randint(0, 99) / 4)},
            "cast_int": {"x": rng.randint(0, 99) / 4},
        }[tool]
    if rng.random() < 0.1 or (not any(state.balances.values()) and rng.random() < 0.9):
        return "finish", {}
    owes = [one for one, amount in state.balances.items() if amount < 0]
    gets = [one for one, amount in state.balances.items() if amount > 0]
    if owes and gets and rng.random() < 0.8:
        payer, receiver = rng.choice(owes), rng.choice(gets)
        return "transfer", {"payer": payer, "receiver": receiver, "amount": min(-state.balances[payer],
                            state.balances[receiver])}  # fmt: skip
    names = [*state.balances, "Zoe"]
    return "transfer", {"payer": rng.choice(names), "receiver": rng.choice(names), "amount": rng.randint(0, 40)}


async def play(name: str, seed: int) -> dict[str, Any]:
    """Return one episode."""
    rng = random.Random(seed)
    index = seed % 10
    env: Any = DummyEnv() if name == "dummy" else ledger.LedgerTasks().get_new_env_by_idx(index)
    messages, tools = await env.reset()
    episode: dict[str, Any] = {
        "index": index,
        "start": [[message.role, texts(message)] for message in messages],
        "tools": sorted(tool.info.name for tool in tools),
        "steps": [],
    }
    for _ in range(30):
        action = choose(name, env.state, rng)
        calls = [] if isinstance(action, str) else [ToolCall.from_name(action[0], **action[1])]
        said = action if isinstance(action, str) else None
        messages, reward, done, truncated = await env.step(ToolRequestMessage(content=said, tool_calls=calls))
        episode["steps"].append(
            {
                "action": None if said else action,
                "answer": said,
                "shown": [text for message in messages for text in texts(message)],
                "reward": reward,
                "done": done,
                "truncated": truncated,
            }
        )
        if done or truncated or said:
            break
    await env.close()
    return episode


async def main() -> None:
    """Play what standard input asks for."""
    plan = json.loads(sys.stdin.read())
    print(json.dumps([await play(plan["environment"], seed) for seed in plan["seeds"]]))


asyncio.run(main())
