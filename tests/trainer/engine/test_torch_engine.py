from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from ludus.trainer.core.config import TorchEngineConfig
from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines import batch
from ludus.trainer.engines.attention import Group, Pass
from ludus.trainer.engines.base import Generation, Sampling, WeightUpdate
from ludus.trainer.engines.decoder import Decoder, forward_of
from ludus.trainer.engines.torch import TorchEngine

VOCABULARY = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "initializer_range": 0.15,
}
NO_DIM = {name: size for name, size in SIZES.items() if name != "head_dim"}
WINDOW: dict[str, Any] = {"sliding_window": 24}
DECODED = {
    "qwen3": Qwen3Config(**SIZES),
    "qwen2": Qwen2Config(**NO_DIM, tie_word_embeddings=True),
    "llama": LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
    "heads": Qwen3Config(**{**SIZES, "num_key_value_heads": 4}),
    "biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "some windows": Qwen3Config(**SIZES, attention_bias=True, use_sliding_window=True, max_window_layers=1, **WINDOW),
    "qwen2 windows": Qwen2Config(**NO_DIM, use_sliding_window=True, max_window_layers=1, **WINDOW),
    "mistral": MistralConfig(**SIZES, **WINDOW),
    "mistral tied": MistralConfig(**SIZES, sliding_window=None, tie_word_embeddings=True),
    "yarn": Qwen3Config(**SIZES, rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}),
}
# These are computed by their modules.
FAMILIES = DECODED | {
    "dynamic": LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
    "granite": GraniteConfig(**NO_DIM),
    "deepseek": DeepseekV3Config(
        **{**NO_DIM, "num_key_value_heads": 4},
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=8,
        first_k_dense_replace=2,
    ),
}


def make_model(family: str = "qwen3", seed: int = 0) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(FAMILIES[family], attn_implementation="eager")
        for weight in model.parameters():
            if weight.ndim == 1:  # Norms and biases, which begin as ones and zeros.
                weight.data += 0.2 * torch.randn_like(weight)
    return model.eval()


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return make_model()


@asynccontextmanager
async def opened(
    model: PreTrainedModel, *, slots: int = 16, cache_tokens: int = 65_536, context: int = 1024
) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(model, TorchEngineConfig(slots=slots, cache_tokens=cache_tokens), context=context)
    try:
        yield engine
    finally:
        await engine.aclose()


