"""Plays scripted episodes with verifiers' own runner, without Ludus, and prints what it gave as JSON.

    python verifiers_golden.py FOLDER NAME…

FOLDER holds the example environments. Those of v0 run through `Environment.generate` with a client that answers from
the script; tasksets run through `Env.run_slot` with verifiers' harness `null` and an endpoint that does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import types
from importlib.metadata import version

V0 = version("verifiers") < "0.4"


def plays(name):
    """Return the episodes of an example: the index of the task, and what the agent does."""
    rng = random.Random(name)
    for index in range(10):
        for kind in range(3 if V0 else 1 + (name == "roman_numerals")):
            yield index, kind, globals()[name](index, kind, rng)


def say(text):
    return {"say": str(text)}


def use(tool, **arguments):
    return {"tool": tool, "arguments": arguments}


def word_sums(index, kind, rng):
    right = ["12", "31", "33", "48", "32", "6", "27", "42", "38", "196"][index]
    answer = right if kind == 0 else str(rng.randint(1, 99))
    tagged = f"<reasoning>so</reasoning>\n<answer>\n{answer}\n</answer>"
    return [say(tagged if kind < 2 else f"It is {answer}.")]


def number_hunt(index, kind, rng):
    secret = [7, 50, 1, 33, 25, 12, 48, 19, 41, 3][index]
    if kind == 0:
        low, high, said = 1, 50, []
        while not said or said[-1] != secret:
            said.append((low + high) // 2)
            low, high = (said[-1] + 1, high) if said[-1] < secret else (low, said[-1] - 1)
        return [say(f"Is it {one}?") for one in said]
    said = [rng.randint(1, 50) for _ in range(6)]
    return [say("hm, no idea" if kind == 2 and at == 1 else one) for at, one in enumerate(said)]


def stock_room(index, kind, rng):
    wanted, front = 4 + 3 * index, index
    if kind == 0:
        return [use("move", pieces=wanted - front, source="back", target="front"), say(f"It holds {wanted}.")]
    if kind == 1:
        source = rng.choice(["back", "nowhere"])
        return [use("count", shelf="front"), use("move", pieces=99, source=source, target="front"), say("It failed.")]
    moves = [use("move", pieces=rng.randint(1, 3), source="back", target="front") for _ in range(5)]
    return moves


def roman_numerals(index, kind, rng):
    value = [4, 9, 14, 21, 40, 80, 99, 400, 1009, 2026][index]
    return [say(value if kind == 0 else f"I think {value + rng.randint(0, 1)} it is")]


def parcel_scale(index, kind, rng):
    calls = [use("scale_weigh", parcel=one) for one in ("red", "green", "blue")[: rng.randint(1, 3)]]
    calls += [use("scale_weigh", parcel="black")] if index % 3 == 0 else []
    return [*calls, say(rng.choice(["red", "green", "blue"]))]


def letter_game(index, kind, rng):
    word = ["garden", "window", "silver", "castle", "violin", "summer", "bridge", "pepper", "rocket", "anchor"][index]
    if index % 2:
        return [say(rng.choice("aeirst")), say(word)]
    return [say(letter) for letter in rng.sample("abcdefghijklmnoprstuvw", 5)]


class Script:
    """Answers requests with the actions of an episode, and notes the messages that were new each time."""

    def __init__(self, actions):
        self.actions = list(actions)
        self.seen = []
        self.known = 0

    def completion(self, messages):
        """Return the next action as a chat completion."""
        self.seen.append([content for one in messages[self.known :] for content in texts(one)])
        self.known = len(messages) + 1
        number = len(self.seen)
        action = self.actions[number - 1]
        message = {"role": "assistant", "content": action.get("say")}
        if "tool" in action:
            function = {"name": action["tool"], "arguments": json.dumps(action["arguments"])}
            message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        reason = "tool_calls" if "tool" in action else "stop"
        return {
            "id": str(number), "object": "chat.completion", "created": 0, "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }  # fmt: skip

    def record(self, **more):
        """Return what happened: the prompt, what each action led to, and what the runner gave."""
        steps = self.seen[1:]
        return {"prompt": self.seen[0], "actions": self.actions[: len(self.seen)], "observations": steps, **more}


def texts(message):
    content = message.get("content")
    if isinstance(content, list):
        return [part["text"] for part in content]
    return [content] if content else []


async def played_v0(module, index, script):
    import verifiers as vf
    from openai.types.chat import ChatCompletion

    env = ENVIRONMENTS.setdefault(module, vf.load_environment(module))
    dataset = env.get_dataset()

    async def create(messages, **settings):
        return ChatCompletion.model_validate(script.completion(messages))

    openai = types.SimpleNamespace(chat=types.SimpleNamespace(completions=types.SimpleNamespace(create=create)))
    client = vf.OpenAIChatCompletionsClient(openai)
    given = await env.generate([dataset[index]], client=client, model="scripted", on_start=ignore, on_progress=ignore)
    output = given["outputs"][0]
    said = [json.loads(json.dumps(one, default=vars)) for one in output["completion"]]
    last = max(at for at, one in enumerate(said) if one["role"] == "assistant")
    tail = [content for one in said[last + 1 :] for content in texts(one)]
    return script.record(
        reward=output["reward"], components=output["metrics"], stop=output["stop_condition"], last=tail,
        cut=output["is_truncated"] or output["stop_condition"] == "max_turns_reached",
    )  # fmt: skip


async def played_v1(module, index, script):
    import verifiers.v1 as vf
    from aiohttp import web
    from verifiers.v1.utils.loaders import env_config_type, load_environment, resolve_env_config

    role = next(name for name in env_config_type(module).model_fields if name in ("agent", "player"))
    seat = {"runtime": {"type": "subprocess"}, "harness": {"id": "null"}}
    env = load_environment(resolve_env_config({"taskset": {"id": module}, role: seat}))

    async def respond(request):
        completion = script.completion((await request.json())["messages"])
        choice = completion["choices"][0]
        calls = [{"index": at, **one} for at, one in enumerate(choice["message"].pop("tool_calls", []))]
        choice["delta"] = {**choice.pop("message"), **({"tool_calls": calls} if calls else {})}
        body = f"data: {json.dumps({**completion, 'object': 'chat.completion.chunk'})}\n\ndata: [DONE]\n\n"
        return web.Response(text=body, content_type="text/event-stream")

    application = web.Application()
    application.router.add_post("/v1/chat/completions", respond)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    async with env.serving():
        slot = env.slots(list(env.taskset)[index])[0]
        episode = await env.run_slot(slot, vf.ModelContext(model="scripted", client=client))
    await runner.cleanup()
    if not episode.ok:
        raise SystemExit(f"verifiers failed: {[*episode.errors, *episode.traces[0].errors]}")
    trace = episode.traces[0]
    components = {**trace.metrics, **{name: one.score for name, one in trace.rewards.items()}}
    return script.record(
        reward=trace.reward, components=components, stop=trace.stop_condition, last=[], cut=trace.is_truncated
    )


ENVIRONMENTS = {}


def ignore(*arguments, **named):
    """Show no progress."""


async def main(folder, names):
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = folder  # of the processes with tools, which have other working directories
    room = asyncio.Semaphore(1 if V0 else 2)
    found = []

    async def play(name, index, kind, actions):
        async with room:
            record = await (played_v0 if V0 else played_v1)(name, index, Script(actions))
        found.append({"environment": name, "index": index, "kind": kind, **record})

    await asyncio.gather(*(play(name, *one) for name in names for one in plays(name)))
    return sorted(found, key=lambda one: (one["environment"], one["index"], one["kind"]))


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        recorded = asyncio.run(main(os.path.abspath(sys.argv[1]), sys.argv[2:]))
    print(json.dumps({"verifiers": version("verifiers"), "episodes": recorded}, indent=1))
