from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aiohttp import web
from safetensors.torch import load_file
from stub_vllm import FakeSender, StubVllm

from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines import vllm, vllm_weights
from ludus.trainer.engines.base import Sampling, WeightUpdate
from ludus.trainer.engines.vllm import VllmEngine

Connect = Callable[..., Awaitable[VllmEngine]]
NCCL: dict[str, Any] = {"weight_transfer_config": {"backend": "nccl"}}
TENSORS = {name: torch.full((4,), float(at)) for at, name in enumerate("abcde")}


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSender]:
    fake = FakeSender()
    monkeypatch.setattr(vllm, "NcclSender", lambda device: fake)
    monkeypatch.setattr(vllm_weights, "BUCKET_BYTES", 32)  # two of the tensors
    yield fake
    fake.release.set()


async def test_nccl_needs_a_learner_on_a_gpu(connect: Connect) -> None:
    with pytest.raises(ConfigError, match="on a GPU"):
        await connect(StubVllm(**NCCL), sync="nccl")


async def test_each_servers_workers_follow_those_of_the_servers_before_it(connect: Connect, sender: FakeSender) -> None:
    stubs = [StubVllm(world=world, **NCCL) for world in (2, 4, 1)]
    infos: list[dict[str, Any]] = []

    async def note(request: web.Request, body: Any) -> None:
        infos.append(body["init_info"])

    for stub in stubs:
        stub.on["/init_weight_transfer_engine"] = note
    await connect(*stubs, sync="nccl", master_address="trainer.example")
    assert sorted(info["rank_offset"] for info in infos) == [1, 3, 7]
    assert {info["world_size"] for info in infos} == {8}
    assert sender.opened == ("trainer.example", infos[0]["master_port"], 8)
    assert all(info["packed"] is True and info["master_address"] == "trainer.example" for info in infos)


async def test_trainer_and_servers_meet_at_the_same_time(connect: Connect, sender: FakeSender) -> None:
    joined, opened = threading.Barrier(3), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def join(request: web.Request, body: Any) -> None:
        await asyncio.to_thread(joined.wait, 10)
        await opened.wait()

    def open_blocking() -> None:
        joined.wait(10)
        loop.call_soon_threadsafe(opened.set)

    stubs = StubVllm(**NCCL), StubVllm(**NCCL)
    for stub in stubs:
        stub.on["/init_weight_transfer_engine"] = join
    sender.during_open = open_blocking
    await connect(*stubs, sync="nccl")


async def test_a_bucket_is_gathered_in_full_before_its_broadcast_in_the_same_thread(
    connect: Connect, sender: FakeSender
) -> None:
    stub = StubVllm(**NCCL)
    engine = await connect(stub, sync="nccl")
    events: list[tuple[str, str]] = []

    def gather() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in TENSORS.items():
            events.append((f"gather {name}", threading.current_thread().name))
            yield name, tensor

    def broadcast() -> None:
        events.append(("broadcast " + " ".join(name for name, _ in sender.sent[-1]), threading.current_thread().name))

    sender.during_broadcast = broadcast
    await engine.update_weights(WeightUpdate(2, gather()))
    steps = [what for what, _ in events]
    assert steps == [
        *("gather a", "gather b", "gather c", "broadcast a b"),
        *("gather d", "gather e", "broadcast c d"),
        "broadcast e",
    ]
    assert {thread for _, thread in events} == {"ludus-nccl"}
    assert [body["update_info"] for body in stub.bodies("/update_weights")] == [
        {"names": names, "dtype_names": ["float32"] * len(names), "shapes": [[4]] * len(names)}
        for names in (["a", "b"], ["c", "d"], ["e"])
    ]


async def test_a_server_that_fails_in_a_broadcast_is_an_error_at_once_though_nccl_hangs(
    connect: Connect, sender: FakeSender
) -> None:
    stub = StubVllm(**NCCL)
    engine = await connect(stub, sync="nccl", sync_seconds=20)
    broadcasting = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(broadcasting.set)
        sender.release.wait()

    async def fail(request: web.Request, body: Any) -> web.Response:
        await broadcasting.wait()
        return web.Response(status=500, text="CUDA out of memory")

    sender.during_broadcast = hang
    stub.on["/update_weights"] = fail
    async with asyncio.timeout(5):
        with pytest.raises(EngineError, match="CUDA out of memory"):
            await engine.update_weights(WeightUpdate(1, TENSORS.items()))
        with pytest.raises(EngineError, match="CUDA out of memory"):
            await engine.generate([1], Sampling(1, ()), seed=0, session="s")
        await engine.aclose()


