"""One process and two workers read the same requests as h11 does, however they are sent, and refuse the rest alike.

`LUDUS_FUZZ=1000000` sends as many mutations of the shapes, `LUDUS_FUZZ_SEED=2` others.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import h11
import hostile_endpoint
import pytest
from answer_shapes import SHAPES as ANSWERS
from answer_shapes import mutation as mutated_answer
from echoing_package import REPORT, SOURCE
from request_shapes import mutation, shapes_at
from serving import served
from smuggling import Front, Outcome, answered, faults_of, outcome_of, wrong
from suite_selection import selected_suites

COUNT = int(os.environ.get("LUDUS_FUZZ", "10000" if "smuggling" in selected_suites() else "100"))
SEED = int(os.environ.get("LUDUS_FUZZ_SEED", "1"))
PATH = "/play/play_w0.echo"

pytestmark = [pytest.mark.timeout(180 + COUNT // 10), pytest.mark.suite("smuggling", sample=True)]


@pytest.fixture
async def fronts(launch: Any, tmp_path: Path) -> AsyncIterator[tuple[Front, Front]]:
    """A server of one process and one of two workers."""
    world = tmp_path / "echoing.py"
    world.write_text(SOURCE)
    workers = await launch(journal=False, specs=(f"{world}:Echoing",))
    async with served(world, {}, "Echoing") as single:
        port = int(single.url.rpartition(":")[2])
        other = PATH.replace("w0", "w1")
        yield Front(port, PATH, (PATH + REPORT,)), Front(workers.port, PATH, (PATH + REPORT, other + REPORT))
    assert "Traceback" not in workers.said


def told(outcome: Outcome) -> list[tuple[int, Any]]:
    """Return what a client gets: each status, and the request to which the answer is."""
    echoes = [json.loads(answer.body) if answer.status == 200 and answer.body else None for answer in outcome.answers]
    return [
        (answer.status, echo and (echo["method"], echo["target"], echo["body"]))
        for answer, echo in zip(outcome.answers, echoes, strict=True)
    ]


async def test_every_shape_is_passed_on_or_refused_by_one_process_as_by_workers(fronts: tuple[Front, Front]) -> None:
    shapes = shapes_at(PATH)
    assert len(shapes) >= 150
    for shape in shapes:
        outcomes = [await outcome_of(front, shape.data, waits=shape.waits) for front in fronts]
        for front, outcome in zip(fronts, outcomes, strict=True):
            assert faults_of(front, outcome) == [], shape
            assert outcome.passed == shape.passed, shape
            if not (shape.passed or shape.waits):
                (answer,) = outcome.answers
                assert (answer.status, answer.headers["content-type"]) == (400, "application/json"), shape
                assert json.loads(answer.body)["error"]["code"] == -32600, shape
        single, workers = (told(outcome)[: max(1, shape.passed)] for outcome in outcomes)  # behind HEAD, workers close
        assert single == workers, shape


async def test_shapes_in_pieces_are_read_as_in_one(fronts: tuple[Front, Front]) -> None:
    for shape in shapes_at(PATH)[:: 1 if "smuggling" in selected_suites() else 7]:
        for front in fronts:
            outcome = await outcome_of(front, shape.data, pieces=len(shape.data), waits=shape.waits)
            assert faults_of(front, outcome) == [], shape
            assert outcome.passed == shape.passed, shape


async def test_mutations_of_the_shapes_make_no_server_read_what_the_client_did_not_send(
    fronts: tuple[Front, Front],
) -> None:
    rng, shapes = random.Random(SEED), shapes_at(PATH)
    for _ in range(COUNT):
        data, pieces = mutation(rng, shapes), rng.choice((1, 1, 1, 2, 5))
        for front in fronts:
            outcome = await outcome_of(front, data, pieces)
            assert faults_of(front, outcome) == [], (data, outcome)


async def test_no_answer_of_a_worker_is_taken_for_that_to_another_request(launch: Any, tmp_path: Path) -> None:
    world = tmp_path / "hostile.py"
    world.write_text(hostile_endpoint.SOURCE)
    workers = await launch(journal=False, specs=(f"{world}:Hostile",))
    rng = random.Random(SEED)
    for shape in [*ANSWERS, *(mutated_answer(rng) for _ in range(COUNT))]:
        try:
            answers = await answered(workers.port, "", shape)
        except h11.RemoteProtocolError:
            continue  # the client does not take it for an answer, either
        assert wrong(shape, answers) is None, (shape, answers)
