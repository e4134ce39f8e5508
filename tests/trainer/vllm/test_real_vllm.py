"""A real `vllm serve`, on the CPU, with a tiny model. One server for the module; the last test kills it."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from vllm_servers import MARKS, vllm_config

from ludus.gateway.completions import CompletionsEngine
from ludus.trainer.core.config import CanaryConfig, LoraConfig, VllmEngineConfig
from ludus.trainer.core.errors import CanaryError, EngineError
from ludus.trainer.core.probe import TEXT
from ludus.trainer.core.tiny import make_tiny_model
from ludus.trainer.engines.base import Generation, Sampling, WeightUpdate
from ludus.trainer.engines.canary import Canary
from ludus.trainer.engines.vllm import VllmEngine

LORA = LoraConfig(rank=4, alpha=8.0)
CONTEXT = 2048
pytestmark = [*MARKS, pytest.mark.asyncio(loop_scope="module")]


class Learner:
    """The same weights in transformers; what the learner will say."""

    def __init__(self, folder: Path) -> None:
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def logprobs(self, ids: Sequence[int]) -> list[float]:
        rows = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        own: list[float] = rows[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        return own

    async def expected(self, ids: Sequence[int]) -> list[float]:
        return self.logprobs(ids)

    @torch.no_grad()
    def change(self, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in self.model.parameters():
            parameter += 0.03 * torch.randn_like(parameter)

    def update(self, version: int) -> WeightUpdate:
        return WeightUpdate(version, ((name, tensor.clone()) for name, tensor in self.model.state_dict().items()))

    def difference(self, prompt: Sequence[int], generation: Generation, begin: int = 0) -> float:
        """The greatest one, of the sampled tokens from `begin`."""
        own = self.logprobs([*prompt, *generation.ids])[len(prompt) - 1 :]
        return max(abs(a - b) for a, b in zip(own[begin:], generation.logprobs[begin:], strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("vllm") / "model", vocabulary=320, layers=2)


@pytest.fixture(scope="module")
def learner(folder: Path) -> Learner:
    return Learner(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(folder: Path, learner: Learner) -> AsyncIterator[VllmEngine]:
    config = vllm_config(
        *("--enable-lora", "--max-lora-rank=8", "--max-loras=2", "--lora-target-modules", *LORA.targets),
        VLLM_ALLOW_RUNTIME_LORA_UPDATING="1",
    )
    engine = await VllmEngine.open(
        config, model=str(folder), dtype="float32", context=CONTEXT, folder=folder.parent, lora=LORA
    )
    await engine.update_weights(learner.update(0))
    yield engine
    await engine.aclose()


def many(engine: VllmEngine, tokens: int) -> list[asyncio.Future[Generation]]:
    """The same long request several times: enough work to be met in the middle of it."""
    return [
        asyncio.ensure_future(engine.generate([3, 2, 1], Sampling(tokens, ()), seed=1, session=str(place)))
        for place in range(8)
    ]


async def until_sampling(engine: VllmEngine, requests: Sequence[asyncio.Future[Generation]]) -> None:
    """Until a request is running."""
    while True:
        assert not all(request.done() for request in requests), "they were over before they were seen running"
        metrics: str = await engine.replicas[0].server.get("/metrics", seconds=10)
        (line,) = (line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running{"))
        if float(line.split()[-1]):
            return


def child(pid: int) -> int:
    """The first process that `pid` started."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def check(engine: VllmEngine, learner: Learner) -> float:
    canary = Canary(engine, CanaryConfig(), dtype="float32", ids=list(TEXT.encode()))
    return await canary.check(learner.expected)


async def test_the_completions_endpoint_gives_the_rollout_service_exact_tokens(
    engine: VllmEngine, learner: Learner, folder: Path
) -> None:
    """The endpoint that `ludus.gateway.completions` uses, with its own request."""
    prompt, url = [5, 4, 3, 2], f"{engine.replicas[0].server.url}/v1"
    async with CompletionsEngine(str(folder), url, version=8) as completions:
        assert completions.context == CONTEXT
        whole = await completions.generate(prompt, Sampling(24, ()), seed=6, session="s")
        assert learner.difference(prompt, whole) <= 1e-4
        assert set(whole.versions) <= {0, 8}, "what vLLM reports, or what the caller said"
        at = next(at for at, token in enumerate(whole.ids) if token not in whole.ids[:at] and at >= 5)
        ended = await completions.generate(prompt, Sampling(24, (whole.ids[at],)), seed=6, session="s")
        assert (ended.ids, ended.finish) == (whole.ids[: at + 1], "stop"), "the token that ends a turn is among them"
        hot = await completions.generate(prompt, Sampling(24, (), temperature=2.0), seed=6, session="s")
        assert learner.difference(prompt, hot) > 0.1, "log-probabilities are those after temperature"


async def test_sampled_tokens_have_the_probabilities_that_transformers_computes(
    engine: VllmEngine, learner: Learner
) -> None:
    prompts = [[1, 2, 3], [4] * 40, list(range(100))]
    generations = await asyncio.gather(
        *(engine.generate(prompt, Sampling(48, ()), seed=at, session=str(at)) for at, prompt in enumerate(prompts))
    )
    for prompt, generation in zip(prompts, generations, strict=True):
        assert (len(generation.ids), generation.finish) == (48, "length")
        assert generation.versions == (0,) * 48
        assert learner.difference(prompt, generation) <= 1e-4
    (found,) = (await engine.logprobs(prompts[2])).values()
    assert found == pytest.approx(learner.logprobs(prompts[2]), abs=1e-4)


