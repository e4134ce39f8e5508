"""The program of one check: `python -m ludus.trainer.doctor.process check NAME FOLDER`, or a part of a check:
`… part MODULE:FUNCTION FOLDER`. The outcome of a check is a file in the folder."""

from __future__ import annotations

import importlib
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

from ludus.trainer.doctor.context import RESULT, CheckFailed, CheckSkipped, Context, PartFailed, read_json, write_json

UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in a unit of the operating system's resident size."""


def main(kind: str, name: str, folder: Path) -> int:
    """Run a check or a part; return the exit status."""
    context = Context.load(folder)
    if kind == "part":
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)(context)
        write_json(folder / f"memory-{function}.json", memory())
        return 0
    write_json(folder / RESULT, outcome(name, context))
    return 0


def outcome(name: str, context: Context) -> dict[str, Any]:
    """Run a check and return its status, its reason, its figures, the highest use of memory, and whether its log says
    more about the reason."""
    from ludus.trainer.doctor.checks import CHECKS

    status, reason, log = "passed", None, False
    try:
        CHECKS[name].load()(context)
    except CheckSkipped as error:
        status, reason = "skipped", str(error)
    except CheckFailed as error:
        status, reason = "failed", str(error)
    except PartFailed as error:
        status, reason, log = "failed", str(error), True
    except Exception as error:
        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        name = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
        status, reason, log = "failed", f"{name}: {error}", True
    finally:
        context.stop()
    figures = [memory(), *map(read_json, context.folder.glob("memory-*.json"))]
    highest = {
        kind: max((value for figure in figures if figure and (value := figure[kind]) is not None), default=None)
        for kind in ("gpu_bytes", "host_bytes")
    }
    return {"status": status, "reason": reason, "figures": context.figures, "memory": highest, "log": log}


def memory() -> dict[str, int | None]:
    """Return the highest use of memory of this process."""
    gpu = None
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gpu = max(torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count()))
    return {"gpu_bytes": gpu, "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
