"""Paraphrased right answers and near misses, which `tests/environments/paraphrases` keeps as data.

A row has an answer in several right forms (`plain` and `latex`), and forms that are not right (`wrong`). Each form is
played in a plain layout, and the first ones in every layout of `layouts.jsonl`: `@` stands for the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "environments" / "paraphrases"
Row = Mapping[str, Any]


def rows(name: str) -> list[Row]:
    """Return the rows of a file."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


def right_messages(row: Row) -> Iterator[str]:
    """Yield the messages that state the answer of a row."""
    yield from (f"Answer: {form}" for form in row["plain"])
    for form in row["latex"]:
        yield from (rf"\boxed{{{form}}}", f"Answer: ${form}$")
    yield from (one["layout"].replace("@", row[one["slot"]][0]) for one in rows("layouts"))


def wrong_messages(row: Row) -> Iterator[str]:
    """Yield the messages that state another answer, or the right one together with others."""
    for form in row["wrong"]:
        yield from (f"Answer: {form}", f"Answer:\n{form}", rf"\boxed{{{form}}}")
    yield from (one["layout"].replace("@", row["plain"][0]) for one in rows("wrong_layouts"))
