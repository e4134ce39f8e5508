import json
from pathlib import Path
from typing import Any

import rllm  # pyright: ignore[reportMissingImports]
from rllm.eval.types import EvalOutput  # pyright: ignore[reportMissingImports]
from rllm.types import AgentConfig, Episode, Task, Trajectory  # pyright: ignore[reportMissingImports]

from ludus.client import TaskAddress
from ludus.integrations.endpoint import play_task


@rllm.rollout(name="ludus")  # type: ignore[untyped-decorator]
async def play(task: Task, config: AgentConfig) -> Episode:
    address = TaskAddress.from_json(task.metadata["ludus"])
    run = await play_task(address, config.model, base_url=config.base_url, api_key="EMPTY", adapter="rllm", turns=8)
    value = run.scored()  # raises for an unscored episode: rLLM plays it again, and then leaves it out
    return Episode(trajectories=[Trajectory(name="ludus", reward=value)], artifacts=dict(run.outcome.components))


@rllm.evaluator  # type: ignore[untyped-decorator]
def score(task: Task, episode: Episode) -> EvalOutput:
    value = episode.trajectories[0].reward
    return EvalOutput(reward=value, is_correct=value > 0)


def main(config: Any) -> None:
    from rllm.data.dataset import Dataset  # pyright: ignore[reportMissingImports]
    from rllm.trainer import AgentTrainer  # pyright: ignore[reportMissingImports]

    rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    checks = [json.loads(line) for line in Path("validation.jsonl").read_text().splitlines()]
    AgentTrainer(
        backend="verl",
        agent_flow=play,
        evaluator=score,
        config=config,
        train_dataset=Dataset(rows, "ludus", "train"),
        val_dataset=Dataset(checks, "ludus", "validation"),
    ).train()


if __name__ == "__main__":
    import hydra  # pyright: ignore[reportMissingImports]

    hydra.main(config_path="pkg://rllm.trainer.config", config_name="unified", version_base=None)(main)()
