"""Training runs on a hub, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from hubs import new_name


@dataclass
class TrainingRun:
    """A run that a test has opened."""

    client: httpx.Client
    key: str
    attempt: str = "attempt-1"
    number: int = 0

    @property
    def path(self) -> str:
        return f"/api/v1/training/{self.key}"

    def send(self, points: Sequence[tuple[int, Mapping[str, Any]]], **changes: Any) -> httpx.Response:
        """Append a batch, with the next number unless another is given."""
        body = {
            "attempt": self.attempt, "number": self.number,
            "points": [{"step": step, "time": 1.0, "metrics": metrics} for step, metrics in points], **changes,
        }  # fmt: skip
        answer = self.client.post(f"{self.path}/points", json=body)
        if answer.status_code == 200 and "number" not in changes:
            self.number += 1
        return answer

    def steps(self, first: int, last: int, name: str = "reward/mean") -> None:
        """Append one batch with a value for each step."""
        answer = self.send([(step, {name: float(step)}) for step in range(first, last + 1)])
        assert answer.status_code == 200, answer.text

    def info(self) -> Any:
        answer = self.client.get(self.path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def curves(self) -> dict[str, Any]:
        return {one["name"]: one for one in self.client.get(f"{self.path}/curves").json()["curves"]}

    def again(self, attempt: str, step: int) -> TrainingRun:
        """The run, continued by another process."""
        body = {**opening(self.sender_key), "attempt": attempt, "resumedFrom": step}
        answer = self.client.post("/api/v1/training", json=body)
        assert answer.status_code == 200, answer.text
        found = TrainingRun(self.client, answer.json()["key"], attempt, answer.json()["nextBatch"])
        found.sender_key = self.sender_key
        return found

    sender_key: str = ""


def opening(sender_key: str | None = None, **changes: Any) -> dict[str, Any]:
    """A request to open a run."""
    return {"senderKey": sender_key or new_name("sender-"), "attempt": "attempt-1", "name": "a run", **changes}


def opened(client: httpx.Client, **changes: Any) -> TrainingRun:
    """A new run of a client."""
    body = opening(**changes)
    answer = client.post("/api/v1/training", json=body)
    assert answer.status_code == 201, answer.text
    run = TrainingRun(client, answer.json()["key"])
    run.sender_key = body["senderKey"]
    return run


def trajectory(text: str = "heads or tails?") -> dict[str, Any]:
    """A recorded episode."""
    return {
        "environment": "toss", "split": "train", "policy": "policy", "started_at": 1.0, "seconds": 2.0,
        "task": {"id": "task-7", "index": 7, "split": "train", "fields": {}},
        "status": "completed", "end_reason": "completed", "reward": {"value": 1.0},
        "items": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}],
        "steps": [], "turns": [],
    }  # fmt: skip
