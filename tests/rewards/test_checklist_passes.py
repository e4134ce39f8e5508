"""One run of the lint shows everything that is wrong with a checklist, however wrong its other items are."""

from __future__ import annotations

import json
from pathlib import Path

from ludus.server.rewards.checklist import lint_checklist


def test_mistakes_of_every_kind_are_found_in_one_pass(tmp_path: Path) -> None:
    prompt = "Does the report name the cause of the accident?"
    items = [
        {"id": "light", "check": "non_empty", "weight": -1},
        {"id": "again", "prompt": prompt},
        {"id": "again", "prompt": prompt + "!"},
        {"id": "unknown", "check": "no_such_check"},
        {"id": "both", "check": "non_empty", "prompt": prompt},
        {"id": "misspelt", "prompt": "Is it short?", "wieght": 2},
    ]
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"name": "x", "items": items}, indent=1))
    problems = lint_checklist(path)
    said = "\n".join(problem.message for problem in problems)
    for words in (
        "version: it is missing", "items.0.weight: -1 is too small", "the id 'again' was used",
        "there is no check 'no_such_check'", "and not both", "did you mean 'weight'?", "nearly that of",
    ):  # fmt: skip
        assert words in said, (words, said)
    assert [problem.line for problem in problems] == sorted(problem.line for problem in problems)
