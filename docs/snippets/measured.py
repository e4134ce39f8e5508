from pathlib import Path

from treasure import TreasureHunt

MEASURED = Path(__file__).with_name("difficulty.json")


class MeasuredHunt(TreasureHunt):
    """Only beaches that are neither too long nor too short."""

    splits = {"train": TreasureHunt.splits["validation"].within(MEASURED, band=(0.2, 0.5), type="train")}
