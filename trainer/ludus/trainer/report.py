"""The run as one HTML file."""

from __future__ import annotations

from pathlib import Path


def write_report(folder: Path) -> Path:
    """Write `report.html` from the run's `metrics.jsonl` and `rollouts.jsonl`."""
    return folder / "report.html"
