"""`ludus eval compare`: pairs by task, and says what makes two runs hard to compare."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluations import cell, document, parse, played

from ludus.cli import ExitCode
from ludus.evaluation.comparison import compare
from ludus.evaluation.config import ModelSpec
from ludus.protocol.errors import InvalidParams
from ludus.protocol.evaluation import EvaluationResults


def results(
    rewards: dict[int, list[float | None]], *, model: str = "m", seed: int = 7,
    cell_changes: dict[str, Any] | None = None, **changes: Any,
) -> EvaluationResults:  # fmt: skip
    """The results of one model with these rewards by task."""
    episodes = [played(task, at, value, seed=seed) for task, own in rewards.items() for at, value in enumerate(own)]
    one = cell(episodes, model=ModelSpec(model=f"openai:{model}"), **(cell_changes or {}))
    return parse(document(one, models=(model,), **changes))


FIRST: dict[int, list[float | None]] = {0: [0.0, 0.0], 1: [0.0, 1.0], 2: [1.0, 1.0], 3: [0.0, 0.0]}
SECOND: dict[int, list[float | None]] = {0: [1.0, 0.0], 1: [1.0, 1.0], 2: [1.0, 1.0], 3: [1.0, 1.0]}


def test_differences_are_paired_by_task_and_larger_pairs_are_surer() -> None:
    (found,) = compare(results(FIRST), results(SECOND)).cells
    assert found.reward is not None
    assert (found.mean_a, found.mean_b, found.reward.value, found.reward.tasks) == (0.375, 0.875, 0.5, 4)
    assert found.reward.p is not None
    assert found.success is not None
    assert found.success.value == 0.5
    many_first = {task + 4 * copy: own for copy in range(8) for task, own in FIRST.items()}
    many_second = {task + 4 * copy: own for copy in range(8) for task, own in SECOND.items()}
    (surer,) = compare(results(many_first), results(many_second)).cells
    assert surer.reward is not None
    assert surer.reward.p is not None
    assert surer.reward.p < 0.001 < found.reward.p
    assert surer.notes == found.notes == ()


def test_unscored_episodes_count_neither_as_zero_nor_as_a_pair() -> None:
    unscored: dict[int, list[float | None]] = {**SECOND, 2: [None, 1.0], 3: [None, None]}
    (found,) = compare(results(FIRST), results(unscored)).cells
    assert found.reward is not None
    assert (found.reward.tasks, found.mean_b) == (3, (0.5 + 1.0 + 1.0) / 3)
    assert any("1 shared tasks have no scored episode" in note for note in found.notes)
    assert any("3 of 8 episodes of B are unscored" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        ({"seed": 8}, "cell", "different seeds"),
        ({"cell_changes": {"version": "2"}}, "cell", "the versions of the environment differ ('1' and '2')"),
        ({"cell_changes": {"success_at": 0.5}}, "cell", "success means another reward (1 and 0.5)"),
        ({"finished": False}, "run", "B is not finished"),
        ({"samples": 5}, "run", "the episodes per task differ (2 and 5)"),
        ({"limits": {"max_turns": 3, "turn_seconds": None, "episode_seconds": None}}, "run", "the limits of episodes"),
    ],
)
def test_what_else_differs_is_said(changes: dict[str, Any], where: str, message: str) -> None:
    found = compare(results(FIRST), results(SECOND, **changes))
    notes = found.cells[0].notes if where == "cell" else found.notes
    assert any(message in note for note in notes), (found.cells[0].notes, found.notes)
    assert (found.cells[0].success is None) == ("success_at" in changes.get("cell_changes", {}))


def test_tasks_that_only_one_run_has_are_left_out_and_named() -> None:
    (found,) = compare(results(FIRST), results({**SECOND, 9: [0.0]})).cells
    assert found.reward is not None
    assert found.reward.tasks == 4
    assert "1 tasks are only in B and left out: t-9" in found.notes


def test_models_are_paired_by_name_or_as_asked() -> None:
    a, b = results(FIRST), results(SECOND, model="other")
    (found,) = compare(a, b).cells
    assert (found.model_a, found.model_b) == ("m", "other")
    both = parse(
        document(
            *(
                cell([played(task, 0, 1.0)], model=ModelSpec(model=f"openai:{name}"))
                for task, name in ((0, "x"), (0, "y"))
            ),
            models=("x", "y"),
        )
    )
    assert [one.model_a for one in compare(both, parse(json.loads(both.model_dump_json()))).cells] == ["x", "y"]
    for one, other, options, message in (
        (both, both, {}, "say which models to compare"),
        (both, a, {}, "say which models"),
        (both, a, {"model_b": "m"}, "A has several models"),
        (both, a, {"model_a": "z"}, "A has no model 'z'"),
    ):
        with pytest.raises(InvalidParams, match=message):
            compare(one, other, **options)
    assert len(compare(both, both, model_a="x", model_b="y").cells) == 1


def test_cells_that_only_one_run_has_are_named_and_none_in_common_is_an_error() -> None:
    a, b = results(FIRST), results(SECOND, cell_changes={"split": "test"})
    with pytest.raises(InvalidParams, match="share no environment and split"):
        compare(a, b)
    two = parse(
        document(cell([played(0, 0, 1.0)], split="test"), cell([played(0, 0, 1.0)], split="train"), models=("m",))
    )
    assert "only B has m on env / test" in compare(a, two).notes


def test_several_comparisons_are_adjusted() -> None:
    def run(rewards: dict[int, list[float | None]]) -> EvaluationResults:
        episodes = [played(task, at, value) for task, own in rewards.items() for at, value in enumerate(own)]
        return parse(document(*(cell(episodes, split=name) for name in ("a", "b", "c"))))

    found = compare(run(FIRST), run(SECOND)).cells
    for one in found:
        assert one.reward is not None
        assert one.reward.p is not None
        assert one.p_adjusted == pytest.approx(min(1.0, 3 * one.reward.p))


def test_the_command_prints_a_table_or_json(
    ludus: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    for name, one in (("a", results(FIRST)), ("b", results(SECOND, seed=8))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(one.model_dump_json())
    shown = ludus("eval", "compare", "a", "b/results.json")
    assert shown.returncode == 0, shown.stderr
    assert "+0.500" in shown.stdout
    assert "different seeds" in shown.stderr
    printed = json.loads(ludus("eval", "compare", "a", "b", "--json").stdout)
    assert printed["format"] == "ludus.comparison/0.1"
    assert printed["cells"][0]["reward"]["value"] == 0.5
    missing = ludus("eval", "compare", "a", "nothing")
    assert missing.returncode == ExitCode.REFUSED
    assert "no results of `ludus eval` in nothing" in missing.stderr
