"""Rollouts through verifiers' own machinery: `python verifiers_loop.py MODEL_URL AT_ONCE ROUNDS COUNT`.

Each rollout is an episode of its single-agent environment: interception, trace, scoring. Its harness is a chat loop in
this process, which makes two requests to the model and answers the call between them itself. That is the fastest case
for verifiers: there is no environment server, and its bundled harnesses start a process for each rollout.
Prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import verifiers.v1 as vf

__all__ = ["EchoHarness", "EchoTaskset"]


class EchoTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def called(self, trace: Any) -> float:
        return float(len(trace.tool_messages) == 1)


class EchoTaskset(vf.Taskset[EchoTask, vf.TasksetConfig]):
    def load(self) -> Iterator[EchoTask]:
        yield EchoTask(vf.TaskData(prompt="hi"), self.config.task)


class EchoHarness(vf.Harness[vf.HarnessConfig]):
    EXECUTES_CODE, NEEDS_CONTAINER = False, False
    TOOL = {"name": "echo", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        messages = [{"role": "user", "content": data.prompt}]
        body = {"model": ctx.model, "messages": messages, "tools": [{"type": "function", "function": self.TOOL}]}
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}) as http:
            while True:
                async with http.post(f"{endpoint}/chat/completions", json=body) as response:
                    message = (await response.json())["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                (call,) = message["tool_calls"]
                text = json.loads(call["function"]["arguments"])["text"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


async def measure(model: str, at_once: int, rounds: int, count: int) -> dict[str, float]:
    """Return the medians over the rounds."""
    config = vf.resolve_env_config({"taskset": {"id": "verifiers_loop"}, "agent": {"runtime": {"type": "subprocess"}}})
    environment = vf.load_environment(config)
    client = vf.EvalClientConfig(base_url=f"{model}/v1", api_key_var="NO_KEY")
    context = vf.ModelContext(model="m", client=client, sampling=vf.SamplingConfig())
    (task,) = environment.taskset
    cells: dict[str, list[float]] = {}
    async with environment.serving():

        async def play(rollouts: int) -> None:
            gate = asyncio.Semaphore(at_once)
            episodes = await asyncio.gather(
                *(environment.run_slot(slot, context, gate) for slot in environment.slots(task, rollouts))
            )
            if not all(episode.ok and episode.traces[0].reward == 1 for episode in episodes):
                raise SystemExit(f"a rollout failed: {episodes[0].traces[0].errors}")

        await play(at_once)
        for _ in range(rounds):
            began, cpu = time.perf_counter(), time.process_time()
            await play(count)
            seconds, spent = time.perf_counter() - began, time.process_time() - cpu
            cells.setdefault("rollouts_per_second", []).append(count / seconds)
            cells.setdefault("client_us", []).append(spent / count * 1e6)
    return {name: statistics.median(values) for name, values in cells.items()}


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    print(json.dumps(asyncio.run(measure(url, *map(int, numbers)))))
