"""The checks of a vLLM server next to the learner: weights as files or over NCCL, bit by bit, and the canary."""

from __future__ import annotations

import asyncio
import shutil
import time
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

from ludus.trainer.core.config import VllmEngineConfig
from ludus.trainer.doctor.checksums import require_equal, sent_checksums
from ludus.trainer.doctor.context import Context, gpu_variables
from ludus.trainer.doctor.divergence import calibrate
from ludus.trainer.doctor.learning import configuration, make_learner
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.vllm import VllmEngine, lay_out_worker
from ludus.trainer.learning.learner import Learner

CONTEXT: Final = 1024
PROBE: Final = "ludus.trainer.doctor.vllm_probe"
ASIDE: Final = ("__init__.py", "vllm_probe.py", "checksums.py", "context.py")
"""The modules that vLLM's environment needs."""
UPDATES: Final = 2
"""Updates that are timed; the last one counts."""
START_SECONDS: Final = 3600.0
"""The limit of the check ends a server that does not start."""


def file(context: Context) -> None:
    """Check the transfer of files. Learner and server share a GPU."""
    asyncio.run(_run(context, "file"))


def nccl(context: Context) -> None:
    """Check the transfer over NCCL, from the first GPU to the second."""
    asyncio.run(_run(context, "nccl"))


async def _run(context: Context, sync: Literal["file", "nccl"]) -> None:
    learner = make_learner(context, configuration(context))
    began = time.perf_counter()
    engine = await VllmEngine.open(
        _server(context, sync),
        model=context.setting.model,
        dtype=context.setting.dtype,
        context=CONTEXT,
        folder=context.folder,
        device=learner.parallel.device,
    )
    try:
        server = engine.replicas[0].server
        version = await server.get("/version", seconds=30)
        context.record(vllm=version.get("version"), sync=sync, server_start_seconds=time.perf_counter() - began)
        versions = count()

        async def update() -> None:
            tensors = learner.weights(learner.dtype, as_checkpoint=True)
            await engine.update_weights(WeightUpdate(next(versions), tensors))

        seconds = 0.0
        for _ in range(UPDATES):
            await server.post("/collective_rpc", {"method": "ludus_record"}, seconds=60)
            began = time.perf_counter()
            await update()
            seconds = time.perf_counter() - began
        answer = await server.post("/collective_rpc", {"method": "ludus_weights"}, seconds=60)
        _compare(context, learner, answer["results"], seconds)
        await calibrate(context, engine, learner, update)
    finally:
        await engine.aclose()


def _compare(context: Context, learner: Learner, workers: list[dict[str, Any]], seconds: float) -> None:
    checksums_sent = sent_checksums(learner, as_checkpoint=True)
    size = sum(tensor.nbytes for _, tensor in learner.weights(learner.dtype, as_checkpoint=True))
    context.record(tensors=len(checksums_sent), bytes=size, seconds_per_update=seconds, bytes_per_second=size / seconds)
    for worker in workers:
        received = require_equal(checksums_sent, worker["received"], "as vLLM received them", all_of_them=True)
        compared = require_equal(checksums_sent, worker["held"], "as vLLM holds them")
        context.record(tensors_received=received, tensors_compared_in_engine=compared)


def _server(context: Context, sync: Literal["file", "nccl"]) -> VllmEngineConfig:
    root = lay_out_worker(context.folder / "vllm_path")
    target = root.joinpath(*PROBE.split(".")[:-1])
    target.mkdir(parents=True, exist_ok=True)
    for name in ASIDE:
        shutil.copyfile(Path(__file__).with_name(name), target / name)
    arguments = [f"--worker-extension-cls={PROBE}.Probe"]
    variables = {"PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
    if context.setting.device == "cpu":
        arguments.append("--distributed-executor-backend=uni")
        variables |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    else:
        variables |= gpu_variables(1 if sync == "nccl" else 0)
        arguments.append("--gpu-memory-utilization=0.4")
    return VllmEngineConfig(
        launch=True,
        command=context.setting.vllm,
        sync=sync,
        arguments=tuple(arguments),
        variables=variables,
        start_seconds=START_SECONDS,
    )
