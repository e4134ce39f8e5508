"""Plays CUBE's benchmarks with CUBE's own `run_debug_episode` and an agent with scripted random actions."""

import importlib
import json
import logging
import random
import sys
from pathlib import Path

from cube.core import Action
from cube.testing import run_debug_episode

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "formats" / "cube"))
logging.disable(logging.CRITICAL)
CONFIGS = {"arithmetic-cube": "arithmetic_cube.benchmark:ArithmeticBenchmarkConfig", "crates": "crates:CratesConfig"}


def seen(observation):
    """Return an observation as texts and images."""
    found = []
    for message in observation.to_llm_messages():
        parts = message["content"] if isinstance(message["content"], list) else [message["content"]]
        for part in parts:
            if isinstance(part, str):
                found.append(part)
            else:
                head, _, data = part["image_url"]["url"].partition(";base64,")
                found.append({"image": data, "mime": head[len("data:") :]})
    return found


def choose(name, task, dice):
    """Return an action."""
    if dice.random() < 0.04:
        return "final_step", {}
    if name == "arithmetic-cube":
        right = dice.random() < 0.5
        return "submit_answer", {"answer": task.metadata.expected if right else dice.randint(0, 120)}
    kind = dice.choice(["move"] * 8 + ["look", "photograph"])
    if kind != "move":
        return kind, {}
    piles, goal = task.tool.piles, task.goal
    wanted = goal[len(piles["right"])] if goal.startswith(piles["right"]) else None
    for place, pile in piles.items():
        if dice.random() < 0.8:
            if wanted and pile.endswith(wanted):
                return "move", {"source": place, "target": "right"}
            if place == "right" and pile and wanted is None:
                return "move", {"source": "right", "target": dice.choice(["left", "middle"])}
    return "move", {"source": dice.choice(list(piles)), "target": dice.choice(list(piles))}


def play(name, benchmark, split, index, config, seed):
    """Return one episode."""
    dice, task = random.Random(f"{name} {seed}"), benchmark.spawn(config)
    step, outputs, observations, actions = task.step, [], [], []

    def keep(action):
        outputs.append(step(action))
        return outputs[-1]

    object.__setattr__(task, "step", keep)

    def agent(observation, action_set):
        if not observations:
            observations.append(seen(observation))
        tool, arguments = choose(name, task, dice)
        actions.append([tool, arguments])
        return Action(name=tool, arguments=arguments)

    most = dice.choice([3, 10, 25])
    report = run_debug_episode(task, agent, max_steps=most)
    assert report["error"] is None, report
    steps = [
        {"action": action, "shown": seen(output.obs), "done": output.done, "evaluation": output.reward,
         "failed": output.error is not None}
        for action, output in zip(actions, outputs, strict=True)
    ]  # fmt: skip
    evaluated = report["done"] or task.validate_per_step
    return {
        "split": split, "index": index, "id": config.task_id, "start": observations[0], "steps": steps,
        "reward": report["reward"] if evaluated else 0.0, "done": report["done"],
    }  # fmt: skip


def main():
    """Play what standard input asks for."""
    plan = json.loads(sys.stdin.read())
    module, _, kind = CONFIGS[plan["benchmark"]].partition(":")
    config = getattr(importlib.import_module(module), kind)()
    config.install()
    benchmark = config.make()
    places = {}
    for one in config.get_task_configs():
        places.setdefault(one.metadata.split, []).append(one)
    found = [(split, index, one) for split, tasks in places.items() for index, one in enumerate(tasks)]
    episodes = [play(plan["benchmark"], benchmark, *found[seed % len(found)], seed) for seed in range(plan["episodes"])]
    benchmark.close()
    print(json.dumps(episodes))


main()
