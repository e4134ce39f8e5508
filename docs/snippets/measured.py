from pathlib import Path

from treasure import HELD_OUT, TreasureHunt, beach

from ludus.server import Split

MEASURED = Path(__file__).with_name("difficulty.json")


class MeasuredHunt(TreasureHunt):
    """Only beaches that are neither too long nor too short."""

    splits = {"train": Split.lazy(lambda index: beach(index, HELD_OUT), count=50).within(MEASURED, (0.2, 0.5))}
