"""Verified runs from registration to receipt: real sandboxes, a real endpoint of an environment, a scripted model."""

from __future__ import annotations

from typing import Any

import pytest
from verified_hub import HARNESS, MODEL, SECRET, ModelServer, VerifiedHub, params

pytestmark = pytest.mark.timeout(120)


async def test_the_hubs_own_harness_plays_a_run(hub: VerifiedHub, model: ModelServer) -> None:
    receipt = await hub.run(params(model))
    assert [(row["reward"], row["end"]) for row in receipt["episodes"]] == [(1.0, "completed")] * 2


async def test_a_published_harness_plays_a_run(hub: VerifiedHub, model: ModelServer) -> None:
    hub.publish("bob/looper", source=HARNESS, play="play")
    receipt = await hub.run(params(model, harness="bob/looper@1.0.0"))
    assert [(row["reward"], row["end"]) for row in receipt["episodes"]] == [(1.0, "completed")] * 2
    assert receipt["statement"]["verified"]["harness"] == "bob/looper@1.0.0#play"
