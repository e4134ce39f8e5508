"""Lines of files of trajectories, with content that tries to attack its readers."""

from __future__ import annotations

import json
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCRIPT = "<script>alert(1)</script>"


def line(turns: int = 3, **more: Any) -> dict[str, Any]:
    """An episode with a call in each turn."""
    items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": f"begin {SCRIPT}"}]}]
    steps, marks = [], []
    for number in range(1, turns + 1):
        call = f"call_{number}"
        items.append(
            {"type": "function_call", "call_id": call, "name": "look", "arguments": json.dumps({"at": number})}
        )
        items.append({"type": "function_call_output", "call_id": call, "output": f"saw {number} {SCRIPT}"})
        part = {"value": 0.5, "weight": 1.0, "evidence": f"evidence {number}"}
        reward = {"value": 0.5, "components": {"seen": part}}
        steps.append({"step": number, "call_id": call, "reward": reward, "seconds": 0.1})
        marks.append({"items": len(items), "policy_seconds": 0.1, "environment_seconds": 0.1})
    return {
        "environment": "looking", "split": "train", "task": {"id": "t", "split": "train", "index": 0, "fields": {}},
        "policy": "me", "started_at": 0.0, "seconds": 1.0, "items": items, "steps": steps, "turns": marks,
        "reward": {"value": 1.5}, "status": "completed", "end_reason": "completed", **more,
    }  # fmt: skip
