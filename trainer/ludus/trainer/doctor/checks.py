"""The list of checks: what each needs, how long it may take, and where it is."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from ludus.trainer.doctor.context import Context

HERE: Final = "ludus.trainer.doctor"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: a function that records figures, and raises CheckFailed for a fault."""

    name: str
    about: str
    function: str
    """`module:function` in this package."""
    seconds: float
    """The time after which it is killed."""
    gpus: int = 1
    """The number of GPUs it needs. On a CPU it runs without, if `cpu` is set."""
    cpu: bool = True
    vllm: Literal["server", "here"] | None = None
    """Whether it needs vLLM's program, or vLLM in this environment too."""

    def load(self) -> Callable[[Context], None]:
        """Import its module and return its function."""
        module, _, function = self.function.partition(":")
        check: Callable[[Context], None] = getattr(importlib.import_module(f"{HERE}.{module}"), function)
        return check


_ALL: Final = (
    Check("attention-sdpa", "packed attention with torch's kernel gives eager logits", "attention:sdpa", 60),
    Check("attention-flex", "packed attention with flex gives eager logits", "attention:flex", 100),
    Check("attention-flash", "packed flash attention gives eager logits", "attention:flash", 60, cpu=False),
    Check("canary", "the torch engine gives the learner's probabilities; stale weights are found", "canary:run", 60),
    Check("weights", "learner to an engine on another rank (NCCL, or gloo), bit by bit", "weights:run", 90, gpus=2),
    Check("update", "updates at 16k tokens: tokens per second, MFU, memory, and a loss that falls", "update:run", 130),
    Check("resume", "a run that was stopped and resumed equals one that was not", "resume:run", 110),
    Check("vllm-file", "weights to vLLM as files, equal bit by bit, and the canary", "vllm:file", 230, vllm="server"),
    Check("vllm-nccl", "weights to vLLM over NCCL, equal bit by bit, and the canary", "vllm:nccl", 230,
          gpus=2, cpu=False, vllm="here"),
)  # fmt: skip
CHECKS: Final = {check.name: check for check in _ALL}
"""All checks by name, in the order in which they run."""
