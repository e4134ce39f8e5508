"""Let NeMo Gym's own simple agent play rows with the resources server of Ludus, each in an app of its own."""

import asyncio
import contextlib
import functools
import json
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile


class Model:
    """A model behind `/v1/responses`: adds with the tool, then submits, or says the sum if `talk` is on."""

    def __init__(self) -> None:
        self.talk, self.kill, self.calls = False, None, 0

    def app(self):
        from fastapi import FastAPI, Request

        app = FastAPI()

        @app.post("/v1/responses")
        async def respond(request: Request) -> dict:
            self.calls += 1
            if self.kill and self.calls == 10:
                os.kill(self.kill, signal.SIGKILL)
            body = await request.json()
            return {
                "id": f"resp_{self.calls}",
                "created_at": 0.0,
                "model": "policy",
                "object": "response",
                "output": [self.say(body["input"], body["tools"])],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": body["tools"],
            }

        return app

    def say(self, entries: list, tools: list) -> dict:
        """Return the next item: right for even sums only."""
        a, b = map(int, re.search(r"What is (-?\d+) \+ (-?\d+)", json.dumps(entries)).groups())
        said = a + b + (a + b) % 2
        outputs = [entry["output"] for entry in entries if entry.get("type") == "function_call_output"]
        assert {tool["name"] for tool in tools} == {"add", "submit"}
        if not outputs:
            return self.call("add", a=a, b=b)
        if self.talk or len(outputs) > 1:
            content = [{"type": "output_text", "text": f"The sum is {said}.", "annotations": []}]
            return {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}
        return self.call("submit", number=said)

    def call(self, name: str, **arguments: int) -> dict:
        """Return a call."""
        text = json.dumps(arguments)
        return {"type": "function_call", "call_id": f"call_{self.calls}", "name": name, "arguments": text}


@contextlib.asynccontextmanager
async def gym(model: Model):
    """Run the three servers of NeMo Gym, and yield a client of them and the resources server."""
    import uvicorn
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf
    from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

    from ludus.integrations.nemo_gym import LudusConfig, LudusResourcesServer

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    names = {
        "ludus": ("resources_servers", "ludus"),
        "ludus_agent": ("responses_api_agents", "simple_agent"),
        "policy_model": ("responses_api_models", "policy"),
    }
    configuration = {
        name: {kind: {module: {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}}}
        for (name, (kind, module)), port in zip(names.items(), ports, strict=True)
    }
    head = BaseServerConfig(host="127.0.0.1", port=1)
    client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(configuration))
    common = [{"host": "127.0.0.1", "port": port, "entrypoint": "app.py"} for port in ports]
    resources = LudusResourcesServer(config=LudusConfig(name="ludus", **common[0]), server_client=client)
    refs = {
        "resources_server": {"type": "resources_servers", "name": "ludus"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    agent = SimpleAgent(config=SimpleAgentConfig(name="ludus_agent", **common[1], **refs), server_client=client)
    apps = [resources.setup_webserver(), agent.setup_webserver(), model.app()]
    for server, app in zip((resources, agent), apps, strict=False):
        server.setup_exception_middleware(app)  # as `run_webserver` does
    servers = [uvicorn.Server(uvicorn.Config(app, log_level="warning")) for app in apps]
    running = [asyncio.create_task(server.serve(sockets=[one])) for server, one in zip(servers, sockets, strict=True)]
    try:
        yield client, resources
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*running)


async def play(given: dict) -> dict:
    from ludus.integrations.unscored import UNSCORED

    reports = {}
    model = Model()
    async with gym(model) as (client, resources):

        async def run(row: dict) -> dict:
            reply = await client.post(server_name="ludus_agent", url_path="/run", json=row)
            text = (await reply.read()).decode()
            if reply.status != 200:
                return {"status": reply.status, "text": text}
            found = json.loads(text)
            outputs = [one["output"] for one in found["response"]["output"] if one["type"] == "function_call_output"]
            kept = {name: found[name] for name in ("reward", "mask_sample", "ludus_outcome")}
            return {"status": 200, "task": row["ludus"]["task"], "outputs": outputs, **kept}

        for name, one in given["runs"].items():
            model.talk, model.kill, model.calls = one.get("talk", False), one.get("kill"), 0
            rows = [row for row in one["rows"][: one["tasks"]] for _ in range(one["samples"])]
            before = UNSCORED["nemo-gym"]
            reports[name] = {
                "rows": list(await asyncio.gather(*map(run, rows))),
                "counted": UNSCORED["nemo-gym"] - before,
                "sessions": len(resources._sessions),
            }
        row = given["runs"]["sums"]["rows"][0]
        await client.post(server_name="ludus", url_path="/seed_session", json=row)  # the server's end closes it
        stray = await client.post(server_name="ludus", url_path="/add", json={"a": 1, "b": 2})
        reports["stray"] = {"status": stray.status, "text": (await stray.read()).decode()}
    return reports


def work(given: dict, pipe) -> None:
    del sys.argv[1:]  # NeMo Gym reads its configuration from there
    import ludus.client.addresses as addresses

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # it writes a log where it runs
        pipe.send(asyncio.run(play(given)))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    given = json.loads(sys.argv[1])
    process = context.Process(target=work, args=(given, theirs))
    process.start()
    theirs.close()
    reports = ours.recv()
    process.join()
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
