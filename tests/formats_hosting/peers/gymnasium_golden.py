"""Record episodes of Gymnasium with its own loop: the orders come as JSON on standard input, episodes go out as JSON.

An order is `{"target", "make", "seed", "steps", "render"}`; the actions are drawn from the action space with the seed.
"""

import hashlib
import importlib
import json
import os
import sys
import warnings

import gymnasium
import numpy


def listed(value):
    if isinstance(value, dict):
        return {name: listed(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [listed(item) for item in value]
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return value.tolist()
    return value


def made(order):
    module, _, name = order["target"].rpartition(":")
    if not module.endswith("small_spaces.py") or name == "Small-v0":
        return gymnasium.make(name if module.endswith(".py") else order["target"], **order["make"])
    return getattr(importlib.import_module("small_spaces"), name)(**order["make"])


def record(order):
    env = made(order)
    env.action_space.seed(order["seed"])
    seen, actions, rewards, rendered = [], [], [], []
    observation, _ = env.reset(seed=order["seed"])
    terminated = truncated = False
    while True:
        seen.append(listed(observation))
        if order["render"]:
            picture = env.render()
            rendered.append(picture if isinstance(picture, str) else hashlib.sha256(picture.tobytes()).hexdigest())
        if terminated or truncated or len(actions) == order["steps"]:
            break
        action = env.action_space.sample()
        actions.append(listed(action))
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
    env.close()
    return {"order": order, "seen": seen, "actions": actions, "rewards": rewards, "rendered": rendered,
            "terminated": bool(terminated), "truncated": bool(truncated)}  # fmt: skip


def main():
    warnings.simplefilter("ignore")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    importlib.import_module("small_spaces")
    for order in json.load(sys.stdin):
        print(json.dumps(record(order)), flush=True)


if __name__ == "__main__":
    main()
