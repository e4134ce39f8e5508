"""Evaluate environments with `inspect_ai.eval`, once for each run that is given, and report what the logs say."""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import urllib.request

import inspect_ai
from inspect_ai.log import read_eval_log
from inspect_ai.model import get_model

from ludus.integrations.inspect import environment
from ludus.integrations.unscored import UNSCORED


def report(location: str) -> dict:
    """Return what a test checks of a log."""
    log = read_eval_log(location)
    samples = [report_sample(sample) for sample in log.samples or []]
    scores = log.results.scores if log.results else []
    metrics = {name: metric.value for score in scores for name, metric in score.metrics.items()}
    counts = [(score.scored_samples, score.unscored_samples) for score in scores]
    return {"status": log.status, "metrics": metrics, "counts": counts, "samples": samples, "error": str(log.error)}


def report_sample(sample) -> dict:
    score = (sample.scores or {}).get("reward")
    value = score.value if score else None
    return {
        "id": sample.id,
        "epoch": sample.epoch,
        "value": None if value is None or value != value else value,
        "scored": score is not None,
        "score": score and {"reason": score.reason, "explanation": score.explanation, "metadata": score.metadata},
        "roles": [message.role for message in sample.messages],
        "tool_errors": [
            message.error.message for message in sample.messages if message.role == "tool" and message.error
        ],
        "tool_events": [[event.function, event.result] for event in sample.events if event.event == "tool"],
        "model_events": sum(event.event == "model" for event in sample.events),
        "input": sample.input if isinstance(sample.input, str) else sample.input[-1].text,
        "metadata": sample.metadata,
        "limit": sample.limit and sample.limit.type,
        "error": sample.error and sample.error.message,
    }


async def canceled(task, options: dict, playing) -> str:
    """Cancel an evaluation as soon as its episodes run; return how it ended."""
    running = asyncio.create_task(inspect_ai.eval_async(task, **options))
    await asyncio.to_thread(playing)
    running.cancel()
    await asyncio.wait([running])
    return "canceled" if running.cancelled() else str(running.exception() or running.result()[0].status)


def number(url: str, pattern: str) -> int:
    """Return the first number that a page shows after a pattern; 0 if it shows none."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        found = re.search(pattern + r"(\d+)", reply.read().decode())
    return int(found[1]) if found else 0


def waiter(given: dict, model: str, episodes: int):
    """Return a function that returns when the model has been asked by so many new episodes, and all of them run."""
    requests = given["base_url"].removesuffix("/v1") + "/requests"
    before = number(requests, rf'"{model}": ')

    def wait() -> None:
        while number(requests, rf'"{model}": ') < before + episodes:
            pass
        while number(given["url"] + "/metrics", r"\nludus_episodes_running ") < episodes:
            pass

    return wait


def run(one: dict, given: dict) -> dict:
    name, episodes = one.get("model", "solver"), one.get("n", 9)
    task = environment(given["url"], one["environment"], split="train", n=episodes)
    model = get_model(f"openai-api/fixture/{name}", base_url=given["base_url"], api_key="none")
    with tempfile.TemporaryDirectory() as folder:
        options = {"model": model, "log_dir": folder, "display": "none", "max_samples": episodes}
        options |= one.get("options", {})
        before, began = UNSCORED["inspect"], time.monotonic()
        playing = waiter(given, name, episodes)
        if one.get("cancel"):
            return {"ended": asyncio.run(canceled(task, options, playing))}
        if one.get("kill"):
            threading.Thread(target=lambda: (playing(), os.kill(one["kill"], signal.SIGKILL))).start()
        logs = inspect_ai.eval(task, **options)
        counted = UNSCORED["inspect"] - before
        return {**report(logs[0].location), "counted": counted, "seconds": time.monotonic() - began}


def main() -> None:
    given = json.loads(sys.argv[1])
    print(json.dumps({"runs": [run(one, given) for one in given["runs"]]}))


if __name__ == "__main__":
    main()
