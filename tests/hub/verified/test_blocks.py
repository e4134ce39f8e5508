"""A verified run ends without a score when its version or its harness is blocked, and none begins."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hubs import kind_of
from verified_hub import HARNESS, OWNER, VerifiedHub

pytestmark = pytest.mark.timeout(180)
REASON = "it sends prompts to a stranger"


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("what", ["locks", "looper"])
def test_a_block_of_the_version_or_the_harness_ends_a_run_and_keeps_others_from_beginning(
    start_hub: Any, what: str
) -> None:
    hub: VerifiedHub = start_hub()
    hub.publish("root/looper", source=HARNESS, play="play")
    asked = threading.Event()

    def answer(request: dict[str, Any]) -> Any:
        if len(hub.model.asked) > 1:
            asked.set()
        return {"content": "hm"}

    hub.model.answer = answer
    key = hub.begin(harness="root/looper@1.0.0")
    assert asked.wait(90), "the harness plays"
    sha256 = hub.get(f"/api/v1/environments/{OWNER}/{what}/versions/1.0.0")["sha256"]
    with hub.client("root") as root:
        assert root.put(f"/api/v1/blocks/{sha256}", json={"reason": REASON}).status_code == 200
        run = hub.get(f"/api/v1/runs/{key}")
        assert (run["state"], run["figures"]) == ("ended", None)
        assert REASON in run["removal"]["reason"]
        calls = len(hub.model.asked)
        refused = hub.register(harness="root/looper@1.0.0")
        assert kind_of(refused) == "VersionBlocked"
        assert REASON in refused.text
        assert len(hub.model.asked) == calls, "the answer to the block comes after the end of the harness"
