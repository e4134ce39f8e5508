"""The adapter of TRL in TRL's trainer, for benchmarks/trl_adapter.py. Run by the `trl` peer's Python.

    python trl_rollout.py URL STEPS STARTS

Prints one JSON object: per step the seconds of the step and those in which the trainer waited for the server, and the
seconds of each start of 64 episodes.
"""

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "integrations" / "peers"))

import torch
from datasets import Dataset
from tiny_calls import make_model
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ludus.client import ServerAddress
from ludus.integrations import trl_environment, trl_rollout
from ludus.integrations.trl import LudusEnvironmentFactory, outcome_reward, rows

URL, STEPS, STARTS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SIZE = 64
CALLS = [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "submit", "arguments": {"number": 7}}]


class Clock(TrainerCallback):
    """The seconds of each step, and those in which the trainer waited for the server."""

    def __init__(self) -> None:
        self.waited, self.began, self.steps = 0.0, 0.0, []
        wait = trl_rollout.run_sync

        def timed(work):
            began = time.perf_counter()
            try:
                return wait(work)
            finally:
                self.waited += time.perf_counter() - began

        trl_rollout.run_sync = timed

    def on_step_end(self, *_, **__):
        now = time.perf_counter()
        self.steps.append({"seconds": now - self.began, "waited": self.waited})
        self.began, self.waited = now, 0.0

    def on_train_begin(self, *_, **__):
        self.began = time.perf_counter()


def starts(server: ServerAddress) -> list[float]:
    """Return the seconds of starting 64 episodes of one task through the factory."""
    (row,) = rows(server, "sums", n=1, seed=1)
    factory = LudusEnvironmentFactory(server, "sums", 64)
    environments = [factory() for _ in range(SIZE)]
    found = []
    for _ in range(STARTS):
        began = time.perf_counter()
        for environment in environments:
            environment.reset(**row)
        trl_environment.start_waiting()
        found.append(time.perf_counter() - began)
        outcome_reward([[]] * SIZE, environments=environments)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    server = ServerAddress(URL)
    folder = make_model(tempfile.mkdtemp(), CALLS, ["The sum is 7."], layers=2, hidden=128)
    arguments = GRPOConfig(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=SIZE, num_generations=8, seed=1,
        max_completion_length=96, use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    clock = Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), reward_funcs=outcome_reward,
        args=arguments, train_dataset=Dataset.from_list(rows(server, "sums", n=32, seed=1)), callbacks=[clock],
        processing_class=AutoTokenizer.from_pretrained(folder), rollout_func=trl_rollout.LudusRollout(),
    )  # fmt: skip
    trainer.train()
    print(json.dumps({"steps": clock.steps, "starts": starts(server)}))


main()
