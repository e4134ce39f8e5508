"""Which companies exist: some for each split, made once in a process."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.generate import company_name, generate
from ludus.server.authoring.partition import SplitType, digest, split_of

COMPANIES: Final[Mapping[SplitType, int]] = {"train": 12, "validation": 3, "test": 3}
"""The number of companies of each split."""


@cache
def names(split: SplitType, secret: str = "") -> tuple[str, ...]:
    """Return the names of a split's companies, which no other split has: the name determines the split.

    Args:
        split: the split.
        secret: what fresh companies for tests are drawn from.
    """
    rng = random.Random(digest(f"workplace:companies:{split}:{secret}"))
    found: dict[str, None] = {}
    while len(found) < COMPANIES[split]:
        name = company_name(rng)
        if split_of(f"workplace:{name}") == split:
            found[name] = None
    return tuple(found)


@lru_cache(maxsize=36)
def company(name: str, secret: str = "") -> Company:
    """Return the company of that name."""
    return generate(name, random.Random(digest(f"workplace:company:{name}:{secret}")))
