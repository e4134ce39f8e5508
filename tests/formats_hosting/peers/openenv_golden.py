"""Record episodes with openenv's own client against openenv's own server; then serve until the input ends.

    python openenv_golden.py EXAMPLES EPISODES

The one line on standard output is JSON: the addresses of the servers, and the episodes with scripted actions.
"""

import asyncio
import importlib.util
import json
import os
import random
import sys

sys.modules["openenv.core.env_server.web_interface"] = None  # it brings gradio, which takes seconds to import

import uvicorn
from listening_server import Server
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.generic_client import GenericEnvClient


def load(path):
    name = os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


async def serve(app):
    server = Server(uvicorn.Config(app, port=0, log_level="error"))
    task = asyncio.create_task(server.serve())
    await server.up.wait()
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server, task


async def play(url, reset, actions):
    steps = []
    async with GenericEnvClient(base_url=url) as env:
        first = await env.reset(**reset)
        async for action in actions(first):
            result = await env.step(action)
            steps.append({"action": action, "observation": result.observation, "reward": result.reward,
                          "done": result.done})  # fmt: skip
            if result.done:
                break
    return {"reset": reset, "first": first.observation, "steps": steps}


async def of_orchard(url, count):
    for number in range(count):

        async def actions(first, number=number):
            dice = random.Random(number)
            while True:
                yield {"direction": dice.choice(["up", "down", "left", "right"])}

        place = number % 10
        reset = {"split": "train", "index": place} if place < 7 else {"split": "test", "index": place - 7}
        yield await play(url, reset, actions)


async def of_parcels(url, count):
    people = ["Ada", "Bo", "Cleo", "Dan", "Eve"]
    colors = ["red", "blue", "green", "gray", "white", "black", "pink", "teal", "none"]
    for number in range(count):

        async def actions(first, number=number):
            dice = random.Random(number)
            for _ in range(12):
                tool = dice.choice(["look", "read_label", "deliver", "deliver"])
                arguments = {"color": dice.choice(colors)} if tool != "look" else {}
                if tool == "deliver":
                    arguments["person"] = dice.choice(people)
                yield {"type": "call_tool", "tool_name": tool, "arguments": arguments}

        yield await play(url, {"split": "rounds", "index": number % 10}, actions)


async def of_dice(url, count):
    for number in range(count):

        async def actions(first, number=number):
            dice = random.Random(number)
            while True:
                yield {"number": dice.randint(1, 6)}

        yield await play(url, {"seed": number}, actions)


async def main(examples, count):
    orchard = load(os.path.join(examples, "orchard.py"))
    parcels = load(os.path.join(examples, "parcels.py"))
    world = load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openenv_world.py"))
    apps = {
        "orchard": create_fastapi_app(orchard.Orchard, orchard.Walk, orchard.View, 2, env_name="Orchard"),
        "parcels": parcels.app,
        "dice": create_fastapi_app(world.Dice, world.Guess, world.Roll),
        "faults": world.app,
    }
    started = {name: await serve(app) for name, app in apps.items()}
    episodes = {}
    for name, script in (("orchard", of_orchard), ("parcels", of_parcels), ("dice", of_dice)):
        episodes[name] = [episode async for episode in script(started[name][0], count)]
    urls = {name: url for name, (url, _, _) in started.items()}
    print(json.dumps({"urls": urls, "episodes": episodes}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for _, server, _ in started.values():
        server.should_exit = True
    await asyncio.gather(*(task for _, _, task in started.values()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
