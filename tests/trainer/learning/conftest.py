"""A small policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.trainer.core.tiny import make_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen3 of two layers."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), hidden=64, layers=2, heads=4)
