"""Calibration: measure how hard each task is for one policy, with intervals, and write a file for later use.

Splits and curricula read the difficulty file.
"""

from __future__ import annotations

from ludus.evaluation.calibration.difficulty import difficulty_of, read_difficulty, write_difficulty
from ludus.evaluation.calibration.measure import Calibration, calibrate

__all__ = ["Calibration", "calibrate", "difficulty_of", "read_difficulty", "write_difficulty"]
