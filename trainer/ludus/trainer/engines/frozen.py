"""Engines that sample from frozen snapshots of the policy, next to the engine of the policy in training.

* `torch`: an engine of its own for each snapshot, with a copy of the weights, a cache and a thread.
* `vllm` with `sync = "lora"`: the same servers, which hold the snapshots' adapters next to the current one.
* `vllm` with other kinds of `sync`: none, because a server holds one set of weights; the configuration is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ludus.trainer.core.config import ModelConfig, TrainConfig
from ludus.trainer.learning.model import load_model

if TYPE_CHECKING:
    from ludus.trainer.core.frozen import FrozenEngine
    from ludus.trainer.engines.base import Engine


def frozen_engines(
    config: TrainConfig, engine: Engine, device: torch.device
) -> Callable[[Path], Awaitable[FrozenEngine]]:
    """Return what opens the engine of the snapshot in a folder."""
    if config.engine.kind == "torch":

        async def load(folder: Path) -> FrozenEngine:
            from ludus.trainer.engines.torch import TorchEngine

            model = await asyncio.to_thread(load_model, ModelConfig(path=str(folder)), device)
            return TorchEngine(
                model, config.engine.torch, context=config.rollouts.context, dtype=getattr(torch, config.model.dtype)
            )

        return load
    from ludus.trainer.engines.vllm import VllmEngine

    assert isinstance(engine, VllmEngine)
    return engine.frozen
