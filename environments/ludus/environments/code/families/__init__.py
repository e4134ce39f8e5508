"""The families of problems. Each module has `draw(rng, difficulty)`, which composes one problem."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from ludus.environments.code.families import (
    bits,
    classes,
    dates,
    formatting,
    graphs,
    grids,
    intervals,
    iterators,
    machines,
    matrices,
    numbers,
    optimize,
    parsing,
    records,
    strings,
    trees,
)
from ludus.environments.code.problem import Problem
from ludus.server import Difficulty

FAMILIES: Final[Mapping[str, Callable[[random.Random, Difficulty], Problem]]] = {
    "strings": strings.draw,
    "parsing": parsing.draw,
    "intervals": intervals.draw,
    "graphs": graphs.draw,
    "records": records.draw,
    "matrices": matrices.draw,
    "numbers": numbers.draw,
    "optimize": optimize.draw,
    "dates": dates.draw,
    "machines": machines.draw,
    "trees": trees.draw,
    "formatting": formatting.draw,
    "bits": bits.draw,
    "grids": grids.draw,
    "classes": classes.draw,
    "iterators": iterators.draw,
}
"""The families by name."""
