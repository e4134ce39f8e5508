"""The client of the documentation in a process without Ludus: `python -I -S plain_client.py SNIPPETS URL REQUEST LOST`.

Its connection is lost after each `LOST` lines. It prints what it found as JSON.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

snippets, url, request, lost = sys.argv[1:]
sys.path.insert(0, snippets)

plain_trainer: Any = importlib.import_module("plain_trainer")
whole = plain_trainer.lines_of
losses = 0


def losing(*arguments: Any) -> Iterator[Any]:
    """Yield the first lines of an answer, then lose the connection."""
    global losses
    for number, line in enumerate(whole(*arguments)):
        if number == int(lost):
            losses += 1
            raise ConnectionResetError
        yield line


plain_trainer.lines_of = losing
plain_trainer.time.sleep = lambda seconds: None
lines = list(plain_trainer.rollouts(url, json.loads(request)))
try:
    import ludus

    found = repr(ludus)
except ModuleNotFoundError:
    found = ""
tokens = 0
for line in lines[:-1]:
    for sample in line["samples"]:
        assert len(sample["ids"]) == len(sample["mask"]) == len(sample["logprobs"])
        tokens += sum(sample["mask"])
report = {
    "ludus": found,
    "losses": losses,
    "tokens": tokens,
    "end": lines[-1],
    "lines": [line["line"] for line in lines],
    "indices": sorted(line["index"] for line in lines[:-1]),
    "rewards": [line["reward"] for line in lines[:-1]],
}
json.dump(report, sys.stdout)
