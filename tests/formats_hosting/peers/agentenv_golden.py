"""Record episodes with the OpenEnv server that AgentEnv has for bundles and openenv's own client; then serve the tools
of a store until the input ends.

    python agentenv_golden.py FOLDER BUNDLE EPISODES

A bundle with a tool is written to FOLDER/stock. The one line on standard output is JSON: the episodes of BUNDLE and of
that one.
"""

import asyncio
import json
import os
import random
import socket
import sys
import threading
from pathlib import Path

sys.modules["openenv.core.env_server.web_interface"] = None  # it brings gradio, which takes seconds to import
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import uvicorn  # noqa: E402
from agent_env.openenv import build_app  # noqa: E402
from agentenv_live import SHELVES, Stock  # noqa: E402
from openenv.core.generic_client import GenericEnvClient  # noqa: E402

REPLIES = {
    "total-weight": ["22", "22 kg", "They weigh 22", "122", "4+11+7", ""],
    "heaviest": ["B07", "It is B07.", "C33", "A12 or B07", ""],
    "late": ["P1 and P2", "P1", "P1, P2, P3", "P3", "P2"],
    "crates": ["7 crates, 2 free", "7", "2", "6 crates", "7 and 3"],
    "next-depot": ["Hill", "At North.", "Lake", ""],
    "half-load": ["330 kg", "330", "570", ""],
    "two-questions": ["40", "25", "25 boxes", "15", ""],
    "correction": ["Mill", "Lake", "Mill, not Lake", "North"],
    "running-total": ["23", "20", "20 letters", "29"],
    "shifts": ["6:05", "06:05", "5:65", "16:05"],
}
ENDS = {"type": "call_tool", "tool_name": "end_turn"}


def serve_app(app):
    """Serve an application in a thread, and return its address."""
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True).start()
    return f"http://127.0.0.1:{place.getsockname()[1]}"


def write_stock(folder, address):
    """Write a bundle whose agent has the tool of a store."""
    for name in ("tasks", "envs/stock"):
        (folder / name).mkdir(parents=True)
    (folder / "envs/stock/env.toml").write_text(f'type = "live"\nmcp_url = "{address}/mcp"\n')
    for number, shelves in enumerate(("A1 A2", "B1 C1", "A2 B2", "A1 C1")):
        first, second = shelves.split()
        steps = [
            {"id": "agent", "type": "deploy_agent", "env_ids": ["stock"]},
            {"id": "ask", "type": "prompt_agent", "prompt_id": "ask", "depends_on": ["agent"],
             "prompt": f"How many boxes are on the shelves {first} and {second} together?"},
            {"id": "check", "type": "agent_prompt_response_verifier", "prompt_id": "ask", "verifier_id": "check",
             "criteria": [{"type": "response_contains", "needles": [str(SHELVES[first] + SHELVES[second])]}]},
        ]  # fmt: skip
        (folder / "tasks" / f"sum-{number}.json").write_text(json.dumps(steps))


def calls_of(name, dice):
    """Return the actions of an episode before the last reply, and that reply."""
    if name in REPLIES:
        turns = 2 if name in ("two-questions", "correction", "running-total") else 1
        *before, last = [dice.choice(REPLIES[name]) for _ in range(turns)]
        return [["end_turn", {"response": text}] for text in before], last
    calls = [["count", {"shelf": dice.choice([*SHELVES, "Z9"])}] for _ in range(dice.randint(0, 3))]
    return calls, dice.choice(["23 boxes", "36", "9", "19", "none"])


async def play(url, split, index, seed, room):
    """Return one episode, played by openenv's client."""
    async with room, GenericEnvClient(base_url=url) as env:
        first = (await env.reset(split=split, index=index)).observation["metadata"]
        calls, last = calls_of(first["task"]["name"], random.Random(seed))
        shown = []
        for tool, arguments in calls:
            step = await env.step({"type": "call_tool", "tool_name": tool, "arguments": arguments})
            found = step.observation
            if found.get("error"):
                shown.append(found["error"]["message"])
            elif tool == "end_turn":
                shown.append(found["result"]["prompt"])
            else:
                shown.append(found["result"]["data"])
        step = await env.step({**ENDS, "arguments": {"response": last}})
        assert step.done, step
        return {
            "split": split, "index": index, "id": first["task"]["name"], "prompt": first["prompt"],
            "system": first["system_prompt"], "calls": calls, "shown": shown, "answer": last, "reward": step.reward,
            "scores": step.observation["metadata"]["scores"],
        }  # fmt: skip


async def main(folder, bundle, count):
    store = Stock()
    app = store.create_app()
    write_stock(folder / "stock", serve_app(app.streamable_http_app()))
    urls = {str(one): serve_app(build_app(str(one), max_concurrent_envs=16)) for one in (bundle, folder / "stock")}
    room = asyncio.Semaphore(12)
    places = [("train", index) for index in range(7)] + [("test", index) for index in range(3)]
    work = [play(urls[str(bundle)], *places[n % 10], n, room) for n in range(count)]
    work += [play(urls[str(folder / "stock")], "all", n % 4, n, room) for n in range(count // 4)]
    episodes = await asyncio.gather(*work)
    print(json.dumps({"bundle": episodes[:count], "stock": episodes[count:]}), file=OUT, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
