"""A mixture of experts has other names in memory than in its checkpoint; servers know the latter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from learners import configure, make_batch, make_learner
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, MixtralConfig, MixtralForCausalLM, PreTrainedModel, Qwen3MoeConfig
from transformers import Qwen3MoeForCausalLM as Qwen3Moe

from ludus.trainer.config import CanaryConfig, TorchEngineConfig, VllmEngineConfig
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.canary import Canary
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.engines.vllm import VllmEngine
from ludus.trainer.errors import ModelError
from ludus.trainer.learning.checkpoint_names import require_checkpoint_names
from ludus.trainer.learning.losses import policy_objective
from ludus.trainer.learning.model import load_model
from ludus.trainer.tiny import make_tiny_model

VLLM = Path(__file__).parents[3] / ".peers" / "vllm" / "bin" / "vllm"
SIZES: dict[str, Any] = {
    **{"vocab_size": 320, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "num_experts_per_tok": 2},
    **{"max_position_embeddings": 2048, "tie_word_embeddings": False},
}


def make(kind: str, folder: Path) -> Path:
    """A random mixture of experts with a tokenizer."""
    torch.manual_seed(0)
    model: PreTrainedModel
    if kind == "mixtral":
        model = MixtralForCausalLM(MixtralConfig(num_local_experts=4, **SIZES))
    else:
        model = Qwen3Moe(Qwen3MoeConfig(num_experts=4, moe_intermediate_size=32, **SIZES))
    AutoTokenizer.from_pretrained(make_tiny_model(folder / "words", vocabulary=320)).save_pretrained(folder / kind)
    model.save_pretrained(folder / kind)
    return folder / kind


@pytest.fixture(params=["mixtral", "qwen3_moe"])
def moe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(request.param, tmp_path)


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
    folder = make("mixtral", tmp_path)
    path = folder / "model.safetensors"
    renamed = {name.replace("block_sparse_moe", "sparse"): tensor for name, tensor in load_file(path).items()}
    model = load_model(configure(folder).model)
    require_checkpoint_names(model, folder)
    save_file(renamed, path)
    with pytest.raises(ModelError, match="mixtral model, such as model.layers.0.block_sparse_moe"):
        require_checkpoint_names(model, folder)


@pytest.mark.suite("vllm")
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not VLLM.exists(), reason="the peer 'vllm' is not installed; `python scripts/peers.py vllm` does it"
)
async def test_a_real_server_takes_what_a_mixture_of_experts_learned(tmp_path: Path) -> None:
    folder = make("mixtral", tmp_path)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["MixtralForCausalLM"]
    settings = configure(folder)
    learner = make_learner(settings)
    config = VllmEngineConfig(
        launch=True,
        command=str(VLLM),
        sync="file",
        start_seconds=800,
        arguments=("--distributed-executor-backend=uni",),
        variables={
            **{"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
            "HF_HUB_OFFLINE": "1",
        },
    )
    engine = await VllmEngine.open(config, model=str(folder), dtype="float32", context=1024, folder=tmp_path)
    canary = Canary(engine, CanaryConfig(), dtype="float32", ids=list(range(40)))

    async def expected(ids: Any) -> list[float]:
        return learner.sequence_logprobs(ids)

    try:
        for version in range(2):
            weights = learner.weights(torch.float32, as_checkpoint=True)
            await engine.update_weights(WeightUpdate(version, ((name, tensor.clone()) for name, tensor in weights)))
            assert await canary.check(expected) < 1e-3
            learner.step(make_batch(version), policy_objective(settings.loss))
    finally:
        await engine.aclose()
