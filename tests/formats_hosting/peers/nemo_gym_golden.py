"""Record rollouts of NeMo Gym's own simple agent with its own servers; then serve until the input ends.

    python nemo_gym_golden.py EXAMPLES FOLDER < the numbers of episodes by server, as a line of JSON

Each resources server and each agent has an HTTP server of its own, and a scripted model is behind the agent. The one
line on standard output is JSON: the addresses of the resources servers and of a faulty one, and the episodes, with the
bodies that `seed_session` and `verify` got. `GET /recorded` of a resources server returns the bodies since the last
time.
"""

import asyncio
import importlib
import json
import os
import random
import re
import socket
import sys
from pathlib import Path

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # NeMo Gym prints to standard output
EXAMPLES, FOLDER, PLAN = sys.argv[1], sys.argv[2], json.loads(sys.stdin.readline())
del sys.argv[1:]  # NeMo Gym reads its configuration from there

sys.path[:0] = [EXAMPLES, os.path.dirname(os.path.abspath(__file__))]

import nemo_gym  # noqa: E402
import uvicorn  # noqa: E402
from fastapi import FastAPI, Request  # noqa: E402
from nemo_gym import server_utils  # noqa: E402
from nemo_gym.config_types import BaseServerConfig  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig  # noqa: E402

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(nemo_gym.__file__)))
STEPS = {"workplace_assistant": 6, "example_tool_call_multireward": 1, "indirect_prompt_injection": 5}
"""The limits of the agents, as their configurations say, or as the server needs it."""
CONFIGS = {"mcqa": {"grading_mode": None}}


class Model:
    """A model behind `/v1/responses` that says what a script says."""

    def __init__(self):
        self.script = []

    def app(self):
        app = FastAPI()

        @app.post("/v1/responses")
        async def respond(request: Request):
            body = await request.json()
            made = sum(item.get("type") == "function_call_output" for item in body["input"])
            before = sum(item.get("type") == "function_call_output" for item in self.given)
            action = self.script[made - before]
            number = made - before + 1
            if isinstance(action, str):
                part = {"type": "output_text", "text": action, "annotations": []}
                item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed",
                        "content": [part]}  # fmt: skip
            else:
                item = {"type": "function_call", "call_id": f"call_{number}", "name": action[0],
                        "arguments": json.dumps(action[1])}  # fmt: skip
            repeated = (
                "temperature", "top_p", "background", "max_output_tokens", "max_tool_calls", "previous_response_id",
                "prompt", "reasoning", "service_tier", "text", "top_logprobs", "truncation", "metadata", "instructions",
                "user",
            )  # fmt: skip
            return {
                "id": "resp_model", "created_at": 0.0, "model": "model", "object": "response", "output": [item],
                "parallel_tool_calls": body.get("parallel_tool_calls", True), "tools": body.get("tools", []),
                "tool_choice": body.get("tool_choice", "auto"), **{name: body.get(name) for name in repeated},
            }  # fmt: skip

        return app


def of_schema(schema, dice, words):
    if schema.get("enum"):
        return dice.choice(schema["enum"])
    kind = schema.get("type", "string")
    if kind == "object":
        names = schema.get("properties", {})
        needed = schema.get("required", [])
        return {
            name: of_schema(part, dice, words) for name, part in names.items() if name in needed or dice.random() < 0.4
        }
    if kind == "array":
        return [of_schema(schema.get("items", {}), dice, words) for _ in range(dice.randint(1, 3))]
    if kind == "integer":
        return dice.randint(0, 9)
    if kind == "number":
        return dice.randint(0, 40) / 4
    if kind == "boolean":
        return dice.random() < 0.5
    return dice.choice(words)


def best(name, row):
    """Return calls that a row itself names as right."""
    if name == "workplace_assistant" and isinstance(row["ground_truth"], list):
        return [(one["name"], json.loads(one["arguments"])) for one in row["ground_truth"]]
    if name == "example_session_state_mgmt":
        return [("increment_counter", {"count": row["expected_count"] - row["initial_count"]})]
    if name == "example_multi_step":
        return [("extract_synonym_values", {"synonym_values": row["expected_synonym_values"]})]
    if name == "example_tool_call_multireward":
        return [(row["expected_call"]["name"], row["expected_call"]["arguments"])]
    return []


