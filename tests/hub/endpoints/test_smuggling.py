"""A hub reads the same requests as h11 does and passes the same ones to a process; its answers are read as h11 does.

`LUDUS_FUZZ=1000000` sends as many mutations of the shapes, `LUDUS_FUZZ_SEED=2` others.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from typing import Any

import hostile_endpoint
import httpx
import pytest
from answer_shapes import SHAPES as ANSWERS
from answer_shapes import mutation as mutated_answer
from echoing_package import REPORT, SOURCE
from request_shapes import mutation, shapes_at
from smuggling import Front, answered, faults_of, outcome_of, wrong
from suite_selection import selected_suites

COUNT = int(os.environ.get("LUDUS_FUZZ", "2000" if "smuggling" in selected_suites() else "20"))
SEED = int(os.environ.get("LUDUS_FUZZ_SEED", "1"))
EVERY = 1 if "smuggling" in selected_suites() else 3
"""Every how many shapes are tried."""

pytestmark = [pytest.mark.timeout(240 + COUNT // 10), pytest.mark.suite("smuggling", sample=True)]


@pytest.fixture
async def front(start_hub: Any, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Front]:
    """A hub with an endpoint that echoes."""
    hub = await start_hub()
    await hub.publish("echoing", source=SOURCE, cls="Echoing")
    async with httpx.AsyncClient(base_url=hub.address("echoing"), timeout=60) as client:
        assert (await client.get("/health")).status_code == 200
    path = "/e/ada/echoing/play/x"
    yield Front(port_of(hub), path, (path + REPORT,), prefix="/e/ada/echoing")
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


REFUSED_BY_HUB = {
    "asterisk form",
    "dots",
    "two slashes",
    "an escaped line break",
    "a backslash in the target",
    "no host, HTTP/1.0",
}
"""Shapes that the hub may refuse although they are whole requests: there is no such page, or host."""


async def test_every_shape_is_passed_on_to_the_process_of_an_endpoint_or_refused(front: Front) -> None:
    for shape in shapes_at(front.path)[::EVERY]:
        outcome = await outcome_of(front, shape.data, waits=shape.waits)
        assert faults_of(front, outcome) == [], shape
        if shape.name not in REFUSED_BY_HUB:
            assert outcome.passed == shape.passed, shape
        if not (shape.passed or shape.waits):
            assert [answer.status for answer in outcome.answers] == [400], shape


async def test_mutations_of_the_shapes_make_no_process_read_what_the_client_did_not_send(front: Front) -> None:
    rng, shapes = random.Random(SEED), shapes_at(front.path)
    for _ in range(COUNT):
        data = mutation(rng, shapes)
        outcome = await outcome_of(front, data, rng.choice((1, 1, 1, 2, 5)))
        assert faults_of(front, outcome) == [], (data, outcome)


@pytest.fixture
async def hostile(start_hub: Any, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Any]:
    """A hub with the hostile package, whose process runs."""
    hub = await start_hub()
    await hub.publish("hostile", source=hostile_endpoint.SOURCE, cls="Hostile")
    async with httpx.AsyncClient(base_url=hub.address("hostile"), timeout=60) as client:
        assert (await client.get("/health")).status_code == 200
    yield hub
    failures = [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    assert [record for record in failures if "without completing response" not in record.getMessage()] == []


def port_of(hub: Any) -> int:
    """Return the port of a hub."""
    return int(hub.url.rpartition(":")[2])


async def test_no_answer_of_a_process_is_taken_for_more_than_one_or_for_that_to_another_request(hostile: Any) -> None:
    assert len(ANSWERS) >= 50
    for shape in ANSWERS[::EVERY]:
        answers = await answered(port_of(hostile), "/e/ada/hostile", shape)
        assert wrong(shape, answers) is None, (shape, answers)
        first = answers[0] if answers and answers[0].complete else None
        statuses = (shape.status,) if shape.status else (0, 502)
        assert (first.status if first is not None else 0) in statuses, (shape, answers)
        if first is not None and first.status < 500:
            assert first.body == shape.body, (shape, answers)


async def test_mutated_answers_of_a_process_are_read_as_h11_reads_them_or_refused(hostile: Any) -> None:
    rng = random.Random(SEED)
    for _ in range(COUNT):
        shape = mutated_answer(rng)
        answers = await answered(port_of(hostile), "/e/ada/hostile", shape)
        assert wrong(shape, answers) is None, (shape, answers)
