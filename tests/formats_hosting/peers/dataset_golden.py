"""Print what SkyRL's own environment gives for messages: reads [[row, message], ...] as JSON from standard input."""

from __future__ import annotations

import json
import sys

import skyrl_gym


def main() -> None:
    rewards = []
    for row, message in json.load(sys.stdin):
        environment = skyrl_gym.make(row["env_class"], extras=row)
        environment.init(row["prompt"])
        step = environment.step(message)
        assert step["done"]
        rewards.append(float(step["reward"]))
        environment.close()
    print(json.dumps(rewards))


if __name__ == "__main__":
    main()
