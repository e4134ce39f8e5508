"""TRL's own GRPOTrainer on recorded batches, a step at a time: `python trl_update.py CASE.json`.

The trainer is TRL's from the first to the last line: its loop, its padding (prompts on the left, completions on the
right, all to the longest of the batch), loss, backward pass, clipping and optimizer. Only generation is replaced, by
the recorded batch. Speaks the lines that benchmarks/trainer_update.py describes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from trainer_update import Meter

CASE = json.loads(Path(sys.argv[1]).read_text())
GPU = CASE["device"] == "cuda"


def recorded() -> dict[str, torch.Tensor]:
    """The batch in the form that TRL's `_generate_and_score_completions` gives."""
    flat = load_file(Path(CASE["folder"]) / "batch.safetensors")
    lengths, prompts = flat["lengths"].tolist(), flat["prompts"].tolist()
    ids, behavior = flat["ids"].split(lengths), flat["behavior"].split(lengths)
    left = max(prompts)
    right = max(n - p for n, p in zip(lengths, prompts, strict=True))
    count, pad = len(lengths), CASE["pad"]
    out = {
        "prompt_ids": torch.full((count, left), pad),
        "prompt_mask": torch.zeros(count, left, dtype=torch.long),
        "completion_ids": torch.full((count, right), pad),
        "completion_mask": torch.zeros(count, right, dtype=torch.long),
        "old_per_token_logps": torch.zeros(count, right),
        "advantages": flat["advantages"],
        "num_items_in_batch": torch.tensor(sum(lengths) - sum(prompts)),
    }
    for row, (tokens, logprobs, p) in enumerate(zip(ids, behavior, prompts, strict=True)):
        n = len(tokens) - p
        out["prompt_ids"][row, left - p :] = tokens[:p]
        out["prompt_mask"][row, left - p :] = 1
        out["completion_ids"][row, :n] = tokens[p:]
        out["completion_mask"][row, :n] = 1
        out["old_per_token_logps"][row, :n] = logprobs[p:]
    return {name: tensor.to(CASE["device"]) for name, tensor in out.items()}


class Recorded(GRPOTrainer):
    """Generation replaced."""

    batch: dict[str, torch.Tensor]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        return dict(self.batch)


class Steps(TrainerCallback):
    """Does a step for each line of stdin."""

    def __init__(self) -> None:
        self.meter: Meter | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.meter is None:
            self.meter = Meter(CASE["device"])
        self.meter.wait()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step == 0 and CASE["gradients"]:
            began = time.perf_counter()
            save_file({n: p.grad for n, p in model.named_parameters()}, CASE["gradients"])
            self.meter.leave_out(began)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.meter.done()


def main() -> None:
    torch.set_num_threads(CASE["threads"])
    dtype = torch.bfloat16 if GPU and CASE["trl_weights"] == "bfloat16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(
        CASE["folder"], dtype=dtype, attn_implementation=CASE["trl_attention"]
    ).to(CASE["device"])
    tokenizer = AutoTokenizer.from_pretrained(CASE["folder"])
    batch = recorded()
    count = len(batch["advantages"])
    accumulation = count // CASE["per_device"]
    settings = GRPOConfig(
        output_dir=str(Path(CASE["folder"]) / "trl"),
        per_device_train_batch_size=CASE["per_device"],
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation,
        num_generations=8,
        max_steps=1_000_000,
        loss_type="dapo",
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        scale_rewards="none",
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=CASE["clip"],
        bf16=GPU,
        gradient_checkpointing=False,
        use_cpu=not GPU,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Recorded(
        model=model,
        processing_class=tokenizer,
        args=settings,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["-"] * count}),
        callbacks=[Steps()],
    )
    trainer.batch = batch
    trainer.train()


if __name__ == "__main__":
    main()
