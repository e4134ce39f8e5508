import asyncio
import json
import random
import sys
from pathlib import Path

import art  # pyright: ignore[reportMissingImports]

from ludus.client import TaskAddress
from ludus.integrations.endpoint import play_task
from ludus.integrations.peers import require

require("openpipe-art", "0.5.23")


async def rollout(model: art.Model, task: TaskAddress) -> art.Trajectory:
    run = await play_task(
        task, model.get_inference_name(), client=model.openai_client(), adapter="art", turns=8, replay=True
    )
    return art.Trajectory(
        messages_and_choices=run.messages_and_choices(),
        tools=run.tools or None,
        reward=run.scored(),  # raises for an unscored episode; without a reward, ART counts 0.0
        metrics=dict(run.outcome.components),
    )


async def play_group(model: art.Model, task: TaskAddress, size: int = 8) -> art.TrajectoryGroup:
    return await art.trajectory_group((rollout(model, task) for _ in range(size)), return_exceptions=True)


async def train(tasks: list[TaskAddress]) -> None:
    from art.local import LocalBackend  # pyright: ignore[reportMissingImports]

    model = art.TrainableModel(name="ludus-agent", project="ludus", base_model="Qwen/Qwen3-1.7B")
    backend = LocalBackend()
    await model.register(backend)
    for _ in range(await model.get_step(), 200):
        groups = await asyncio.gather(*(play_group(model, task) for task in random.sample(tasks, 8)))
        result = await backend.train(model, groups, learning_rate=1e-5)
        await model.log(groups, split="train", step=result.step, metrics=result.metrics)


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    asyncio.run(train([TaskAddress.from_json(json.loads(line)["ludus"]) for line in lines]))
