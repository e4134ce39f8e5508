"""Evaluate environments with `inspect_ai.eval`, once for each run that is given, and report what the logs say.

A run with `signal` (`[number, process]`; without a process, this one) sends it when half of the episodes hang.
"""

import concurrent.futures
import functools
import json
import multiprocessing
import os
import sys
import tempfile

import inspect_ai
from hanging import signal_when_half_hang
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import get_model

from ludus.client import addresses, connect
from ludus.integrations.inspect import environment
from ludus.integrations.unscored import UNSCORED


def report(folder: str) -> dict:
    """Return what a test checks of the only log in a folder."""
    (found,) = list_eval_logs(folder)
    log = read_eval_log(found)
    samples = [report_sample(sample) for sample in log.samples or []]
    scores = log.results.scores if log.results else []
    metrics = {name: none_of(metric.value) for score in scores for name, metric in score.metrics.items()}
    counts = [(score.scored_samples, score.unscored_samples) for score in scores]
    return {"status": log.status, "metrics": metrics, "counts": counts, "samples": samples, "error": str(log.error)}


def none_of(value):
    """Return None for a NaN, which JSON has not."""
    return None if value != value else value


def report_sample(sample) -> dict:
    score = (sample.scores or {}).get("reward")
    value = score.value if score else None
    return {
        "id": sample.id,
        "epoch": sample.epoch,
        "value": none_of(value),
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


def run(one: dict, given: dict) -> dict:
    url, name, episodes = one.get("url", given["url"]), one.get("model", "solver"), one.get("n", 9)
    task = environment(url, one["environment"], split="train", n=episodes)
    for sample in task.dataset if one.get("text_input") else ():
        sample.input = sample.input[-1].text
    model = get_model(f"openai-api/fixture/{name}", base_url=given["base_url"], api_key="none")
    with tempfile.TemporaryDirectory() as folder:
        options = {"model": model, "log_dir": folder, "display": "none", "max_samples": episodes}
        options |= one.get("options", {})
        before = UNSCORED["inspect"]
        if "signal" in one:
            code, process = one["signal"]
            signal_when_half_hang(given["base_url"], url, name, episodes, process or os.getpid(), code)
        inspect_ai.eval(task, **options)  # returns no log of a run that an interrupt ends
        counted = UNSCORED["inspect"] - before
        return {**report(folder), "counted": counted}


def reports(given: dict) -> list[dict]:
    # The client tries to reconnect for 30 seconds; the tests need not wait that long for a server that stays away.
    addresses.connect = functools.partial(connect, reconnect_seconds=given.get("reconnect_seconds", 1.0))
    return [run(one, given) for one in given["runs"]]


def main() -> None:
    given = json.loads(sys.argv[1])
    if given.get("spawn"):
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            print(json.dumps(pool.submit(reports, given).result()))
    else:
        print(json.dumps(reports(given)))


if __name__ == "__main__":
    main()