async def test_a_broadcast_without_an_end_is_given_up_in_time(connect: Connect, sender: FakeSender) -> None:
    engine = await connect(StubVllm(**NCCL), sync="nccl", sync_seconds=0.2)
    sender.during_broadcast = sender.release.wait
    with pytest.raises(EngineError, match=r"0\.2 s .*sync_seconds"):
        await engine.update_weights(WeightUpdate(1, TENSORS.items()))


async def test_a_server_that_never_meets_the_trainer_is_named_by_the_address_it_was_given(
    connect: Connect, sender: FakeSender
) -> None:
    stub = StubVllm(**NCCL)

    async def never(request: web.Request, body: Any) -> None:
        await asyncio.Event().wait()

    stub.on["/init_weight_transfer_engine"] = never
    sender.during_open = sender.release.wait
    with pytest.raises(EngineError, match="trainer.example"):
        await connect(stub, sync="nccl", sync_seconds=0.2, master_address="trainer.example")


async def test_a_failed_gather_is_raised_as_it_is(connect: Connect, sender: FakeSender) -> None:
    engine = await connect(StubVllm(**NCCL), sync="nccl")

    def gather() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", TENSORS["a"]
        raise ArithmeticError("the learner's own")

    with pytest.raises(ArithmeticError, match="the learner's own"):
        await engine.update_weights(WeightUpdate(1, gather()))


async def test_files_are_whole_when_a_server_learns_of_them_and_gone_afterwards(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_weights, "BUCKET_BYTES", 32)
    stub = StubVllm()
    engine = await connect(stub, folder=tmp_path / "shared")
    loaded: list[dict[str, torch.Tensor]] = []

    async def load(request: web.Request, body: Any) -> None:
        loaded.append(load_file(body["update_info"]["path"]))

    stub.on["/update_weights"] = load
    await engine.update_weights(WeightUpdate(2, TENSORS.items()))
    assert [list(part) for part in loaded] == [["a", "b"], ["c", "d"], ["e"]]
    assert all(torch.equal(part[name], TENSORS[name]) for part in loaded for name in part)
    assert list((tmp_path / "shared").iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_named(connect: Connect, tmp_path: Path) -> None:
    engine = await connect(StubVllm(), folder=tmp_path / "shared")
    (tmp_path / "shared").rmdir()
    with pytest.raises(EngineError, match=str(tmp_path / "shared")):
        await engine.update_weights(WeightUpdate(2, TENSORS.items()))


async def test_an_adapter_gets_a_new_name_per_version_and_an_unused_one_goes(connect: Connect, tmp_path: Path) -> None:
    stub = StubVllm()
    engine = await connect(stub, sync="lora")
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request, body: Any) -> None:
        asked.set()
        await go_on.wait()

    def sync(version: int) -> Awaitable[None]:
        return engine.update_weights(WeightUpdate(version, (), adapter=tmp_path / str(version)))

    await sync(0)
    stub.on["/inference/v1/generate"] = wait
    slow = asyncio.ensure_future(engine.generate([1], Sampling(4, ()), seed=0, session="s"))
    await asked.wait()
    await sync(1)
    loads = stub.bodies("/v1/load_lora_adapter")
    names = [body["lora_name"] for body in loads]
    assert [name.rpartition("-")[2] for name in names] == ["v0", "v1"]
    assert [body["lora_path"] for body in loads] == [str(tmp_path / "0"), str(tmp_path / "1")]
    assert stub.bodies("/v1/unload_lora_adapter") == []
    assert not any(path.startswith("/pause") for path in stub.paths)
    go_on.set()
    assert (await slow).versions == (0, 0)
    newest = await engine.generate([1], Sampling(4, ()), seed=0, session="s")
    assert newest.versions == (1, 1)
    assert [body["model"] for body in stub.bodies("/inference/v1/generate")] == names
    await sync(2)
    assert [body["lora_name"] for body in stub.bodies("/v1/unload_lora_adapter")] == names


async def test_lora_without_an_adapter_is_an_error(connect: Connect) -> None:
    engine = await connect(StubVllm(), sync="lora")
    with pytest.raises(EngineError, match=r"model\.lora"):
        await engine.update_weights(WeightUpdate(0, TENSORS.items()))
