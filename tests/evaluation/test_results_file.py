"""The results file: what it holds, and that a reader takes nothing else."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from evaluations import SPEC, cell, document, parse, played
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_clients import ROOT

from ludus.evaluation.figures import probe_figures
from ludus.evaluation.folder import read_results, write_results
from ludus.protocol.errors import NotFound, ParseError
from ludus.protocol.evaluation import parse_evaluation


@pytest.fixture
def whole() -> dict[str, Any]:
    """A document with everything that a cell may hold."""
    episodes = [played(task, sample, float(task % 2), tokens=(10, 5)) for task in range(4) for sample in range(2)]
    episodes += [played(4, 0, failure="infrastructure"), played(4, 1, None)]
    probe = probe_figures(
        "no-tools", episodes[:4], episodes, spec=SPEC, applies=True, planned=4, success_at=1.0,
        reward_range=(0.0, 1.0), trajectories="m.no-tools.jsonl",
    )  # fmt: skip
    return document(cell(episodes, probes=(probe,)))


def test_a_cell_counts_what_is_scored_and_keeps_the_rest_apart() -> None:
    episodes = [played(0, 0, 1.0), played(0, 1, None), played(1, 0, 0.5), played(1, 1, failure="environment")]
    found = cell(episodes, planned=6)
    assert (found.planned, found.episodes, found.scored, found.unscored) == (6, 4, 2, 1)
    assert found.failed == {"environment": 1}
    assert found.mean is not None
    assert (found.mean.value, found.mean.tasks) == (0.75, 2)
    assert found.success is not None
    assert found.success.value == 0.5
    assert [one.reward for task in found.tasks for one in task.episodes] == [1.0, None, 0.5, None]
    assert set(found.pass_at) == {1}, "no task has two scored episodes"
    assert {(one.kind, one.count) for one in found.causes} == {("environment", 1), ("unscored", 1)}


def test_every_task_has_the_same_weight_however_many_of_its_episodes_are_scored() -> None:
    episodes = [played(0, sample, 1.0) for sample in range(9)] + [played(1, 0, 0.0)]
    found = cell(episodes)
    assert found.mean is not None
    assert found.mean.value == 0.5


def test_a_cell_without_a_scored_episode_has_no_figures() -> None:
    found = cell([played(0, 0, None)])
    assert (found.mean, found.success, found.pass_at, found.scored) == (None, None, {}, 0)


@pytest.mark.parametrize(
    ("tokens", "known", "cost"),
    [
        ([(10, 5), (20, 1)], (30, 6, 2, 0), (30 * 1.0 + 6 * 2.0) / 1e6),
        ([(10, 5), None], (10, 5, 1, 1), None),
        ([None, None], None, None),
    ],
)
def test_unknown_tokens_are_counted_and_make_the_cost_unknown(
    tokens: list[tuple[int, int] | None], known: tuple[int, ...] | None, cost: float | None
) -> None:
    found = cell([played(0, sample, 1.0, tokens=used) for sample, used in enumerate(tokens)])
    if known is None:
        assert found.tokens is None
    else:
        assert found.tokens is not None
        assert (found.tokens.input, found.tokens.output, found.tokens.episodes, found.tokens.unreported) == known
    assert found.cost == cost


def test_a_file_is_read_as_it_was_written(whole: dict[str, Any], tmp_path: Path) -> None:
    results = parse(whole)
    write_results(tmp_path, results)
    assert read_results(tmp_path) == read_results(tmp_path / "results.json") == results
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_text_that_no_file_can_hold_is_replaced(whole: dict[str, Any], tmp_path: Path) -> None:
    write_results(tmp_path, parse(whole).model_copy(update={"ludus_version": "a\ud800b"}))
    assert read_results(tmp_path).ludus_version == "a\ufffdb"


def test_the_published_schema_accepts_the_file_and_refuses_others(whole: dict[str, Any], tmp_path: Path) -> None:
    schema = json.loads((ROOT / "spec" / "schema" / "evaluation.schema.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    write_results(tmp_path, parse(whole))
    written = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert list(validator.iter_errors(written)) == []
    assert list(validator.iter_errors({**written, "nonsense": 1}))
    assert list(validator.iter_errors({**written, "format": "ludus.evaluation/9.0"}))


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no results of `ludus eval` in"):
        read_results(tmp_path)


def broken(whole: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    changed = copy.deepcopy(whole)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return changed


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (("format",), "ludus.evaluation/9.0", "format: 'ludus.evaluation/9.0' is not one of"),
        (("nonsense",), 1, "nonsense"),
        (("cells", 0, "nonsense"), 1, r"cells\.0\.nonsense"),
        (("cells", 0, "scored"), 9, "scored is 9, and 8 episodes"),
        (("cells", 0, "episodes"), 3, "episodes is 3, and the tasks have 10"),
        (("cells", 0, "unscored"), 0, "do not add up"),
        (("cells", 0, "model"), "other", "names the model 'other'"),
        (("cells", 0, "mean", "interval"), [1.0, 0.0], "wrong order"),
        (("cells", 0, "mean", "value"), "0.5", "not a number"),
        (("cells", 0, "success_at"), None, "not a number"),
        (("cells", 0, "cost"), -1.0, "too small"),
        (("samples",), 1.5, "not a whole number"),
        (("started_at",), "2026-11-23T10:00:00", "timezone"),
        (("models",), [], "names the model"),
    ],
)
def test_an_inconsistent_file_is_refused_with_the_field(
    path: tuple[str | int, ...], to: Any, message: str, whole: dict[str, Any]
) -> None:
    assert parse(whole) is not None
    with pytest.raises(ParseError, match=message):
        parse(broken(whole, *path, to=to))


def test_a_missing_field_is_named(whole: dict[str, Any]) -> None:
    for name in whole:
        with pytest.raises(ParseError, match=f"{name}: it is missing"):
            parse({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format": "ludus.trajectory/0.1"}']
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match=r"x\.json has no results"):
        parse_evaluation(data, "x.json")


leaves: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_an_option_that_is_no_number_of_json_is_refused(number: str) -> None:
    text = json.dumps(document()).replace('"options": {"t": 0}', f'"options": {{"t": [{number}]}}')
    with pytest.raises(ParseError, match="no number of JSON"):
        parse_evaluation(text, "results.json")


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), leaves)
def test_a_file_with_any_value_changed_is_read_or_refused(rng: random.Random, value: Any) -> None:
    episodes = [played(task, sample, float(task % 2), tokens=(10, 5)) for task in range(2) for sample in range(2)]
    changed = document(cell(episodes))
    place: Any = changed
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.8:
            place = place[key]
            continue
        place[key] = value
        break
    with contextlib.suppress(ParseError):  # any other exception fails the test
        results = parse(changed)
        assert parse_evaluation(results.model_dump_json(), "again") == results
