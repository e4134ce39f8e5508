"""Record episodes with the own client and the own server of ors-sdk or openreward; then serve until the input ends.

    python ors_golden.py EXAMPLES EPISODES ors|openreward

The one line on standard output is JSON: the addresses of the servers, and the episodes with scripted actions.
"""

import asyncio
import importlib.util
import json
import os
import random
import sys

import uvicorn
from listening_server import Server

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the servers log to standard output


def load(path):
    name = os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


async def serve(app):
    server = Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
    task = asyncio.create_task(server.serve())
    await server.up.wait()
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server, task


def plain(output):
    return {"texts": [block.text for block in output.blocks], "reward": output.reward, "finished": output.finished,
            "metadata": output.metadata}  # fmt: skip


async def play(environment, split, index, actions, answer=None):
    steps = []
    async with environment.session(split=split, index=index) as session:
        prompt = [block.text for block in await session.get_prompt()]
        for tool, arguments in actions:
            output = plain(await session.call_tool(tool, arguments))
            steps.append({"tool": tool, "arguments": arguments, **output})
            if output["finished"]:
                break
        else:
            if answer is not None:
                steps.append({"answer": answer, **plain(await session.call_terminal_tool(answer))})
    return {"split": split, "index": index, "prompt": prompt, "steps": steps}


def of_safes(number):
    dice = random.Random(number)
    for _ in range(20):
        kind = dice.choice(["attempt", "attempt", "write", "read"])
        if kind == "attempt":
            yield kind, {"code": "".join(dice.choice("0123456789") for _ in range(3))}
        elif kind == "write":
            yield kind, {"text": f"note {dice.random()} \u00e9\u4e2d"}
        else:
            yield kind, {}
    yield "attempt", {"code": ["042", "777", "190", "505", "318", "264", "981"][number % 7]}


def of_museum(number, rooms, questions):
    dice = random.Random(number)
    visits = [("visit", {"name": dice.choice([*rooms, "attic"])}) for _ in range(dice.randint(0, 4))]
    answer = questions[number % 10][1] if dice.random() < 0.5 else dice.choice(["7", "east", "", "I do not know"])
    return visits, answer


async def main(examples, count, package):
    world = load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ors_world.py"))
    module = load(os.path.join(examples, "safes.py" if package == "ors" else "museum.py"))
    game = module.Safes if package == "ors" else module.Museum
    started = {"game": await serve(world.Server([game]).app), "world": await serve(world.server.app)}
    url = started["game"][0]
    episodes = []
    if package == "ors":
        from ors.client import AsyncORS

        client = AsyncORS(url)
        environment = client.environment("safes")
        for number in range(count):
            split, index = ("train", number % 7) if number % 10 < 7 else ("test", number % 3)
            episodes.append(await play(environment, split, index, of_safes(number)))
    else:
        os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = url
        from openreward import AsyncOpenReward

        client = AsyncOpenReward(api_key="none")
        environment = client.environments.get("museum", variant="museum", base_url=url)
        for number in range(count):
            actions, answer = of_museum(number, module.ROOMS, module.QUESTIONS)
            episodes.append(await play(environment, "train", number % 10, actions, answer))
    urls = {name: url for name, (url, _, _) in started.items()}
    print(json.dumps({"urls": urls, "episodes": episodes}), file=OUT, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
