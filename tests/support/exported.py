"""Environments that `ludus export` writes as packages of other systems."""

from __future__ import annotations

from pathlib import Path

from peer_clients import ROOT
from terminal import run_ludus_here

WORLD = ROOT / "tests" / "support" / "adapter_world.py"
"""The file of the environments `Sums` and `EveryThirdBreaks`."""


def exported(form: str, target: str, environment: str, out: Path, *options: str) -> Path:
    """Export an environment to a folder, and return the folder."""
    done = run_ludus_here("export", target, environment, "--form", form, "--out", out, *options, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return out
