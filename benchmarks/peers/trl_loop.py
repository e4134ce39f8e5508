"""TRL's GRPOTrainer on the toy task of benchmarks/trainer_loop.py. Run by the `trl` peer's Python.

    python trl_loop.py MODEL PROMPTS_JSON STEPS SEED

Prints one JSON object per optimizer step: seconds since the first one began, and its mean reward.
"""

import json
import sys
import time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

MODEL, PROMPTS, STEPS, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
GROUPS, GROUP_SIZE, LENGTH = 8, 8, 32


def reward(completions, answer, **_):
    """The share of digits among the characters, and 1 for the exact sum."""
    found = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        digits = sum(c in "0123456789" for c in text) / len(text) if text else 0.0
        found.append(digits + float(text.strip() == right))
    return found


class Tell(TrainerCallback):
    """A line per step."""

    began = 0.0

    def on_train_begin(self, *_, **__):
        Tell.began = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "reward" in logs:
            print(
                json.dumps({"seconds": time.perf_counter() - Tell.began, "reward": float(logs["reward"])}), flush=True
            )


def main():
    torch.set_num_threads(2)
    rows = json.load(open(PROMPTS))
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": q}], "answer": a} for q, a in rows])
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    arguments = GRPOConfig(
        output_dir="/tmp/unused", max_steps=STEPS, seed=SEED, use_cpu=True, bf16=False, report_to=[],
        per_device_train_batch_size=GROUPS * GROUP_SIZE, num_generations=GROUP_SIZE, max_completion_length=LENGTH,
        learning_rate=1e-3, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.99, weight_decay=0.0,
        max_grad_norm=1.0, loss_type="dapo", beta=0.0, epsilon=0.2, epsilon_high=0.28, temperature=1.0,
        scale_rewards="group", logging_steps=1, save_strategy="no", disable_tqdm=True, dataloader_num_workers=0,
    )  # fmt: skip
    GRPOTrainer(
        model=model, reward_funcs=reward, args=arguments, train_dataset=data, processing_class=tokenizer,
        callbacks=[Tell()],
    ).train()  # fmt: skip


main()
