"""`terminal`, played over the wire as trainers and agents play it. Run with `pytest`; needs bubblewrap and git."""

from __future__ import annotations

import shutil

import pytest

from ludus.testing import play
from ludus_terminal import Terminal


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_the_oracle_earns_the_best_reward() -> None:
    with play(Terminal) as environment:
        assert {environment.oracle(index=index).reward for index in range(3)} == {1.0}


def test_the_draw_of_a_task_stays_on_the_server() -> None:
    assert "draw" not in Terminal.load_task("train", 0).public()
