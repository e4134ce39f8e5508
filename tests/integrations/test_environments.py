"""The parts that tests of adapters share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.suite("integrations", sample=True)


def test_a_peer_can_play_with_ludus_as_it_is_packaged(server: str, run_peer: Callable[..., dict[str, Any]]) -> None:
    report = run_peer("agents", "outcomes.py", {"url": server, "environment": "every_third_breaks", "episodes": 6})
    assert report["values"] == [0.0, 0.0, None, 0.0, 0.0, None]
