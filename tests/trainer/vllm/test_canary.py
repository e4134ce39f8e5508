from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from stub_vllm import StubVllm

from ludus.trainer.core.config import CanaryConfig
from ludus.trainer.core.errors import CanaryError
from ludus.trainer.engines.canary import Canary
from ludus.trainer.engines.vllm import VllmEngine

Connect = Callable[..., Awaitable[VllmEngine]]


def off_by(difference: float) -> Callable[[Sequence[int]], Awaitable[list[float]]]:
    """A learner that differs from the stubs, which say -1 everywhere."""

    async def learner(ids: Sequence[int]) -> list[float]:
        return [-1.0 + difference] * (len(ids) - 1)

    return learner


def canary(engine: VllmEngine, *, dtype: str = "float32", measured: float | None = None, **settings: Any) -> Canary:
    config = CanaryConfig(tokens=16, **settings)
    return Canary(engine, config, dtype=dtype, ids=[7, 8, 9, 10, 11], measured=measured)


async def test_the_first_check_measures_what_the_later_ones_allow(connect: Connect) -> None:
    checks = canary(await connect(StubVllm()), dtype="bfloat16")
    assert checks.tolerance == 0.1
    assert await checks.check(off_by(2e-2)) == pytest.approx(2e-2)
    assert checks.tolerance == pytest.approx(8e-2)
    assert await checks.check(off_by(5e-2)) == pytest.approx(5e-2)
    assert checks.tolerance == pytest.approx(8e-2)  # only the first one counts
    with pytest.raises(CanaryError, match=r"0\.09 nats .*the first check found 0\.02"):
        await checks.check(off_by(9e-2))


async def test_a_first_check_that_is_far_off_stops_the_run(connect: Connect) -> None:
    engine = await connect(StubVllm())
    with pytest.raises(CanaryError, match=r"0\.002 nats .*for the first check"):
        await canary(engine).check(off_by(2e-3))
    with pytest.raises(CanaryError, match=r"0\.2 nats"):
        await canary(engine, dtype="bfloat16").check(off_by(0.2))


async def test_what_is_exact_at_first_need_not_stay_exact_to_the_last_bit(connect: Connect) -> None:
    checks = canary(await connect(StubVllm()))
    assert await checks.check(off_by(0.0)) == 0
    assert await checks.check(off_by(9e-5)) == pytest.approx(9e-5)
    with pytest.raises(CanaryError):
        await checks.check(off_by(2e-4))


async def test_a_resumed_run_allows_what_its_first_check_found(connect: Connect) -> None:
    engine = await connect(StubVllm())
    with pytest.raises(CanaryError):
        await canary(engine, measured=1e-5).check(off_by(5e-4))


async def test_a_configured_tolerance_is_the_tolerance(connect: Connect) -> None:
    engine = await connect(StubVllm())
    assert await canary(engine, tolerance=0.5).check(off_by(0.4)) == pytest.approx(0.4)
    with pytest.raises(CanaryError, match=r"engine\.canary\.tolerance\)"):
        await canary(engine, tolerance=1e-4).check(off_by(5e-4))


async def test_a_difference_that_is_not_a_number_stops_the_run(connect: Connect) -> None:
    engine = await connect(StubVllm())
    with pytest.raises(CanaryError, match="nan"):
        await canary(engine).check(off_by(float("nan")))


async def test_one_wrong_server_of_several_is_found_and_named(connect: Connect) -> None:
    right, wrong = StubVllm(), StubVllm()
    engine = await connect(right, wrong)

    async def stale(request: web.Request, body: Any) -> web.Response:
        entries = [None, *({str(token): {"logprob": -1.5}} for token in body["token_ids"][1:])]
        return web.json_response({"prompt_logprobs": entries, "choices": []})

    wrong.on["/inference/v1/generate"] = stale
    with pytest.raises(CanaryError) as found:
        await canary(engine).check(off_by(0.0))
    assert wrong.url in str(found.value)
    assert right.url not in str(found.value)


async def test_the_probe_is_the_same_text_at_every_check(connect: Connect) -> None:
    stub = StubVllm()
    checks = canary(await connect(stub))
    await checks.check(off_by(0.0))
    await checks.check(off_by(0.0))
    first, second = stub.bodies("/inference/v1/generate")
    assert first["token_ids"] == second["token_ids"] == ([7, 8, 9, 10, 11] * 4)[:16]