@torch.no_grad()
def reference(model: PreTrainedModel, ids: list[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities [n - 1, vocabulary] by one plain forward pass."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    logprobs: torch.Tensor = (logits.float() / temperature).log_softmax(-1)
    return logprobs


def check(model: PreTrainedModel, prompt: list[int], made: Generation, temperature: float = 1.0) -> None:
    expected = reference(model, [*prompt, *made.ids], temperature)[len(prompt) - 1 :]
    expected = expected.gather(1, torch.tensor(made.ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(made.logprobs), expected, atol=1e-5, rtol=0)


def words(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(count)]


async def play(engine: TorchEngine, model: PreTrainedModel, number: int, prompt: list[int], turns: int = 3) -> None:
    """An episode: turns of the policy and observations in between."""
    rng = random.Random(number)
    ids = prompt
    for turn in range(turns):
        made = await engine.generate(
            ids, Sampling(rng.randrange(1, 12), (5, 6)), seed=1000 * number + turn, session=str(number)
        )
        check(model, ids, made)
        ids = [*ids, *made.ids, *words(rng, rng.randrange(1, 30))]
    await engine.forget(str(number))


class Counter:
    """How many tokens the engine's model computes."""

    def __init__(self, engine: TorchEngine) -> None:
        self.passes: list[int] = []
        self._forward = engine._batch.forward
        engine._batch.forward = self._counted

    def _counted(self, ids: torch.Tensor, work: Pass, keep: torch.Tensor | None) -> torch.Tensor:
        self.passes.append(len(ids))
        return self._forward(ids, work, keep)


def weights(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    """Return what the learner sends: each parameter once, also if two layers share it."""
    return [(name, weight.detach()) for name, weight in model.named_parameters()]


@pytest.mark.suite("training", first=2)
@pytest.mark.parametrize("family", FAMILIES)
async def test_log_probabilities_are_those_of_a_plain_forward_pass(family: str) -> None:
    model = make_model(family)
    rng = random.Random(0)
    prompts = [words(rng, rng.randrange(2, 90)) for _ in range(4)]
    async with opened(model) as engine:
        await asyncio.gather(*(play(engine, model, number, prompts[number % 4]) for number in range(12)))
        ids = words(rng, 60)
        expected = reference(model, ids).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        torch.testing.assert_close(
            torch.tensor((await engine.logprobs(ids))["the engine"]), expected, atol=1e-5, rtol=0
        )


@pytest.mark.suite("training", first=5)
@pytest.mark.parametrize("family", FAMILIES)
async def test_an_update_reaches_all_weights_in_place(family: str) -> None:
    newer = make_model(family, seed=1)
    ids = words(random.Random(8), 60)
    async with opened(make_model(family)) as engine:
        assert isinstance(engine._batch.forward, Decoder) == (family in DECODED)
        places = [weight.data_ptr() for weight in engine._model.parameters()]
        await engine.update_weights(WeightUpdate(0, weights(newer)))
        assert [weight.data_ptr() for weight in engine._model.parameters()] == places
        expected = reference(newer, ids).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        torch.testing.assert_close(
            torch.tensor((await engine.logprobs(ids))["the engine"]), expected, atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("family", DECODED)
@torch.no_grad()
def test_the_decoder_and_the_modules_give_the_same_logits(family: str) -> None:
    model, ids, positions = make_model(family), torch.arange(50), torch.arange(50)
    decoder = forward_of(model, 64)
    work = Pass([Group(1, positions[None], positions[None], 50, None)], positions)
    kept = torch.tensor([7, 30, 49])
    expected = model(input_ids=ids[None], use_cache=False).logits[0]
    torch.testing.assert_close(decoder(ids, work, None), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(decoder(ids, work, kept), expected[kept], atol=1e-5, rtol=1e-5)
    for layer in model.model.layers:
        for parts in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
            module = layer.self_attn if "q_proj" in parts else layer.mlp
            stored = {module.get_submodule(part).weight.untyped_storage().data_ptr() for part in parts}
            assert len(stored) == 1


async def test_more_sessions_than_slots_or_than_rows_change_nothing_but_speed(model: PreTrainedModel) -> None:
    rng = random.Random(1)
    prompts = [words(rng, 40) for _ in range(5)]
    for slots, cache_tokens in ((3, 2048), (3, 65_536), (64, 1024)):
        async with opened(model, slots=slots, cache_tokens=cache_tokens) as engine:
            await asyncio.gather(*(play(engine, model, number, prompts[number % 5]) for number in range(15)))


async def test_long_prompts_are_computed_in_parts_and_rows_grow(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "PASS_TOKENS", 50)
    rng = random.Random(2)
    prompts = [words(rng, count) for count in (5, 30, 200, 300, 700)]
    async with opened(model, cache_tokens=4096) as engine:
        counter = Counter(engine)
        await asyncio.gather(*(play(engine, model, number, prompts[number % 5], 2) for number in range(10)))
        assert max(counter.passes) <= 50 + 10


async def test_tokens_depend_on_the_seed_and_not_on_the_company(model: PreTrainedModel) -> None:
    rng = random.Random(3)
    prompts = [words(rng, rng.randrange(1, 60)) for _ in range(20)]
    sampling = Sampling(30, (5,))
    async with opened(model) as engine:

        async def sample(number: int) -> Generation:
            return await engine.generate(prompts[number], sampling, seed=number, session=str(number))

        together = await asyncio.gather(*(sample(number) for number in range(20)))
        other = await engine.generate(prompts[0], Sampling(30, ()), seed=77, session="other")
    async with opened(model, slots=1) as engine:
        alone = [await sample(number) for number in range(20)]
    assert [made.ids for made in alone] == [made.ids for made in together]
    assert other.ids[:3] != together[0].ids[:3]


async def test_tokens_are_drawn_with_their_probabilities(model: PreTrainedModel) -> None:
    prompt, draws = [3, 1, 4, 1, 5], 4000
    async with opened(model, slots=512, cache_tokens=262_144) as engine:
        made = await asyncio.gather(
            *(engine.generate(prompt, Sampling(1, ()), seed=seed, session=str(seed)) for seed in range(draws))
        )
    counts = torch.bincount(torch.tensor([one.ids[0] for one in made]), minlength=VOCABULARY)
    expected = reference(model, [*prompt, 0])[-1].exp() * draws
    likely = expected > 5
    statistic = ((counts - expected) ** 2 / expected)[likely].sum()
    # Mean k - 1 and variance 2 (k - 1): five deviations.
    freedom = int(likely.sum()) - 1
    assert freedom > 5
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


async def test_a_temperature_sharpens_and_zero_takes_the_best(model: PreTrainedModel) -> None:
    prompt = [9, 8, 7]
    async with opened(model) as engine:
        cold, cool, plain = await asyncio.gather(
            *(engine.generate(prompt, Sampling(12, (), t), seed=1, session=str(t)) for t in (0.0, 0.5, 1.0))
        )
    check(model, prompt, cool, 0.5)
    check(model, prompt, plain)
    best = reference(model, [*prompt, *cold.ids])[len(prompt) - 1 :].argmax(-1)
    assert cold.ids == tuple(best.tolist())
    assert cold.logprobs == (0.0,) * 12


async def test_a_stop_token_ends_the_generation_and_is_kept(model: PreTrainedModel) -> None:
    async with opened(model) as engine:
        whole = await engine.generate([1, 2], Sampling(20, ()), seed=5, session="a")
        stop = whole.ids[7]
        other = next(token for token in range(VOCABULARY) if token not in whole.ids)
        cut = await engine.generate([1, 2], Sampling(20, (other, stop)), seed=5, session="b")
    assert whole.finish == "length"
    assert len(whole.ids) == 20
    assert cut.finish == "stop"
    assert cut.ids == whole.ids[: whole.ids.index(stop) + 1]


async def test_a_group_computes_its_prompt_once_and_a_turn_only_what_is_new(model: PreTrainedModel) -> None:
    rng = random.Random(4)
    prompt = words(rng, 200)
    async with opened(model) as engine:
        counter = Counter(engine)

        async def turn(ids: list[int], number: int) -> Generation:
            return await engine.generate(ids, Sampling(5, ()), seed=number, session=str(number))

        first = await asyncio.gather(*(turn(prompt, number) for number in range(16)))
        assert sum(counter.passes) < 200 + 16 * 5
        counter.passes.clear()
        second = [[*prompt, *made.ids, *words(rng, 20)] for made in first]
        await asyncio.gather(*(turn(ids, number) for number, ids in enumerate(second)))
        assert sum(counter.passes) == 16 * (20 + 5)


async def test_an_update_during_a_request_changes_the_weights_from_some_token_on(model: PreTrainedModel) -> None:
    newer = make_model(seed=1)
    prompts = [words(random.Random(6), 30)] * 4
    async with opened(model) as engine:
        await engine.update_weights(WeightUpdate(3, weights(model)))
        assert engine.version == 3
        requests = [
            asyncio.ensure_future(engine.generate(prompt, Sampling(400, ()), seed=number, session=str(number)))
            for number, prompt in enumerate(prompts)
        ]
        for _ in range(5):  # Each is answered between two passes.
            await engine.logprobs([1, 2])
        await engine.update_weights(WeightUpdate(4, weights(newer)))
        later = await engine.generate(prompts[0], Sampling(5, ()), seed=9, session="later")
        for prompt, made in zip(prompts, await asyncio.gather(*requests), strict=True):
            cut = made.versions.index(4)
            assert 0 < cut < 400
            assert made.versions == (3,) * cut + (4,) * (400 - cut)
            check(model, prompt, Generation(made.ids[:cut], made.logprobs[:cut], made.versions[:cut], "length"))
            check(newer, [*prompt, *made.ids[:cut]], Generation(made.ids[cut:], made.logprobs[cut:], (), "length"))
    assert later.versions == (4,) * 5
    check(newer, prompts[0], later)


async def test_cached_prefixes_do_not_outlive_the_weights(model: PreTrainedModel) -> None:
    newer = make_model(seed=2)
    prompt = words(random.Random(7), 50)
    async with opened(model) as engine:
        await engine.generate(prompt, Sampling(3, ()), seed=0, session="a")
        await engine.update_weights(WeightUpdate(0, weights(newer)))
        for session in ("a", "b"):
            check(newer, prompt, await engine.generate(prompt, Sampling(3, ()), seed=1, session=session))


async def test_the_engine_keeps_a_copy_of_the_weights(model: PreTrainedModel) -> None:
    changed = make_model()
    async with opened(changed) as engine:
        assert engine.version == -1
        before = await engine.logprobs([1, 2, 3])
        with torch.no_grad():
            changed.get_parameter("lm_head.weight").zero_()
        assert await engine.logprobs([1, 2, 3]) == before


async def test_canceling_the_task_frees_its_slot_and_its_place_in_the_queue(model: PreTrainedModel) -> None:
    async with opened(model, slots=1) as engine:
        long = Sampling(1000, ())
        running = asyncio.ensure_future(engine.generate([1], long, seed=0, session="running"))
        waiting = asyncio.ensure_future(engine.generate([1], long, seed=1, session="waiting"))
        await engine.logprobs([1, 2])
        running.cancel()
        waiting.cancel()
        counter = Counter(engine)
        made = await engine.generate([1, 2], Sampling(3, ()), seed=2, session="next")
        assert len(made.ids) == 3
        assert len(counter.passes) < 100
        assert running.cancelled()
        assert waiting.cancelled()


@pytest.mark.parametrize(
    ("ids", "sampling", "said"),
    [
        ([], Sampling(1, ()), "1 to 1024 tokens"),
        ([VOCABULARY], Sampling(1, ()), "token ids must be from 0 to 96"),
        ([3, -1], Sampling(1, ()), "token ids must be from 0 to 96"),
        ([1] * 1000, Sampling(25, ()), "exceed the context of 1024"),
        ([1] * 1025, Sampling(1, ()), "1 to 1024 tokens, not 1025"),
        ([1], Sampling(0, ()), "at least 1 token"),
        ([1], Sampling(1, (), -0.5), "temperature"),
    ],
)
async def test_what_cannot_be_sampled_is_refused(
    model: PreTrainedModel, ids: list[int], sampling: Sampling, said: str
) -> None:
    async with opened(model) as engine:
        with pytest.raises(EngineError, match=said):
            await engine.generate(ids, sampling, seed=0, session="a")
        whole = await engine.generate([1] * 1000, Sampling(24, ()), seed=0, session="a")
        assert len(whole.ids) == 24


async def test_an_error_in_the_thread_reaches_everybody_and_the_engine_goes_on(model: PreTrainedModel) -> None:
    async with opened(model, slots=2) as engine:

        def fail(*_: Any) -> torch.Tensor:
            raise RuntimeError("the device is on fire")

        async def sample(number: int) -> Generation:
            return await engine.generate([1], Sampling(3, ()), seed=number, session=str(number))

        forward, engine._batch.forward = engine._batch.forward, fail
        results = await asyncio.gather(*(sample(number) for number in range(6)), return_exceptions=True)
        assert {str(result) for result in results} == {
            "the torch engine failed: RuntimeError: the device is on fire",
        }
        assert all(isinstance(result, EngineError) for result in results)
        with pytest.raises(EngineError, match="on fire"):
            await engine.logprobs([1, 2])
        engine._batch.forward = forward
        check(model, [1], await sample(7))


async def test_weights_that_give_nan_are_an_error_and_leave_no_trace(model: PreTrainedModel) -> None:
    bad = make_model()
    with torch.no_grad():
        bad.get_parameter("model.embed_tokens.weight")[2] = torch.nan
    prompt = [1, 2, 3] * 20
    async with opened(model) as engine:
        await engine.update_weights(WeightUpdate(0, weights(bad)))
        with pytest.raises(EngineError, match="version 0 give NaN"):
            await engine.generate(prompt, Sampling(3, ()), seed=0, session="a")
        await engine.update_weights(WeightUpdate(1, weights(model)))
        for session in ("a", "b"):
            check(model, prompt[:10], await engine.generate(prompt[:10], Sampling(30, ()), seed=0, session=session))


def broken_updates() -> Iterator[Any]:
    model = make_model()

    def dies() -> Iterator[tuple[str, torch.Tensor]]:
        yield weights(model)[0]
        raise OSError("gone")

    yield pytest.param(dies, "OSError: gone", id="dies")
    yield pytest.param(lambda: weights(model)[:-1], "lacks lm_head.weight", id="lacks")
    yield pytest.param(lambda: [("lm.weight", torch.zeros(2))], "no such weight", id="unknown")
    yield pytest.param(lambda: [("lm_head.weight", torch.zeros(2))], r"shape \(97, 32\)", id="shape")


@pytest.mark.parametrize(("tensors", "said"), list(broken_updates()))
async def test_a_broken_update_is_refused_and_nothing_sampled_until_a_whole_one(
    model: PreTrainedModel, tensors: Any, said: str
) -> None:
    async with opened(model) as engine:
        with pytest.raises(EngineError, match=said):
            await engine.update_weights(WeightUpdate(0, tensors()))
        with pytest.raises(EngineError, match="update to version 0 did not end"):
            await engine.generate([1], Sampling(3, ()), seed=0, session="a")
        with pytest.raises(EngineError, match="mixture"):
            await engine.logprobs([1, 2])
        await engine.update_weights(WeightUpdate(1, weights(model)))
        check(model, [1], await engine.generate([1], Sampling(3, ()), seed=0, session="a"))


async def test_closing_answers_everybody_and_ends_the_thread(model: PreTrainedModel) -> None:
    async with opened(model, slots=1) as engine:
        requests = [
            asyncio.ensure_future(engine.generate([1], Sampling(1000, ()), seed=number, session=str(number)))
            for number in range(3)
        ]
        await engine.logprobs([1, 2])
        await engine.aclose()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [str(result) for result in results] == ["the torch engine was closed"] * 3
        assert not engine._thread.is_alive()
        with pytest.raises(EngineError, match="closed"):
            await engine.generate([1], Sampling(1, ()), seed=0, session="a")
        await engine.forget("a")


async def test_half_precision_weights_keep_exact_rotary_positions(model: PreTrainedModel) -> None:
    engine = TorchEngine(model, TorchEngineConfig(), context=64, dtype=torch.bfloat16)
    try:
        made = await engine.generate([1, 2, 3], Sampling(40, ()), seed=0, session="a")
        frequencies = [value for name, value in engine._model.named_buffers() if name.endswith("inv_freq")]
        assert all(value.dtype == torch.float32 for value in frequencies)
    finally:
        await engine.aclose()
    expected = reference(model, [1, 2, 3, *made.ids])[2:].gather(1, torch.tensor(made.ids)[:, None])[:, 0]
    assert (torch.tensor(made.logprobs) - expected).abs().mean() < 0.1


def test_a_cache_that_cannot_work_is_refused_at_once(model: PreTrainedModel) -> None:
    with pytest.raises(ConfigError, match="cache_tokens"):
        TorchEngine(model, TorchEngineConfig(cache_tokens=100), context=101)
