"""Conversations on the hub's pages next to those of `ludus view`, which have the same parts."""

from __future__ import annotations

from typing import Any

from ludus.hub.site.conversations import turns
from ludus.protocol.trajectory import Trajectory
from ludus.viewing.html import episode
from ludus.viewing.page import escape
from ludus.viewing.reading import ViewedEpisode

ODD = "<b>5 & 6</b> \u202e\x07"
LINE: dict[str, Any] = {
    "format": "ludus.trajectory/0.1", "environment": "shop", "split": "train", "policy": "policy",
    "task": {"id": "t", "split": "train", "index": 0, "fields": {}}, "started_at": 1.0, "seconds": 2.5,
    "status": "completed", "end_reason": "completed", "reward": {"value": 1.0},
    "items": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Order tea. {ODD}"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "call_id": "a", "name": "order", "arguments": '{"what": "tea", "count": 2}'},
        {"type": "function_call_output", "call_id": "a", "output": f"Ordered. {ODD}"},
        {"type": "function_call", "call_id": "b", "name": f"oder{ODD}", "arguments": "{"},
        {"type": "function_call_output", "call_id": "b", "output": "There is no such tool."},
    ],
    "steps": [
        {"step": 1, "call_id": "a", "seconds": 0.1, "reward": {"value": 0.25}, "noise": "delay"},
        {"step": 0, "call_id": "b", "seconds": 0.1, "error": f"unknown_tool {ODD}",
         "reward": {"value": None, "reason": "the judge was away"}},
    ],
    "turns": [
        {"items": 4, "policy_seconds": 0.1, "environment_seconds": 0.1},
        {"items": 6, "policy_seconds": 0.1, "environment_seconds": 0.1},
    ],
}  # fmt: skip


def test_the_hub_shows_each_text_call_and_mark_of_a_conversation_as_ludus_view_does() -> None:
    trajectory = Trajectory.model_validate(LINE)
    page = episode(ViewedEpisode(1, trajectory))
    entries = [entry for turn in turns(trajectory) for entry in turn.entries]
    said = [
        f'<div class="said {entry.style}"><div class="who">{escape(entry.who)}{entry.chips}</div>{"".join(entry.texts)}'
        for entry in entries
    ]
    assert len(said) == len(LINE["items"])
    places = [page.find(one) for one in said]
    assert -1 not in places, said[places.index(-1)]
    assert places == sorted(places)
    assert sum("chip" in entry.chips for entry in entries) == 2
