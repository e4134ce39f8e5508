"""How long a rubric of 183 deterministic checks takes: a checklist from a file, read once, scored for many attempts.

    python benchmarks/rubric.py [--rounds 300] [--json FILE]

The items are what checklists hold: patterns, exact and normalized texts, numbers with units, calls of tools, Python
functions. The figure is the median time of one whole evaluation, from the attempt to the reward with its 183
components; next to it are the time with the reward's JSON, and the processor time, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ludus.protocol import Reward
from ludus.server.rewards import Attempt, Rubric, TakenStep, load_checklist

BAR = 2.0
"""Milliseconds."""
ITEMS = 183

ANSWER = """\
Dear Ada, thank you for writing. Your order 4711 was cancelled on Monday, and the refund of 36.50 will arrive within
5 days. The parcel travels at 72 km/h and weighs 2.5 kg. If anything is unclear, please write to us again.

Kind regards, the support team
"""


def longer_than(attempt: Attempt, words: int) -> bool:
    """Whether the answer has more words than that."""
    return attempt.answer.count(" ") > words


def share_of_capitals(attempt: Attempt, at_most: float) -> bool:
    """Whether few letters are capitals."""
    return sum(map(str.isupper, attempt.answer)) <= at_most * len(attempt.answer)


def item(number: int) -> dict[str, Any]:
    """The item of a number; six kinds take turns."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("pattern", {"pattern": rf"\b(refund|parcel|word{number})\b"}),
        ("pattern", {"pattern": rf"guarantee{number}|lawsuit", "present": False}),
        ("longer_than", {"words": number % 40}),
        ("share_of_capitals", {"at_most": number % 5 / 100}),
        ("called", {"tool": "cancel", "arguments": {"order": 4711}}),
        ("not_called", {"tool": f"drop_{number}"}),
    ]
    if number % 20 == 0:
        kinds = [("numeric", {"expected": 2500.0, "unit": "g"}), ("exact", {"expected": ANSWER})]
    check, arguments = kinds[number % len(kinds)]
    return {"id": f"item-{number}", "check": check, "arguments": arguments, "group": f"group-{number % 7}"}


def rubric() -> Rubric:
    """The checklist, read from a file."""
    file = {"name": "support", "version": "1", "items": [item(number) for number in range(ITEMS)]}
    functions = {"longer_than": longer_than, "share_of_capitals": share_of_capitals}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "support.json"
        path.write_text(json.dumps(file, indent=1), encoding="utf-8")
        return load_checklist(path, functions=functions)


async def measure(rounds: int) -> dict[str, float]:
    """Milliseconds by what is measured."""
    checks = rubric()
    steps = tuple(TakenStep(n, "look", {"page": n}) for n in range(1, 8))
    attempt = Attempt(answer=ANSWER, steps=(*steps, TakenStep(8, "cancel", {"order": 4711})))
    reward = await checks.score(attempt)
    print(f"{len(reward.components)} checks, {reward.reason}")
    times: dict[str, list[float]] = {"score": [], "score and JSON": [], "score, processor": []}
    for _ in range(rounds):
        times["score"].append(await once(checks, attempt))
        times["score and JSON"].append(await once(checks, attempt, finish=Reward.model_dump_json))
        times["score, processor"].append(await once(checks, attempt, clock=time.process_time))
    return {name: statistics.median(taken) for name, taken in times.items()}


async def once(
    checks: Rubric,
    attempt: Attempt,
    finish: Callable[[Reward], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Milliseconds of one evaluation."""
    begun = clock()
    reward = await checks.score(attempt)
    if finish is not None:
        finish(reward)
    return (clock() - begun) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path, help="also write the medians there, in milliseconds")
    options = parser.parse_args()
    medians = asyncio.run(measure(options.rounds))
    for name, taken in medians.items():
        verdict = f"   at most {BAR:g} ms: {'met' if taken <= BAR else 'MISSED'}" if name == "score" else ""
        print(f"{name:20} {taken:6.3f} ms{verdict}")
    if options.json:
        options.json.write_text(json.dumps(medians, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
