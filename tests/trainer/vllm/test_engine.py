from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from aiohttp import web
from stub_vllm import StubVllm

from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines.base import Sampling, WeightUpdate
from ludus.trainer.engines.vllm import VllmEngine

Connect = Callable[..., Awaitable[VllmEngine]]
SAMPLING = Sampling(max_tokens=16, stop=(8, 9))
GENERATE = "/inference/v1/generate"


def weights(version: int) -> WeightUpdate:
    return WeightUpdate(version, {"a.weight": torch.full((2, 2), float(version))}.items())


@pytest.mark.parametrize(
    ("sync", "stub", "named"),
    [
        ("file", StubVllm(without=(GENERATE,)), ["--enable-scale-out"]),
        ("file", StubVllm(without=("/pause",)), ["VLLM_SERVER_DEV_MODE=1"]),
        ("lora", StubVllm(without=("/v1/load_lora_adapter",)), ["VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"]),
        ("file", StubVllm(model_config={"logprobs_mode": "raw_logprobs"}), ["--logprobs-mode=processed_logprobs"]),
        ("file", StubVllm(model_config={"dtype": "torch.bfloat16"}), ["--dtype=float32", "torch.bfloat16"]),
        ("file", StubVllm(model_config={"max_model_len": 100}), ["--max-model-len=512"]),
        ("file", StubVllm(weight_transfer_config=None), ["ludus_file", "--worker-extension-cls"]),
        ("nccl", StubVllm(), ['{"backend": "nccl"}', "it has ludus_file"]),
        ("lora", StubVllm(lora_config=None), ["--enable-lora --max-lora-rank=8"]),
        ("lora", StubVllm(lora_config={"max_lora_rank": 4}), ["--max-lora-rank=8"]),
        ("file", StubVllm(lora_config={"target_modules": None}), ["--lora-target-modules"]),
        ("file", StubVllm(model_config={"dtype": "x"}, weight_transfer_config=None), ["--dtype", "ludus_file"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_an_unfit_server_is_refused_with_the_flag_or_variable_it_lacks(
    connect: Connect, sync: str, stub: StubVllm, named: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        await connect(stub, sync=sync)
    assert all(part in str(refused.value) for part in [stub.url, *named])


async def test_a_request_says_everything_that_a_models_own_defaults_could_change(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    await engine.generate([3, 1, 2], SAMPLING, seed=2**64 + 5, session="s")
    (body,) = stub.bodies(GENERATE)
    assert body["token_ids"] == [3, 1, 2]
    said = body["sampling_params"]
    assert {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }.items() <= said.items()
    assert {"max_tokens": 16, "stop_token_ids": [8, 9], "ignore_eos": True, "seed": 5}.items() <= said.items()


async def test_a_generation_carries_ids_logprobs_and_the_version_of_each_token(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    before = await engine.generate([1], SAMPLING, seed=0, session="s")
    assert (before.ids, before.logprobs, before.versions, before.finish) == (
        (7, 8),
        (-0.5, -float("inf")),
        (-1, -1),
        "stop",
    )
    stub.versions = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
    assert (await engine.generate([1], SAMPLING, seed=0, session="s")).versions == (3, 4)


async def test_a_server_that_does_not_tell_versions_is_refused_at_the_first_answer(connect: Connect) -> None:
    stub = StubVllm()
    stub.versions = None
    engine = await connect(stub)
    with pytest.raises(EngineError, match="weight_versions"):
        await engine.generate([1], SAMPLING, seed=0, session="s")


async def test_an_episode_stays_on_its_server_and_new_ones_go_where_fewest_are(connect: Connect) -> None:
    first, second = StubVllm(), StubVllm()
    engine = await connect(first, second)
    for session in ("a", "b", "c", "a", "b", "c", "a"):
        await engine.generate([ord(session)], SAMPLING, seed=0, session=session)
    assert {body["token_ids"][0] for body in first.bodies(GENERATE)} == {ord("a"), ord("c")}
    assert {body["token_ids"][0] for body in second.bodies(GENERATE)} == {ord("b")}
    await engine.forget("a")
    await engine.forget("c")
    await engine.forget("never seen")
    await engine.generate([ord("d")], SAMPLING, seed=0, session="d")
    assert first.bodies(GENERATE)[-1]["token_ids"] == [ord("d")]


async def test_data_parallel_ranks_are_replicas_of_their_own(connect: Connect) -> None:
    stub = StubVllm(ranks=2)
    engine = await connect(stub)
    for session in ("a", "b", "a"):
        await engine.generate([1], SAMPLING, seed=0, session=session)
    assert [headers["X-data-parallel-rank"] for headers in stub.headers] == ["0", "1", "0"]
    assert list(await engine.logprobs([1, 2, 3])) == [f"{stub.url} (rank 0)", f"{stub.url} (rank 1)"]


async def test_an_update_pauses_all_servers_and_salts_what_is_cached_afterwards(connect: Connect) -> None:
    stubs = StubVllm(), StubVllm()
    engine = await connect(*stubs, clear_cache=False)
    await engine.update_weights(weights(5))
    for stub in stubs:
        assert stub.paths == [
            "/pause?mode=keep&clear_cache=false",
            "/start_weight_update",
            "/update_weights",
            "/finish_weight_update",
            "/resume",
        ]
        assert stub.bodies("/finish_weight_update") == [{"weight_version": "5"}]
    assert engine.version == 5
    await engine.generate([1], SAMPLING, seed=0, session="s")
    assert stubs[0].bodies(GENERATE)[0]["cache_salt"] == "v5"


async def test_after_a_failed_update_nothing_is_sampled_and_waiting_requests_fail_with_its_cause(
    connect: Connect,
) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    asked = asyncio.Event()

    async def never(request: web.Request, body: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def broken(request: web.Request, body: Any) -> web.Response:
        return web.Response(status=500, text="no room on the device")

    stub.on = {GENERATE: never, "/update_weights": broken}
    waiting = asyncio.ensure_future(engine.generate([1], SAMPLING, seed=0, session="s"))
    await asked.wait()
    with pytest.raises(EngineError, match="no room on the device"):
        await engine.update_weights(weights(1))
    for refused in (waiting, engine.generate([1], SAMPLING, seed=0, session="s"), engine.update_weights(weights(2))):
        with pytest.raises(EngineError, match="no room on the device"):
            await refused
    assert engine.version == -1


async def test_a_cancelled_update_leaves_an_engine_that_refuses(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    asked = asyncio.Event()

    async def never(request: web.Request, body: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    stub.on["/update_weights"] = never
    update = asyncio.ensure_future(engine.update_weights(weights(1)))
    await asked.wait()
    update.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update
    with pytest.raises(EngineError, match="version 1"):
        await engine.generate([1], SAMPLING, seed=0, session="s")


async def test_an_update_that_does_not_end_is_given_up_in_time(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub, sync_seconds=0.1)

    async def never(request: web.Request, body: Any) -> None:
        await asyncio.Event().wait()

    stub.on["/finish_weight_update"] = never
    with pytest.raises(EngineError, match=r"0\.1 s"):
        await engine.update_weights(weights(1))


async def test_an_update_that_a_killed_trainer_left_open_is_ended_first(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)

    async def once(request: web.Request, body: Any) -> web.Response | None:
        if stub.paths.count("/start_weight_update") > 1:
            return None
        return web.Response(status=500, text="called while a weight update is already active")

    stub.on["/start_weight_update"] = once
    await engine.update_weights(weights(0))
    assert stub.paths[1:4] == ["/start_weight_update", "/finish_weight_update", "/start_weight_update"]
    assert engine.version == 0


async def test_a_request_is_sent_again_over_a_new_connection_when_its_own_was_closed(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)

    async def hang_up(request: web.Request, body: Any) -> None:
        if len(stub.asked) == 1:
            assert request.transport is not None
            request.transport.close()

    stub.on[GENERATE] = hang_up
    assert (await engine.generate([1], SAMPLING, seed=0, session="s")).ids == (7, 8)
    assert stub.paths == [GENERATE, GENERATE]


async def test_a_silent_server_and_one_that_is_gone_are_errors_in_time(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub, request_seconds=0.1)

    async def never(request: web.Request, body: Any) -> None:
        await asyncio.Event().wait()

    async def hang_up(request: web.Request, body: Any) -> None:
        assert request.transport is not None
        request.transport.close()

    stub.on[GENERATE] = never
    with pytest.raises(EngineError, match=r"did not answer .* within 0\.1 s"):
        await engine.generate([1], SAMPLING, seed=0, session="s")
    stub.on[GENERATE] = hang_up
    with pytest.raises(EngineError, match="is gone"):
        await engine.generate([1], SAMPLING, seed=0, session="s")


async def test_a_cancelled_request_is_cancelled_and_nothing_else_is(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    asked = asyncio.Event()

    async def never(request: web.Request, body: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    stub.on[GENERATE] = never
    request = asyncio.ensure_future(engine.generate([1], SAMPLING, seed=0, session="s"))
    await asked.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    stub.on.clear()
    assert (await engine.generate([1], SAMPLING, seed=0, session="s")).ids == (7, 8)


async def test_closing_ends_the_requests_under_way(connect: Connect) -> None:
    stub = StubVllm()
    engine = await connect(stub)
    asked = asyncio.Event()

    async def never(request: web.Request, body: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    stub.on[GENERATE] = never
    request = asyncio.ensure_future(engine.generate([1], SAMPLING, seed=0, session="s"))
    await asked.wait()
    await engine.aclose()
    with pytest.raises(EngineError, match="closed"):
        await request


async def test_frozen_adapters_sample_next_to_the_current_one_and_stay_when_it_changes(
    connect: Connect, tmp_path: Path
) -> None:
    stub = StubVllm()
    engine = await connect(stub, sync="lora")
    await engine.update_weights(WeightUpdate(1, (), tmp_path / "v1"))
    frozen = await engine.frozen(tmp_path / "step-00000000")
    await engine.update_weights(WeightUpdate(2, (), tmp_path / "v2"))
    await engine.generate([1, 2], SAMPLING, seed=1, session="own")
    await frozen.generate([1, 2], SAMPLING, seed=1, session="frozen")
    await frozen.forget("frozen")
    loaded = {body["lora_path"]: body["lora_name"] for body in stub.bodies("/v1/load_lora_adapter")}
    own, other = stub.bodies(GENERATE)
    assert own["model"] == loaded[str(tmp_path / "v2")]
    assert other["model"] == loaded[str(tmp_path / "step-00000000")]
    assert frozen.context == engine.context
    unloaded = [body["lora_name"] for body in stub.bodies("/v1/unload_lora_adapter")]
    assert unloaded == [loaded[str(tmp_path / "v1")]], "an update leaves the frozen adapter"
    await frozen.aclose()
    unloaded = [body["lora_name"] for body in stub.bodies("/v1/unload_lora_adapter")]
    assert unloaded[1:] == [other["model"]]
