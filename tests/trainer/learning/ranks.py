"""A program for torchrun: learns what each scenario of a folder says on its ranks, and writes down the outcome.

A scenario is a pickle of (config, batches); one whose name begins with `kept` keeps the policy after the first batch as
the reference. NAME.out holds what every rank saw, NAME.safetensors the last weights, NAME.model the export of some.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from ludus.trainer.core.errors import LearningError
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import policy_objective
from ludus.trainer.learning.model import load_model, load_tokenizer
from ludus.trainer.learning.parallel import Parallel


def learn(scenario: Path, out: Path) -> None:
    config, batches = pickle.loads(scenario.read_bytes())
    parallel = Parallel(config.parallel, "cpu")
    torch.manual_seed(0)
    learner = Learner(config, load_model(config.model), parallel)
    for group in learner.optimizer.param_groups:
        group["eps"] = 1e-4  # as `learners.steady` in the process that they are compared with
    seen: dict[str, Any] = {"metrics": [], "error": None}
    for number, batch in enumerate(batches):
        mine = parallel.broadcast(batch if parallel.first else None)
        try:
            seen["metrics"].append(learner.step(mine, policy_objective(config.loss)))
        except LearningError as error:
            seen["error"] = number, str(error)
        if number == 0 and scenario.stem.startswith("kept"):
            learner.keep_reference()
    samples = [item.sample for item in batches[0].samples]
    seen["logprobs"] = [values.tolist() for values in learner.logprobs(samples)]
    if config.loss.kl != "none":
        seen["reference"] = [values.tolist() for values in learner.logprobs(samples, reference=True)]
    if scenario.stem in ("fsdp", "bfloat16"):
        learner.export(load_tokenizer(config.model), out.with_suffix(".model"))
    weights = {name: tensor.clone() for name, tensor in learner.weights(torch.float32)}
    seen["names"] = list(weights)
    if config.model.lora is not None:
        learner.save_adapter(out.with_suffix(".adapter"))
    everyone = parallel.gather(seen)
    if parallel.first:
        out.with_suffix(".out").write_bytes(pickle.dumps(everyone))
        save_file(weights, out.with_suffix(".safetensors"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for path in sorted(folder.glob("*.scenario")):
        learn(path, folder / path.stem)
    dist.destroy_process_group()