def script(name, row, dice):
    """Return the actions of an episode: calls, and a final message unless the limit comes first."""
    params = row["responses_create_params"]
    words = re.findall(r"[\w.@-]+", json.dumps(params["input"])) or ["a"]
    tools = params.get("tools") or []
    if name == "coins":
        coins = list(range(1, row["coins"] + 1))
        calls = []
        for _ in range(dice.randint(0, 8)):
            some = dice.sample(coins, 2 * dice.randint(1, row["coins"] // 2))
            calls.append(("weigh", {"left": some[::2], "right": some[1::2] + [99] * (dice.random() < 0.1)}))
        calls += [("count_weighings", {})] * dice.randint(0, 1)
        return [*calls, f"It is coin {row['odd'] if dice.random() < 0.5 else dice.choice(coins)}."]
    if dice.random() < 0.5:
        calls = best(name, row)
    else:
        calls = []
    if not calls and tools:
        chosen = [dice.choice(tools) for _ in range(dice.randint(1, 4))]
        calls = [(tool["name"], of_schema(tool["parameters"], dice, words)) for tool in chosen]
    if name == "mcqa" and dice.random() < 0.5:
        return [f"\\boxed{{{row['expected_answer']}}}"]
    text = dice.choice([r"\boxed{A}", r"\boxed{B}", r"\boxed{C}", "Done. \u00e9\u4e2d", "No."])
    return [*calls[: STEPS.get(name, 20)], text]


async def listen(app):
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    task = asyncio.create_task(server.serve(sockets=[place]))
    return place.getsockname()[1], task


def record(app, bodies):
    @app.get("/recorded")
    async def recorded():
        found = list(bodies)
        bodies.clear()
        return found

    @app.middleware("http")
    async def keep(request: Request, proceed):
        if request.url.path in ("/seed_session", "/verify"):
            bodies.append([request.url.path, json.loads(await request.body())])
        return await proceed(request)


def resources(name, client):
    module = importlib.import_module("coins" if name == "coins" else f"resources_servers.{name}.app")
    base = server_utils.SimpleServer
    kinds = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, base)]
    (kind,) = [one for one in kinds if one.__module__ == module.__name__]
    config = kind.model_fields["config"].annotation
    fields = {"name": name, "host": "127.0.0.1", "port": 1, "entrypoint": "app.py", **CONFIGS.get(name, {})}
    server = kind(config=config.model_validate(fields), server_client=client)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return app


def numbers(reply, row):
    """Return the numbers that `verify` added, by name."""
    found = {name: value for name, value in reply.items() if name not in row and isinstance(value, (bool, int, float))}
    found.update(reply.get("reward_components") or {})
    return {name: float(value) for name, value in found.items()}


def copied(place, name):
    """Return the rows of a file, which is copied for the test."""
    rows = [json.loads(line) for line in Path(place).read_text().splitlines() if line.strip()]
    Path(FOLDER, name + ".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


async def main():
    model, places, apps, agents = Model(), {}, {}, {}
    bodies = {name: [] for name in PLAN}
    configuration = OmegaConf.create({})
    head = BaseServerConfig(host="127.0.0.1", port=1)
    client = server_utils.ServerClient(head_server_config=head, global_config_dict=configuration)
    server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())

    def known(name, kind, port):
        configuration[name] = {kind: {name: {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}}}

    known("model", "responses_api_models", (await listen(model.app()))[0])
    tasks = []
    for name in PLAN:
        apps[name] = resources(name, client)
        record(apps[name], bodies[name])
        places[name], task = await listen(apps[name])
        tasks.append(task)
        known(name, "resources_servers", places[name])
        refs = {
            "resources_server": {"type": "resources_servers", "name": name},
            "model_server": {"type": "responses_api_models", "name": "model"},
        }
        common = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py"}
        common.update({"max_steps": STEPS[name]} if name in STEPS else {})
        agent = SimpleAgent(config=SimpleAgentConfig(name=name + "_agent", **common, **refs), server_client=client)
        port, task = await listen(agent.setup_webserver())
        tasks.append(task)
        known(name + "_agent", "responses_api_agents", port)
        agents[name] = name + "_agent"
    import nemo_gym_faults

    faulty, task = await listen(nemo_gym_faults.app())
    tasks.append(task)
    episodes = {}
    for name, count in PLAN.items():
        place = os.path.join(EXAMPLES, "rows.jsonl")
        if name != "coins":
            place = os.path.join(PACKAGE, "resources_servers", name, "data", "example.jsonl")
        rows = copied(place, name)
        episodes[name] = []
        for number in range(count):
            index, dice = number % len(rows), random.Random(f"{name} {number}")
            row = rows[index]
            model.script = script(name, row, dice)
            model.given = row["responses_create_params"]["input"]
            model.given = [] if isinstance(model.given, str) else model.given
            reply = await client.post(server_name=agents[name], url_path="/run", json=row)
            text = (await reply.read()).decode()
            assert reply.status == 200, (name, number, text)
            found = json.loads(text)
            output = found["response"]["output"]
            episodes[name].append(
                {
                    "index": index,
                    "calls": [one["name"] for one in output if one["type"] == "function_call"],
                    "actions": model.script,
                    "outputs": [one["output"] for one in output if one["type"] == "function_call_output"],
                    "said": any(one["type"] == "message" for one in output),
                    "reward": found["reward"],
                    "numbers": numbers(found, {**row, "reward": 0, "response": 0}),
                    "bodies": list(bodies[name]),
                }
            )
            bodies[name].clear()
    urls = {name: f"http://127.0.0.1:{port}" for name, port in {**places, "faulty": faulty}.items()}
    print(json.dumps({"urls": urls, "episodes": episodes}), file=OUT, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
