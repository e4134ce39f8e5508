from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from stub_vllm import StubVllm

from ludus.trainer.config import CanaryConfig
from ludus.trainer.engines import canary
from ludus.trainer.engines.vllm import VllmEngine
from ludus.trainer.errors import CanaryError

Connect = Callable[..., Awaitable[VllmEngine]]


def off_by(difference: float) -> Callable[[Sequence[int]], Awaitable[list[float]]]:
    """A learner that differs from the stubs, which say -1 everywhere."""

    async def learner(ids: Sequence[int]) -> list[float]:
        return [-1.0 + difference] * (len(ids) - 1)

    return learner


async def check(engine: VllmEngine, difference: float, **settings: Any) -> float:
    dtype = settings.pop("dtype", "float32")
    config = CanaryConfig(tokens=16, **settings)
    return await canary.check(engine, off_by(difference), config, vocabulary=50, dtype=dtype, seed=3)


async def test_it_returns_the_mean_difference_and_stops_above_the_tolerance(connect: Connect) -> None:
    engine = await connect(StubVllm())
    assert await check(engine, 5e-4) == pytest.approx(5e-4)
    with pytest.raises(CanaryError, match=r"0\.002 nats"):
        await check(engine, 2e-3)
    assert await check(engine, 2e-3, dtype="bfloat16") == pytest.approx(2e-3)
    with pytest.raises(CanaryError):
        await check(engine, 5e-4, tolerance=1e-4)


async def test_a_difference_that_is_not_a_number_stops_the_run(connect: Connect) -> None:
    engine = await connect(StubVllm())
    with pytest.raises(CanaryError, match="nan"):
        await check(engine, float("nan"))


async def test_one_wrong_server_of_several_is_found_and_named(connect: Connect) -> None:
    right, wrong = StubVllm(), StubVllm()
    engine = await connect(right, wrong)

    async def stale(request: web.Request, body: Any) -> web.Response:
        entries = [None, *({str(token): {"logprob": -1.5}} for token in body["token_ids"][1:])]
        return web.json_response({"prompt_logprobs": entries, "choices": []})

    wrong.on["/inference/v1/generate"] = stale
    with pytest.raises(CanaryError) as found:
        await check(engine, 0.0)
    assert wrong.url in str(found.value)
    assert right.url not in str(found.value)


async def test_the_probe_is_the_same_at_every_check(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    await check(engine, 0.0)
    await check(engine, 0.0)
    first, second = stub.bodies("/inference/v1/generate")
    assert first["token_ids"] == second["token_ids"]
    assert len(set(first["token_ids"])) > 4
    assert max(first["token_ids"]) < 50
