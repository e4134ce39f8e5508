"""Evaluation of policies: calibration, which measures how hard tasks are for a policy, and a progress bar for runs.

Summaries of runs (`summarize`, `pass_at_k`) are in `ludus.client`, because trainers use them too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ludus.evaluation.calibration import (
        Calibration,
        calibrate,
        difficulty_of,
        read_difficulty,
        write_difficulty,
    )
    from ludus.evaluation.progress import ProgressBar

__all__ = ["Calibration", "ProgressBar", "calibrate", "difficulty_of", "read_difficulty", "write_difficulty"]

_PROGRESS: Final = "ludus.evaluation.progress"
_CALIBRATION: Final = "ludus.evaluation.calibration"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PROGRESS if name == "ProgressBar" else _CALIBRATION), name)


def __dir__() -> list[str]:
    return sorted(__all__)
