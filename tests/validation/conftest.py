"""Environments with nothing wrong, and others with one fault each, validated as a user would."""

from __future__ import annotations

import sys
from pathlib import Path

FAULTS = Path(__file__).parent / "faults"
sys.path.insert(0, str(FAULTS))
