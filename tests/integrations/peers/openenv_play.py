"""Play episodes with the client of an exported folder, which is OpenEnv's own."""

import importlib
import json
import os
import signal
import sys


def action_of(module, action):
    return module.GuessedAction(**action) if hasattr(module, "GuessedAction") else module.SumsAction(**action)


def play(module, url, episode):
    env_class = getattr(module, "GuessedEnv", None) or module.SumsEnv
    with env_class(base_url=url).sync() as env:
        first = env.reset(seed=episode["seed"])
        steps = []
        for step in episode["steps"]:
            result = env.step(action_of(module, step["action"]))
            seen = result.observation
            assert (seen.reward, seen.done) == (result.reward, result.done)
            steps.append({"text": seen.text, "reward": result.reward, "error": seen.error, "done": result.done,
                          "end_reason": (result.metadata or {}).get("end_reason"),
                          "shown": sorted(seen.model_dump())})  # fmt: skip
        state = env.state()
        return {"prompt": first.observation.text, "steps": steps, "first": first.observation.model_dump(),
                "counted": state.step_count}  # fmt: skip


def golden(given):
    sys.path.insert(0, given["folder"])
    module = importlib.import_module(given["module"])
    return {"episodes": [play(module, given["url"], episode) for episode in given["episodes"]]}


def refusals(given):
    """What is refused, and an outage in the middle of an episode."""
    sys.path.insert(0, given["folder"])
    module = importlib.import_module(given["module"])
    action = module.SumsAction
    with module.SumsEnv(base_url=given["url"]).sync() as env:
        found = {"early": raised(lambda: env.step(action(tool="add")))}
        found["argument"] = raised(lambda: env.reset(seed=1, color="red"))
        found["task"] = raised(lambda: env.reset(task="sum-1000000"))
        env.reset(split="test", task="sum-1004", seed=1)
        both = env.step(action(tool="add", answer="1")).observation
        found["both"] = [both.text, both.error]
        env.step(action(answer="1"))
        found["ended"] = raised(lambda: env.step(action(tool="add")))
        env.reset(seed=1)
        os.kill(given["process"], signal.SIGKILL)
        found["killed"] = raised(lambda: env.step(action(tool="add", arguments={"a": 1, "b": 2})))
        found["after"] = raised(lambda: env.step(action(tool="add", arguments={"a": 1, "b": 2})))
    return found


def both(given):
    return {**golden(given), **refusals(given)}


def raised(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(globals()[given["run"]](given)))
