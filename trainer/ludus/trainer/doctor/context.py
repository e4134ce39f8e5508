"""What a check gets: the settings of the run, a folder, a place for its figures, and further processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

SETTING: Final = "setting.json"
FIGURES: Final = "figures.json"
RESULT: Final = "result.json"
PROGRAM: Final = "ludus.trainer.doctor.process"


class CheckFailed(Exception):
    """A check found a fault. The message says which figure is outside of which limit."""


class PartFailed(Exception):
    """Another process of a check failed. The log has its error."""


class CheckSkipped(Exception):
    """A check cannot run here. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that all checks of a run share."""

    model: str
    """The folder of the model, in Hugging Face format."""
    device: Literal["cuda", "cpu"] = "cuda"
    small: bool = False
    """Take few tokens, for a CPU and for tests of the checks themselves."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """The dtype of forward and backward pass and of the engines' weights. With bfloat16 the learner uses FSDP."""
    vllm: str = "vllm"
    """The program that starts vLLM's server."""

    def save(self, folder: Path) -> None:
        """Write the settings into `folder`."""
        (folder / SETTING).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Setting:
        """Read what `save` wrote."""
        return cls(**json.loads((folder / SETTING).read_text(encoding="utf-8")))


@dataclass(slots=True)
class Context:
    """One run of one check."""

    setting: Setting
    folder: Path
    """An empty folder for files, removed after the check."""
    figures: dict[str, Any] = field(default_factory=dict)
    _parts: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path) -> Context:
        """Return the context of a check whose settings are in `folder`."""
        return cls(Setting.load(folder), folder)

    def record(self, **figures: Any) -> None:
        """Add figures to the report. They are kept also if the check fails or is killed afterwards."""
        self.figures.update(figures)
        write_json(self.folder / FIGURES, self.figures)

    def start(self, part: Callable[[Context], None], **variables: str) -> subprocess.Popen[bytes]:
        """Start a function of a module in another process, with the same settings and folder, and with further
        environment variables."""
        command = [sys.executable, "-m", PROGRAM, "part", f"{part.__module__}:{part.__qualname__}", str(self.folder)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
        self._parts.append(process)
        return process

    def run(self, part: Callable[[Context], None]) -> None:
        """Run a function of a module in another process, to its end.

        Raises:
            PartFailed: the process failed.
        """
        self.finish(self.start(part), part.__name__)

    def finish(self, process: subprocess.Popen[bytes], name: str) -> None:
        """Wait for a process of `start`. The limit of the check bounds the wait.

        Raises:
            PartFailed: the process failed.
        """
        code = process.wait()
        if code:
            raise PartFailed(f"the process {name!r} of this check ended with status {code}")

    def stop(self) -> None:
        """Kill the processes that are still running."""
        for process in self._parts:
            if process.poll() is None:
                process.kill()
            process.wait()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in one step, so that it is complete or missing."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(value), encoding="utf-8")
    os.replace(fresh, path)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if there is none."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def gpu_variables(number: int) -> dict[str, str]:
    """Return the environment variables with which another process sees one of this process's GPUs, and no other.

    Raises:
        CheckSkipped: this process sees fewer GPUs.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(number + 1)))).split(",")
    if number >= len(visible):
        raise CheckSkipped(f"CUDA_VISIBLE_DEVICES names {len(visible)} GPUs, and this check needs {number + 1}")
    return {"CUDA_VISIBLE_DEVICES": visible[number].strip()}
