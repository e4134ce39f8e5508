"""Write `unsound.txt`: `python -m ludus_sql.find_unsound`, which takes some minutes.

It must run again after each change of the recipes, the data or the grading, and such a change raises the version.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from ludus.server import DIFFICULTIES
from ludus.server.authoring.partition import SPLITS
from ludus_sql.recipes import Plan
from ludus_sql.soundness import FILE, VERIFIED, faults
from ludus_sql.tasks import HELD_OUT, Series

_WORDS: Final = 13
"""The number of seeds in a line."""


def find(verified: int = VERIFIED, held_out: int = HELD_OUT) -> set[int]:
    """Return the lower 32 bits of the seeds of plans that are not sound.

    Args:
        verified: how many training tasks of each level are checked.
        held_out: how many tasks of the other splits are.
    """
    found: set[int] = set()

    def sound(seed: int, plan: Plan) -> bool:
        if faults(plan):
            found.add(seed & 0xFFFFFFFF)
            return False
        return True

    for difficulty in DIFFICULTIES:
        for split in SPLITS:
            series = Series(split, difficulty, sound=sound)
            for index in range(verified if split == "train" else held_out):
                series.seed(index)
    return found


def main() -> None:
    """Write the file."""
    words = [f"{one:08x}" for one in sorted(find())]
    lines = [" ".join(words[place : place + _WORDS]) for place in range(0, len(words), _WORDS)]
    Path(str(resources.files("ludus_sql").joinpath(FILE))).write_text("\n".join(lines) + "\n", "ascii")


if __name__ == "__main__":
    main()
