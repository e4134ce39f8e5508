"""Evaluation of policies: whole evaluations and their comparison, and calibration, which measures how hard tasks are.

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
    from ludus.evaluation.comparison import Comparison, compare
    from ludus.evaluation.config import EnvironmentSpec, EvaluationConfig, ModelSpec, read_config
    from ludus.evaluation.folder import read_results
    from ludus.evaluation.matrix import OpenEnvironment, evaluate
    from ludus.evaluation.progress import ProgressBar

__all__ = [
    "Calibration",
    "Comparison",
    "EnvironmentSpec",
    "EvaluationConfig",
    "ModelSpec",
    "OpenEnvironment",
    "ProgressBar",
    "calibrate",
    "compare",
    "difficulty_of",
    "evaluate",
    "read_config",
    "read_difficulty",
    "read_results",
    "write_difficulty",
]

_MODULES: Final = {
    "calibration": "Calibration calibrate difficulty_of read_difficulty write_difficulty",
    "comparison": "Comparison compare",
    "config": "EnvironmentSpec EvaluationConfig ModelSpec read_config",
    "folder": "read_results",
    "matrix": "OpenEnvironment evaluate",
    "progress": "ProgressBar",
}
"""The modules that define the public names, which are imported at first use."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"ludus.evaluation.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
