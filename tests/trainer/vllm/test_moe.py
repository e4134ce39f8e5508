"""A mixture of experts has other names in memory than in its checkpoint; servers know the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learners import configure, make_batch, make_learner
from moe_models import make_moe
from safetensors.torch import load_file, save_file

from ludus.trainer.core.config import CanaryConfig, TorchEngineConfig
from ludus.trainer.core.errors import ModelError
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.canary import Canary
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.learning.checkpoint_names import require_checkpoint_names
from ludus.trainer.learning.losses import policy_objective
from ludus.trainer.learning.model import load_model


@pytest.fixture(params=["mixtral", "qwen3_moe"])
def moe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_moe(request.param, tmp_path)


def test_a_server_gets_the_tensors_that_the_checkpoint_has(moe: Path) -> None:
    learner = make_learner(configure(moe))
    checkpoint = load_file(moe / "model.safetensors")
    sent = dict(learner.weights(torch.float32, as_checkpoint=True))
    assert sent.keys() == checkpoint.keys()
    assert any("experts.0." in name for name in sent)
    for name, tensor in sent.items():
        assert torch.equal(tensor, checkpoint[name]), name
    assert {name for name, _ in learner.weights(torch.float32)} == {
        name for name, _ in learner.model.named_parameters()
    }


async def test_the_engine_in_this_process_samples_what_the_learner_learned(moe: Path) -> None:
    config = configure(moe)
    learner = make_learner(config)
    engine = TorchEngine(load_model(config.model), TorchEngineConfig(cache_tokens=4096), context=256)
    canary = Canary(engine, CanaryConfig(), dtype="float32", ids=list(range(40)))

    async def expected(ids: Any) -> list[float]:
        return learner.sequence_logprobs(ids)

    try:
        for version in range(2):
            await engine.update_weights(WeightUpdate(version, learner.weights(torch.float32)))
            assert await canary.check(expected) < 1e-5
            learner.step(make_batch(version), policy_objective(config.loss))
    finally:
        await engine.aclose()


def test_a_model_whose_names_the_server_would_not_know_is_refused_at_startup(tmp_path: Path) -> None:
    folder = make_moe("mixtral", tmp_path)
    path = folder / "model.safetensors"
    renamed = {name.replace("block_sparse_moe", "sparse"): tensor for name, tensor in load_file(path).items()}
    model = load_model(configure(folder).model)
    require_checkpoint_names(model, folder)
    save_file(renamed, path)
    with pytest.raises(ModelError, match="mixtral model, such as model.layers.0.block_sparse_moe"):
        require_checkpoint_names(model, folder)