async def test_a_seed_makes_a_request_its_own_and_repeatable(engine: VllmEngine) -> None:
    seeds = [11, 12, 13, 11]
    first, second, third, again = await asyncio.gather(
        *(engine.generate([5, 6], Sampling(12, ()), seed=seed, session=str(at)) for at, seed in enumerate(seeds))
    )
    assert first.ids == again.ids
    assert len({first.ids, second.ids, third.ids}) == 3


async def test_the_stop_token_is_kept_and_nothing_else_stops(engine: VllmEngine, learner: Learner) -> None:
    whole = await engine.generate([9, 8], Sampling(64, ()), seed=3, session="s")
    stop = whole.ids[20]
    cut = await engine.generate([9, 8], Sampling(64, (stop,)), seed=3, session="s")
    assert (cut.ids, cut.finish) == (whole.ids[: whole.ids.index(stop) + 1], "stop")
    assert learner.difference([9, 8], cut) <= 1e-4


async def test_temperature_is_that_of_the_returned_probabilities(engine: VllmEngine, learner: Learner) -> None:
    greedy = await engine.generate([9, 8], Sampling(1, (), temperature=0.0), seed=3, session="s")
    with torch.no_grad():
        logits = learner.model(torch.tensor([[9, 8]])).logits[0, -1].double()
    assert greedy.ids == (int(logits.argmax()),)
    warm = await engine.generate([9, 8], Sampling(1, (), temperature=2.0), seed=3, session="s")
    assert warm.logprobs[0] == pytest.approx(float((logits / 2).log_softmax(-1)[warm.ids[0]]), abs=1e-4)


async def test_an_update_reaches_requests_under_way_from_some_token_on(engine: VllmEngine, learner: Learner) -> None:
    before = copy.deepcopy(learner)
    learner.change(1)
    first = await engine.generate([3, 2, 1], Sampling(8, ()), seed=1, session="s")
    requests = many(engine, 1500)
    await until_sampling(engine, requests)
    await engine.update_weights(learner.update(1))
    assert engine.version == 1
    assert await check(engine, learner) < 1e-4
    generation = (await asyncio.gather(*requests))[0]
    assert sorted(generation.versions) == list(generation.versions)
    assert set(generation.versions) == {0, 1}
    cut = generation.versions.index(1)
    assert generation.ids[:cut][:8] == first.ids[:cut]
    assert learner.difference([3, 2, 1], generation, cut) <= 1e-3
    begun = Generation(generation.ids[:cut], generation.logprobs[:cut], generation.versions[:cut], "length")
    assert before.difference([3, 2, 1], begun) <= 1e-3
    again = await engine.generate([3, 2, 1], Sampling(8, ()), seed=1, session="s")
    assert learner.difference([3, 2, 1], again) <= 1e-4  # its prompt was in the cache, of the old weights


async def test_the_canary_finds_weights_that_are_not_the_learners(engine: VllmEngine, learner: Learner) -> None:
    update = learner.update(2)
    wrong = {name: tensor * 1.1 if "layers.1.mlp.up" in name else tensor for name, tensor in update.tensors}
    await engine.update_weights(WeightUpdate(2, wrong.items()))
    with pytest.raises(CanaryError, match="version 2"):
        await check(engine, learner)
    await engine.update_weights(learner.update(3))
    assert await check(engine, learner) < 1e-4


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")  # peft asks transformers
async def test_a_new_adapter_is_a_new_version_and_requests_under_way_keep_theirs(
    engine: VllmEngine, learner: Learner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=LORA.rank, lora_alpha=LORA.alpha, target_modules=list(LORA.targets))
    adapted = peft.get_peft_model(learner.model, settings)
    learner.model = adapted
    adapters = await VllmEngine.open(
        VllmEngineConfig(urls=(engine.replicas[0].server.url,), sync="lora"),
        model="the same",
        dtype="float32",
        context=CONTEXT,
        folder=tmp_path_factory.mktemp("lora"),
        lora=LORA,
    )
    try:
        sampled: list[Generation] = []
        for version in (0, 1):
            torch.manual_seed(version)
            for name, parameter in adapted.named_parameters():
                if "lora_B" in name:
                    parameter.data.normal_(0.0, 0.2)
            path = tmp_path_factory.mktemp("adapter")
            adapted.save_pretrained(str(path))
            await adapters.update_weights(WeightUpdate(version, (), adapter=path))
            assert await check(adapters, learner) < 1e-4
            sampled.append(await adapters.generate([7, 7, 7], Sampling(24, ()), seed=5, session="s"))
            assert sampled[-1].versions == (version,) * 24
            assert learner.difference([7, 7, 7], sampled[-1]) <= 1e-4
        assert sampled[0].ids != sampled[1].ids
        models = await adapters.replicas[0].server.get("/v1/models", seconds=10)
        names = [model["id"] for model in models["data"]]
        assert [name.rpartition("-")[2] for name in names[1:]] == ["v1"]
    finally:
        learner.model = adapted.unload()
        await adapters.aclose()


async def test_a_killed_server_is_an_error_that_says_so_at_once(engine: VllmEngine) -> None:
    requests = many(engine, 2000)
    await until_sampling(engine, requests)
    process = engine.replicas[0].server.process
    assert process is not None
    os.kill(child(process.pid), signal.SIGKILL)
    async with asyncio.timeout(30):
        with pytest.raises(EngineError, match=r"killed by SIGKILL[\s\S]*vllm\.log"):
            await requests[0]
        others = await asyncio.gather(*requests, return_exceptions=True)
        assert {type(outcome) for outcome in others} == {EngineError}
        with pytest.raises(EngineError, match="is gone"):
            await engine.update_weights(WeightUpdate(9, ()))
