"""Train a tiny model with TRL's GRPOTrainer on a mix of environments, and report what was drawn and rewarded.

trl_mix.py '{"mix": "mix.toml", "steps": 6, "mode": "rollout"}'
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from importlib.resources import files
from typing import Any

import torch
from tiny_calls import make_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from ludus.integrations.trl_mix import MixedRows
from ludus.integrations.trl_rollout import LudusRollout

SIZE = 4


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Train, and return the rewards of each batch with the figures of the mix."""
    mixed = MixedRows(given["mix"], seed=1)
    calls = [{"name": "submit", "arguments": {"number": number}} for number in range(2, 19)]
    folder = tempfile.mkdtemp()
    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text("utf-8")
    make_model(folder, calls, ["The sum is 7."], template=template)
    seen: list[dict[str, Any]] = []

    def reward(completions: list[Any], **columns: Any) -> list[float | None]:
        found = mixed.outcome_reward(completions, **columns)
        names = [address["environment"] for address in columns["ludus"]]
        seen.append({"groups": columns["ludus_group"], "environments": names, "rewards": found})
        return found

    config = GRPOConfig(
        output_dir=folder, max_steps=given["steps"], per_device_train_batch_size=2 * SIZE, num_generations=SIZE,
        max_completion_length=256, learning_rate=1e-2, use_cpu=True, bf16=False, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, seed=1, chat_template_kwargs={"enable_thinking": False},
        max_tool_calling_iterations=4, shuffle_dataset=False,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder), processing_class=AutoTokenizer.from_pretrained(folder),
        args=config, reward_funcs=[reward], train_dataset=mixed.dataset(), rollout_func=LudusRollout(),
    )  # fmt: skip
    trainer.train()
    records = {
        label: {"groups": record.groups, "drawn": record.drawn, "episodes": record.episodes, "passes": record.passes}
        for label, record in mixed.mix.mixer.records.items()
    }
    return {"seen": seen, "records": records, "shares": mixed.mix.mixer.shares()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(main(json.loads(sys.argv[1]))))
