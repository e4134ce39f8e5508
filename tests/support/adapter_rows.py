"""Data for trainers that `ludus export` writes, and what their batches must look like."""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from peer_clients import peer_variables, python_of
from terminal import run_ludus


def exported(form: str, url: str, environment: str, out: Path) -> str:
    """Write a file of JSON lines, and return its path."""
    done = run_ludus("export", url, environment, "--form", form, "--out", out, "-n", 8, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return str(out)


def exported_parquet(peer: str, form: str, url: str, environment: str, out: Path, package: Path) -> str:
    """Write a Parquet file with the peer's pyarrow, and return its path."""
    done = subprocess.run(
        [python_of(peer), "-m", "ludus.cli", "export", url, environment, "--form", form, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**peer_variables(), "PYTHONPATH": str(package)},
    )
    assert done.returncode == 0, done.stderr
    return str(out)


def check_groups(rows: list[dict[str, Any]], learned: int = 0) -> None:
    """Check that unscored episodes teach nothing and do not change the advantages of their group.

    Args:
        rows: rows with `uid`, `value`, `unscored`, `learned` (a number of tokens) and `advantage`.
        learned: how many tokens of an unscored episode reach the loss, with an advantage of 0.
    """
    for uid in {row["uid"] for row in rows}:
        group = [row for row in rows if row["uid"] == uid]
        mean = fmean(row["value"] for row in group if not row["unscored"])
        for row in group:
            if row["unscored"]:
                assert row["learned"] == learned
                assert row["value"] == pytest.approx(mean)
                assert row["advantage"] == pytest.approx(0, abs=1e-5)
            else:
                assert row["advantage"] == pytest.approx(row["value"] - mean, abs=1e-5)


def with_scored_siblings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of groups with a scored episode."""
    scored = {row["uid"] for row in rows if not row["unscored"]}
    return [row for row in rows if row["uid"] in scored]
