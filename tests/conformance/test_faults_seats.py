"""Each fault in how a server deals with seats makes exactly the check of seats fail."""

from __future__ import annotations

from typing import Any

import pytest
from planting import CheckPlanted, Faults, Planted, assert_caught, on_params, on_result
from seated_world import Piles

from ludus.conformance import conform
from ludus.server.serving.app import LudusApp

faults = Faults()
caught = faults.caught_by("channel/seats", "mcp/seats")
caught_with_seats = faults.caught_by("channel/seats", "mcp/seats", environment=Piles)


@caught
def seats_are_ignored_where_there_are_none(app: LudusApp) -> None:
    on_params(app, "start", lambda params: params.model_copy(update={"seats": None}))


@caught_with_seats
def a_seat_that_leaves_does_not_end_its_match(app: LudusApp) -> None:
    def still_running(params: Any, result: Any) -> Any:
        if result.info.end_reason != "completed":
            return result
        return result.model_copy(update={"info": result.info.model_copy(update={"end_reason": None})})

    on_result(app, "get_episode", still_running)


@caught_with_seats
def two_matches_have_one_id(app: LudusApp) -> None:
    def same(params: Any, result: Any) -> Any:
        episodes = tuple(one.model_copy(update={"match": "m" if one.match else None}) for one in result.episodes)
        return result.model_copy(update={"episodes": episodes})

    on_result(app, "start", same)


@caught_with_seats
def all_starts_one_seat(app: LudusApp) -> None:
    def one_seat(params: Any) -> Any:
        return params.model_copy(update={"seats": ("first",)}) if params.seats == "all" else params

    on_params(app, "start", one_seat)


@pytest.mark.parametrize("fault", faults.sampled)
async def test_a_planted_fault_is_caught(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


async def test_a_server_of_an_environment_with_seats_conforms(serve: Any) -> None:
    server = await serve(Piles)
    report = await conform(server.url, seconds=100.0)
    assert [(verdict.check, verdict.detail) for verdict in report.of("failed", "noted")] == []
    assert {verdict.status for verdict in report.verdicts if verdict.check == "seats"} == {"passed"}
    assert server.app.context.host.stats().running == 0
