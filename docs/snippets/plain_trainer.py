"""A trainer without Ludus: it gets trajectories from the rollout service with the standard library only."""

import http.client
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

SERVICE = "http://127.0.0.1:8100"
REQUEST: dict[str, Any] = {
    "environment": {"url": "http://127.0.0.1:8000", "name": "guess_number"},
    "model": {"url": "http://127.0.0.1:8001/v1", "name": "my-model"},
    "split": "train",
    "n": 64,
    "samples": 8,
    "seed": 1,
}
ATTEMPTS = 5


def lines_of(service: str, method: str, path: str, body: str | None, headers: dict[str, str]) -> Iterator[Any]:
    """Yield the lines of one answer."""
    address = urlsplit(service)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {answer.read().decode()}")
        for line in answer:
            yield json.loads(line)
    finally:
        connection.close()


def rollouts(service: str, request: dict[str, Any]) -> Iterator[Any]:
    """Yield each numbered line once, and resume the stream when the connection is lost."""
    job, line, failures = "", 0, 0
    headers = {"Idempotency-Key": uuid.uuid4().hex}  # a repeated request plays nothing twice
    while True:
        method, path, body = "POST", "/rollouts", json.dumps(request)
        if job:
            method, path, body = "GET", f"/rollouts/{job}/lines?from={line}", ""
        try:
            for value in lines_of(service, method, path, body or None, headers):
                job = value.get("job", job)
                if value["type"] == "job" or value["line"] < line:
                    continue
                line, failures = value["line"] + 1, 0
                yield value
                if value["type"] == "end":
                    return
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            failures += 1
            if failures == ATTEMPTS:
                raise
            time.sleep(failures)


if __name__ == "__main__":
    for found in rollouts(SERVICE, REQUEST):
        if found["type"] == "episode":
            for sample in found["samples"]:
                sampled = sum(sample["mask"])
                print(f"{found['task']} {found['reward']}: learn from {sampled} of {len(sample['ids'])} tokens")
        elif found["type"] == "unscored":
            print(f"{found['task']}: no reward, {found['problem']['message']}")
        else:
            print(found["counts"])
