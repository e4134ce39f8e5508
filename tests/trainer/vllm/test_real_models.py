"""A real vLLM server takes what a learner learned, and samples what the learner computes, for several models."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
from learners import configure, make_batch, make_learner
from moe_models import make_moe
from token_play import Recorder, assert_samples_are_what_was_seen, played
from transformers import AutoTokenizer
from vllm_servers import MARKS, vllm_config

from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol.items import text_message
from ludus.rendering import Renderer
from ludus.trainer.core.config import CanaryConfig, RolloutConfig
from ludus.trainer.core.probe import TEXT
from ludus.trainer.doctor.model import build
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.canary import Canary
from ludus.trainer.engines.vllm import VllmEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import policy_objective

ROOT = Path(__file__).parents[3]
CONTEXT = 1024
pytestmark = MARKS


def make(kind: str, folder: Path) -> Path:
    """Save a model of this kind, and return its folder."""
    if kind == "mixture of experts":
        return make_moe("mixtral", folder)
    if kind == "tied head":
        return build(folder / "model", small=True, tie_word_embeddings=True)
    if not (ROOT / ".peers" / "smollm2").exists():
        pytest.skip("the peer 'smollm2' is not installed; `python scripts/peers.py smollm2` installs it")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "smollm2.py"), str(folder / "model")], check=True)
    return folder / "model"


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[VllmEngine]:
    engine = await VllmEngine.open(
        vllm_config(), model=str(folder), dtype="float32", context=CONTEXT, folder=folder.parent
    )
    try:
        yield engine
    finally:
        await engine.aclose()


def weights_of(learner: Learner, version: int) -> WeightUpdate:
    return WeightUpdate(
        version, ((name, tensor.clone()) for name, tensor in learner.weights(torch.float32, as_checkpoint=True))
    )


@pytest.mark.parametrize("kind", ["mixture of experts", "tied head", "SmolLM2"])
async def test_a_server_computes_with_the_weights_of_each_update(kind: str, tmp_path: Path) -> None:
    folder = make(kind, tmp_path)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] == (kind != "mixture of experts")
    settings = configure(folder)
    learner = make_learner(settings)
    async with serving(folder) as engine:
        canary = Canary(engine, CanaryConfig(), dtype="float32", ids=AutoTokenizer.from_pretrained(folder).encode(TEXT))

        async def expected(ids: Sequence[int]) -> list[float]:
            return learner.sequence_logprobs(ids)

        for version in range(2):
            await engine.update_weights(weights_of(learner, version))
            assert await canary.check(expected) < 1e-3
            learner.step(make_batch(version), policy_objective(settings.loss))


async def test_a_pretrained_model_learns_from_the_tokens_that_its_server_sampled(tmp_path: Path) -> None:
    folder = make("SmolLM2", tmp_path)
    learner = make_learner(configure(folder))
    renderer = Renderer(AutoTokenizer.from_pretrained(folder), tool_calls="hermes")
    settings = RolloutConfig(max_tokens=24, context=CONTEXT)
    said = ["Why?<|im_end|>\n<|im_start|>assistant\nBecause", "  1 234,5 €\n\n", "naïve 😀", "Go on."]
    async with serving(folder) as server:
        await server.update_weights(weights_of(learner, 0))

        async def play(number: int) -> None:
            engine = Recorder(server)
            policy = TokenPolicy(engine, renderer, settings, session=str(number), seed=number)
            await played(
                policy,
                [text_message("user", f"Tell me a story about {number} cats.")],
                4,
                lambda turn: said[turn - 1],
                (),
            )
            assert_samples_are_what_was_seen(policy.samples, engine.requests, CONTEXT)
            assert len(engine.requests) == 4
            for sample in policy.samples:
                own = [0.0, *learner.sequence_logprobs(sample.ids)]
                pairs = zip(own, sample.logprobs, sample.mask, strict=True)
                assert max(abs(a - b) for a, b, sampled in pairs if sampled) < 1e-3

        await asyncio.gather(*map(play, range(4)))
