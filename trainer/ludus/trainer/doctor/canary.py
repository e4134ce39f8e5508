"""The check of the torch engine next to the learner, in one process: the canary's calibration."""

from __future__ import annotations

import asyncio
from itertools import count

from ludus.trainer.core.config import TorchEngineConfig
from ludus.trainer.doctor.context import Context
from ludus.trainer.doctor.divergence import calibrate
from ludus.trainer.doctor.learning import configuration, make_learner
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.learning.model import load_model

CONTEXT = 512


def run(context: Context) -> None:
    """Calibrate the canary."""
    asyncio.run(_run(context))


async def _run(context: Context) -> None:
    config = configuration(context)
    learner = make_learner(context, config)
    model = load_model(config.model, learner.parallel.device)
    settings = TorchEngineConfig(slots=8, cache_tokens=8 * CONTEXT)
    engine = TorchEngine(model, settings, context=CONTEXT, dtype=learner.dtype)
    del model
    versions = count()

    async def update() -> None:
        await engine.update_weights(WeightUpdate(next(versions), learner.weights(learner.dtype)))

    try:
        await update()
        await calibrate(context, engine, learner, update)
    finally:
        await engine.aclose()
