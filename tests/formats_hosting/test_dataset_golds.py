"""The check at startup that right answers, in the form that the prompt asks for, earn 1."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ludus.formats.dataset import golds
from ludus.protocol.errors import AuthoringError
from ludus.server.tasks.loading import load_environment
from ludus.testing import play
from ludus.validation import validate

QUESTION = {"question": "How much?"}


def serve(folder: Path, rows: Sequence[Mapping[str, Any]], options: str) -> Any:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({**QUESTION, **row}) + "\n" for row in rows), encoding="utf-8")
    return load_environment(f"dataset:{path}" + (f"#{options}" if options else ""))


@pytest.mark.parametrize(
    ("grader", "answers"),
    [
        ("exact", ["Paris", " two words ", "A", ["one", "1"]]),
        ("normalized", ["The Hague", "a", "C++", "-5", ["one", "1"]]),
        ("numeric", ["3", "–5", r"\frac{1}{2}", "1,234.5", "1e22", 7, 0.1]),
        ("gsm8k", ["Work.\n#### 1,234", "#### -7"]),
        ("math", ["2^{10}", "$x$", r"Count them. $3 < 5$, so it is $\boxed{3, 5, 7}$.", " 12 ", 10]),
    ],
)
def test_usual_answers_earn_1_in_the_form_that_the_prompt_asks_for(
    grader: str, answers: Sequence[Any], tmp_path: Path
) -> None:
    environment = serve(tmp_path, [{"answer": answer} for answer in answers], f"grader={grader}")
    with play(environment) as server:
        for index in range(len(answers)):
            episode = server.start(index=index)
            episode.answer(environment.right_messages(environment.splits["train"].get(index))[0])
            assert episode.reward == 1.0


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        (
            [{"answer": "7"}, {"answer": r"\frac{1}{"}, {"answer": "2^{"}], "grader=math",
            r"rows\.jsonl, line 2: its right answer, written as the prompt asks, is unscored: .*"
            r"\(2 of 3 checked rows\)\. The same holds for rows\.jsonl, line 3$",
        ),
        (
            [{"answer": r"Either \boxed{5}, or it fails, and then \boxed{6}."}], "grader=math",
            r"rows\.jsonl, line 1: its right answer, written as the prompt asks, is unscored: .*\(1 of 1 checked",
        ),
    ],
)  # fmt: skip
def test_rows_whose_right_answer_does_not_earn_1_are_refused_by_file_and_line(
    rows: Sequence[Mapping[str, Any]], options: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(AuthoringError, match=reason):
        serve(tmp_path, rows, options)


def test_a_truth_that_skyrls_own_grader_never_pays_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    row = {
        "prompt": [{"role": "user", "content": "How many?"}], "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "1,000"},
    }  # fmt: skip
    with pytest.raises(AuthoringError, match="earns 0: '#### 1,000'"):
        serve(tmp_path, [row], "")


@pytest.mark.parametrize(("rows", "checked"), [(8, 8), (9, 5), (100, 7)])
def test_small_sets_are_checked_whole_and_large_ones_evenly(
    rows: int, checked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(golds.SAMPLE, "exact", 4)
    graded: list[int] = []
    grade = golds.grade

    async def count(check: Any, attempts: Sequence[Any]) -> Any:
        graded.append(len(attempts))
        return await grade(check, attempts)

    monkeypatch.setattr(golds, "grade", count)
    serve(tmp_path, [{"answer": str(number)} for number in range(rows)], "grader=exact")
    assert graded == [checked]


async def test_a_dataset_loads_while_an_event_loop_runs(tmp_path: Path) -> None:
    assert asyncio.get_running_loop()
    assert serve(tmp_path, [{"answer": "7"}], "grader=exact").name == "rows"


async def test_validate_plays_the_right_answers(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({**QUESTION, "answer": str(n)}) + "\n" for n in range(6)), encoding="utf-8")
    (report,) = await validate(f"dataset:{path}#grader=numeric,test_fraction=0.5", only=["right-messages"])
    assert [(verdict.kind, verdict.status) for verdict in report.verdicts] == [("right-messages", "passed")]
