"""The report of `ludus doctor gpu`: its form, and the removal of names and paths from its texts."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

FORMAT: Final = "ludus-gpu-report"
VERSION: Final = 1


class Part(BaseModel):
    """A part of the report; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Gpu(Part):
    """One GPU."""

    name: str
    memory_bytes: int
    capability: str
    """The compute capability, such as `9.0`."""
    peak_flops: float | None
    """Dense bfloat16 operations per second by the vendor's datasheet; None for a GPU that is not in the table."""


class Machine(Part):
    """The machine, without names of hosts, users and folders."""

    system: str
    architecture: str
    cpus: int
    memory_bytes: int | None
    python: str
    packages: dict[str, str | None]
    """Version by package; None for a package that is not installed in this environment."""
    driver: str | None
    cuda: str | None
    """The CUDA version with which torch was built."""
    cudnn: int | None
    nccl: str | None
    gpus: tuple[Gpu, ...]
    topology: tuple[tuple[str, ...], ...] | None
    """The kind of link between each pair of GPUs as `nvidia-smi topo -m` names it, such as `NV18`; None if unknown."""
    notes: tuple[str, ...] = ()
    """What could not be found out."""


class Model(Part):
    """The model that the checks used."""

    source: Literal["built-in", "local"]
    """Random weights made for the run, or the folder that was given."""
    architecture: str | None
    parameters: int | None
    layers: int | None
    width: int | None
    vocabulary: int | None
    tied: bool | None


class Memory(Part):
    """The highest use of memory by a check's own processes; vLLM's server is not included."""

    gpu_bytes: int | None
    """Allocated by torch, of the GPU with the highest value; None without a GPU."""
    host_bytes: int | None
    """Resident size of the largest process; None if the check was killed."""


class Result(Part):
    """The outcome of one check."""

    name: str
    about: str
    status: Literal["passed", "failed", "skipped"]
    reason: str | None
    """Why it failed or was skipped."""
    seconds: float
    limit_seconds: float
    memory: Memory | None
    figures: dict[str, Any]
    """What was measured, and the tolerances that decided. Also of a check that failed or was killed."""


class Report(Part):
    """Everything that `ludus doctor gpu` found."""

    format: Literal["ludus-gpu-report"] = FORMAT
    version: Literal[1] = VERSION
    ludus: str
    device: Literal["cuda", "cpu"]
    dtype: Literal["float32", "bfloat16"]
    small: bool
    complete: bool
    """Whether all chosen checks have ended; False in the report of a run that was interrupted."""
    passed: bool
    """Whether at least one check passed and none failed."""
    seconds: float
    machine: Machine
    model: Model
    checks: tuple[Result, ...]


_PATH: Final = re.compile(
    r"(?<![\w.:/~-])(?:~|[A-Za-z]:)?(?:[/\\](?!/)[^\s/\\'\"():,;<>]+)+[/\\](?=[^\s/\\'\"():,;<>])"
)
_ADDRESS: Final = re.compile(r"\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b")


class Scrubber:
    """Removes names of this machine from texts: folders, the user, the host, and network addresses.

    Args:
        folders: name in the report → folder, such as the model's.
    """

    def __init__(self, folders: Mapping[str, Path | str]) -> None:
        folders = {**folders, "home": Path.home()}
        replacements = {str(folder): f"<{name}>" for name, folder in folders.items()}
        replacements |= {str(Path(folder).resolve()): f"<{name}>" for name, folder in folders.items()}
        replacements.pop("/", None)
        self._folders = sorted(replacements.items(), key=lambda item: -len(item[0]))
        self._words: dict[str, str] = {}
        with suppress(OSError, KeyError, ImportError):
            self._words[getpass.getuser()] = "<user>"
        for host in {socket.gethostname(), socket.gethostname().partition(".")[0]}:
            self._words[host] = "<host>"
        for word in ("", "root", "localhost"):  # they say nothing about the machine
            self._words.pop(word, None)

    def text(self, text: str) -> str:
        """Return `text` without them. Of a path only the last part stays."""
        for folder, name in self._folders:
            text = text.replace(folder, name)
        text = _PATH.sub("…/", text)
        for word, name in self._words.items():
            text = re.sub(rf"(?<![\w]){re.escape(word)}(?![\w])", name, text)
        return _ADDRESS.sub("<address>", text)

    def value(self, value: Any) -> Any:
        """Return a JSON value whose strings are scrubbed; keys are names of figures and stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value


def write_report(report: Report, path: Path) -> None:
    """Write the report in one step, so that an interrupted run leaves the previous state.

    Raises:
        OSError: the file cannot be written.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
