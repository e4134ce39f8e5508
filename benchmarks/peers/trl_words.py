"""TRL's trainer on word problems through our adapter, for benchmarks/pretrained.py. Run by the `trl` peer's Python.

    python trl_words.py URL MODEL OUT SEED

Saves the trained model in OUT, with its steps in OUT/trl.json. The settings are those of trainer/configs/smollm2.toml,
with twice as many steps of half as many episodes and one update each: TRL computes the prompt of a group once for each
of its episodes.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from ludus.client import ServerAddress
from ludus.integrations.trl import outcome_reward, rows
from ludus.integrations.trl_rollout import LudusRollout

URL, MODEL, OUT, SEED = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
STEPS = 30


def main() -> None:
    warnings.simplefilter("ignore")
    arguments = GRPOConfig(
        output_dir=str(OUT), max_steps=STEPS, seed=SEED, num_generations=16, per_device_train_batch_size=16,
        gradient_accumulation_steps=4, max_completion_length=8, temperature=1.0, beta=0.0, scale_rewards="batch",
        learning_rate=1.5e-5, lr_scheduler_type="constant_with_warmup", warmup_steps=2, adam_beta2=0.95,
        use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], save_strategy="no", logging_steps=1,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), reward_funcs=outcome_reward,
        args=arguments, train_dataset=Dataset.from_list(rows(ServerAddress(URL), "word_problems", seed=SEED)),
        processing_class=AutoTokenizer.from_pretrained(MODEL), rollout_func=LudusRollout(max_turns=1),
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(OUT))
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    (OUT / "trl.json").write_text(json.dumps({"steps": STEPS, "rewards": rewards}), encoding="utf-8")


main()
