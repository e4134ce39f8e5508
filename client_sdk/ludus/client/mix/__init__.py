"""Mixes: tasks of several sources for one run, with shares that follow the results.

A mix file names sources (a split of an environment each) and a policy: fixed weights, stages, a band of pass rates, or
learning progress. `ludus train --mix FILE`, the adapters of trainers and `open_mix` draw from the same `Mixer`, and
report to it how each group went.
"""

from __future__ import annotations

from ludus.client.mix.file import MixFile, MixSource, parse_mix, read_mix
from ludus.client.mix.mixer import Mixer, Source
from ludus.client.mix.policy import BandPolicy, MixPolicy, ProgressPolicy, StagesPolicy, TaskBand
from ludus.client.mix.record import SourceRecord
from ludus.client.mix.simulation import Learner, Moment, learning, simulate
from ludus.client.mix.tasks import MixDraw, TaskMix, connect_mix, draw_task, open_mix

__all__ = [
    "BandPolicy",
    "Learner",
    "MixDraw",
    "MixFile",
    "MixPolicy",
    "MixSource",
    "Mixer",
    "Moment",
    "ProgressPolicy",
    "Source",
    "SourceRecord",
    "StagesPolicy",
    "TaskBand",
    "TaskMix",
    "connect_mix",
    "draw_task",
    "learning",
    "open_mix",
    "parse_mix",
    "read_mix",
    "simulate",
]
