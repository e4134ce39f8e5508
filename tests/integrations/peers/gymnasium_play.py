"""Check and play exported packages with Gymnasium itself; every warning is an error."""

import importlib
import json
import os
import pickle
import signal
import sys
import warnings

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from ludus.integrations.gymnasium import ADAPTER, LudusEnv
from ludus.integrations.unscored import UNSCORED


def action_of(env, action):
    """Return the action of a space for a call or an answer, as the exported package describes it."""
    space, tools = env.action_space, env.unwrapped.tools
    if isinstance(space, gymnasium.spaces.Discrete):
        (value,) = action["arguments"].values()
        return np.int64(value)
    if "answer" in action:
        return {"tool": np.int64(len(tools)), "arguments": action["answer"]}
    return {"tool": np.int64(tools.index(action["tool"])), "arguments": json.dumps(action["arguments"])}


def play(env, episode):
    prompt, info = env.reset(seed=episode["seed"])
    steps = []
    for step in episode["steps"]:
        text, reward, terminated, truncated, more = env.step(action_of(env, step["action"]))
        assert text in env.observation_space
        ended = more["end_reason"] or None
        steps.append({"text": text, "reward": reward, "terminated": terminated, "truncated": truncated,
                      "end_reason": ended, "error": more["error"] or None})  # fmt: skip
    return {"prompt": prompt, "steps": steps, **info}


def imported(given):
    sys.path[:0] = given["folders"]
    for module in given["modules"]:
        importlib.import_module(module)


def checks(given):
    imported(given)
    for env_id in given["ids"]:
        env = gymnasium.make(env_id)
        check_env(env.unwrapped)
        env.close()
    return {"checked": given["ids"]}


def golden(given):
    imported(given)
    found = {}
    for env_id, episodes in given["episodes"].items():
        env = gymnasium.make(env_id)
        found[env_id] = [play(env, episode) for episode in episodes]
        env.close()
    return found


def vectors(given):
    imported(given)
    found = {}
    for env_id in given["ids"]:
        single = gymnasium.make(env_id)
        expected = [single.reset(seed=seed)[0] for seed in (5, 6, 7)]
        single.close()
        for mode, more in (("sync", {}), ("async", {"vector_kwargs": {"shared_memory": False}})):
            vector = gymnasium.make_vec(env_id, num_envs=3, vectorization_mode=mode, **more)
            texts, infos = vector.reset(seed=5)
            assert list(texts) == expected, texts
            vector.action_space.seed(1)
            texts, rewards, *_ = vector.step(vector.action_space.sample())
            found[f"{env_id} {mode}"] = [len(texts), len(rewards)]
            vector.close()
    try:
        gymnasium.make_vec(given["ids"][0], num_envs=2, vectorization_mode="async")
    except TypeError as error:
        found["shared"] = str(error)
    return found


def objects(given):
    """Pickles, options, refusals and the order of calls, over the server of the tests."""
    env = LudusEnv(given["url"], "sums")
    other = pickle.loads(pickle.dumps(env))
    assert env.reset(seed=3) == other.reset(seed=3)
    assert env.reset() != env.reset()
    _, info = env.reset(seed=1, options={"task": "sum-1004", "split": "test"})
    _, again = env.reset(seed=1, options={"index": 4, "split": "test"})
    found = {"info": info, "again": again, "space": str(env.action_space), "tools": env.tools, "refused": []}
    for options in ({"tsk": "sum-1"}, {"task": "sum-1000000"}, {"split": "nowhere"}):
        found["refused"].append(raised(lambda options=options: env.reset(options=options)))
    env.reset(seed=1)
    found["outside"] = raised(lambda: env.step({"tool": np.int64(9), "arguments": "{}"}))
    text, reward, *ends, more = env.step({"tool": np.int64(0), "arguments": "{"})
    found["malformed"] = [text, reward, ends, more["error"]]
    env.step({"tool": np.int64(2), "arguments": "12"})
    found["ended"] = raised(lambda: env.step(env.action_space.sample()))
    env.close()
    env.close()
    other.close()
    multi = LudusEnv(given["url"], "sums", action="add:a=0..9,b=0..9")
    multi.reset(seed=1)
    found["multi"] = [str(multi.action_space), multi.step(np.array([3, 9]))[0]]
    multi.close()

    def make(**options):
        return raised(lambda: LudusEnv(given["url"], **options))

    found["wrong"] = [make(), make(environment="sms"), make(environment="sums", action="sub"),
                      make(environment="sums", action="add"), make(environment="sums", max_chars=9),
                      make(environment="sums", render_mode="human")]  # fmt: skip
    return found


def outages(given):
    """Unscored episodes: a broken environment, and a server that is killed in the middle of an episode."""
    env = LudusEnv(given["breaking"], "every_third_breaks")
    ends = []
    for seed in range(6):
        env.reset(seed=seed)
        ends.append(raised(lambda: env.step({"tool": np.int64(1), "arguments": '{"number": 1000}'})))
    env.close()
    found = {"ends": ends, "counted": UNSCORED[ADAPTER]}
    env = LudusEnv(given["doomed"], "sums", reconnect_seconds=0.2)
    env.reset(seed=1)
    os.kill(given["process"], signal.SIGKILL)
    found["killed"] = raised(lambda: env.step({"tool": np.int64(0), "arguments": '{"a": 1, "b": 2}'}))
    found["gone"] = raised(lambda: env.reset(seed=2))
    env.close()
    return found


def served(given):
    """An environment that serves itself while it is open."""
    env = LudusEnv(given["source"], "guess_number", python=given["python"])
    text, info = env.reset(seed=3)
    process = env._server.url
    copy = pickle.loads(pickle.dumps(env))
    assert copy.reset(seed=3) == (text, info)
    assert copy._server.url != process
    urls = [env._server.url, copy._server.url]
    env.close()
    copy.close()
    return {"urls": urls, "info": info, "wrong": raised(lambda: LudusEnv("nothing_here", python=given["python"]))}


def raised(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    warnings.simplefilter("error")
    given = json.loads(sys.argv[1])
    print(json.dumps(globals()[given["run"]](given)))
