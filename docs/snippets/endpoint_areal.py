import os
import sys
from typing import Any

from ludus.client import TaskAddress
from ludus.integrations.endpoint import play_task
from ludus.integrations.peers import require

require("areal", "1.0.4")


class LudusAgent:
    """Plays the task of a row. In the mode `subproc`, AReaL gives the endpoint in variables instead of arguments."""

    async def run(self, data: dict[str, Any], **given: Any) -> float:
        run = await play_task(
            TaskAddress.from_json(data["ludus"]),
            "default",
            base_url=given.get("base_url") or os.environ["OPENAI_BASE_URL"],
            api_key=given.get("api_key"),
            options={"temperature": 1.0, "top_p": 1.0, "max_completion_tokens": 1024},
            adapter="areal",
            turns=8,
        )
        return run.scored()  # raises for an unscored episode: AReaL rejects it


def main(arguments: list[str]) -> None:
    from areal import PPOTrainer  # pyright: ignore[reportMissingImports]
    from areal.api.cli_args import PPOConfig, load_expr_config  # pyright: ignore[reportMissingImports]
    from datasets import Dataset  # pyright: ignore[reportMissingImports]

    config, _ = load_expr_config(arguments, PPOConfig)
    rows = Dataset.from_json(config.train_dataset.path)
    valid = Dataset.from_json(config.valid_dataset.path)
    with PPOTrainer(config, train_dataset=rows, valid_dataset=valid) as trainer:
        agent = "endpoint_areal.LudusAgent"
        trainer.train(workflow=agent, eval_workflow=agent, workflow_kwargs={}, eval_workflow_kwargs={})


if __name__ == "__main__":
    main(sys.argv[1:])
