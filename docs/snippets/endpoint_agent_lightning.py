import json
import os
import sys
from pathlib import Path

from agentlightning.client import AgentLightningAsyncClient  # pyright: ignore[reportMissingImports]

from ludus.client import TaskAddress
from ludus.integrations.endpoint import play_task
from ludus.integrations.peers import require

require("agentlightning", "1.0.2")


class LudusAgent:
    """Plays the task in the variable LUDUS_TASK, which `env_map` sets, and reports its value."""

    async def run(self) -> None:
        events, key = os.environ["AGL_EVENT_URL"], os.environ["AGL_KEY"]
        run = await play_task(
            TaskAddress.from_json(json.loads(os.environ["LUDUS_TASK"])),
            "default",
            base_url=os.environ["AGL_OPENAI_BASE_URL"],
            api_key=key,
            adapter="agent-lightning",
            turns=8,
        )
        async with AgentLightningAsyncClient(key=key) as server:
            if run.outcome.value is None:
                # Agent Lightning trains even on the calls of a rollout that failed, with a reward of 0.0. It reads
                # those of the last attempt, so a last attempt without calls leaves the rollout out.
                status = {"status": {"last_attempt_id": "unscored"}}
                (await server.patch(events.partition("/attempt/")[0], json=status)).raise_for_status()
                run.scored()  # raises, so that the rollout fails
            reward = {"event_type": "reward", "data": {"value": run.outcome.value}}
            (await server.post(events, json=reward)).raise_for_status()


def train(settings: list[str]) -> None:
    from agentlightning.verl.entrypoint import run_ppo  # pyright: ignore[reportMissingImports]
    from hydra import compose, initialize_config_module  # pyright: ignore[reportMissingImports]
    from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]

    with initialize_config_module("agentlightning.verl", version_base=None):
        config = compose("config")
    OmegaConf.set_struct(config, False)
    config = OmegaConf.merge(config, OmegaConf.from_dotlist(settings))
    rows = {}
    for split in ("train", "validation"):
        lines = Path(f"{split}.jsonl").read_text().splitlines()
        rows[split] = [{"ludus": json.loads(line)["ludus"]} for line in lines]
    run_ppo(config, train_dataset=rows["train"], val_dataset=rows["validation"])


if __name__ == "__main__":
    train(sys.argv[1:])
