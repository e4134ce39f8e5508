"""Calibration: how hard each task is for one policy, how sure that is, and a file that splits and curricula use."""

from __future__ import annotations

from ludus.evaluation.calibration.difficulty import difficulty_of, read_difficulty, write_difficulty
from ludus.evaluation.calibration.measure import Calibration, calibrate

__all__ = ["Calibration", "calibrate", "difficulty_of", "read_difficulty", "write_difficulty"]
