"""Each fault in how a server deals with worlds makes exactly the check of worlds fail."""

from __future__ import annotations

from typing import Any

import pytest
from kept_world import Shop
from planting import CheckPlanted, Faults, Planted, assert_caught, on_host, on_params, on_result

from ludus.conformance import conform
from ludus.protocol.errors import WorldBusy, WorldNotFound
from ludus.server.serving.app import LudusApp

faults = Faults()
caught = faults.caught_by("channel/worlds", "mcp/worlds")
caught_with_worlds = faults.caught_by("channel/worlds", "mcp/worlds", environment=Shop)


@caught_with_worlds
def an_episode_that_is_closed_makes_a_version(app: LudusApp) -> None:
    worlds = app.context.host.worlds
    leave = worlds.leave

    def always(episode: Any, reason: Any, last_call: Any) -> None:
        world = None if episode.stay is None else episode.stay.world
        leave(episode, reason, last_call)
        if world is not None and world.last == 0:
            world.versions[1] = world.versions[0]
            world.last = 1

    worlds.leave = always  # type: ignore[method-assign]


@caught
def worlds_are_ignored_where_there_are_none(app: LudusApp) -> None:
    on_params(app, "start", lambda params: params.model_copy(update={"world": None}))


@caught_with_worlds
def a_world_has_several_writers(app: LudusApp) -> None:
    def branched(params: Any) -> Any:
        if params.world is None or params.world.id is None:
            return params
        return params.model_copy(update={"world": params.world.model_copy(update={"branch": True})})

    on_params(app, "start", branched)


@caught_with_worlds
def a_world_with_an_episode_can_be_deleted(app: LudusApp) -> None:
    def kept(handler: Any) -> Any:
        async def answer(params: Any, principal: Any) -> Any:
            try:
                return await handler(params, principal)
            except WorldBusy as error:
                raise WorldNotFound(error.message) from None

        return answer

    on_host(app, "delete_world", kept)


@caught_with_worlds
def a_reset_brings_the_last_version_back(app: LudusApp) -> None:
    def other(params: Any, result: Any) -> Any:
        *before, last = result.world.versions
        versions = (*before, last.model_copy(update={"reset_to": 1}))
        return result.model_copy(update={"world": result.world.model_copy(update={"versions": versions})})

    on_result(app, "reset_world", other)


@caught_with_worlds
def an_episode_does_not_say_which_version_it_made(app: LudusApp) -> None:
    def silent(params: Any, result: Any) -> Any:
        if result.info.world is None:
            return result
        world = result.info.world.model_copy(update={"committed": None})
        return result.model_copy(update={"info": result.info.model_copy(update={"world": world})})

    on_result(app, "get_episode", silent)


@caught_with_worlds
def a_branch_has_no_origin(app: LudusApp) -> None:
    def lost(params: Any, result: Any) -> Any:
        return result.model_copy(update={"world": result.world.model_copy(update={"origin": None})})

    on_result(app, "get_world", lost)


@pytest.mark.parametrize("fault", faults.sampled)
async def test_a_planted_fault_is_caught(fault: Planted, check_planted: CheckPlanted) -> None:
    assert_caught(fault, await check_planted(fault, fault.checks))


async def test_a_server_of_an_environment_with_worlds_conforms(serve: Any) -> None:
    server = await serve(Shop)
    report = await conform(server.url, seconds=100.0)
    assert [(verdict.check, verdict.detail) for verdict in report.of("failed", "noted")] == []
    assert {verdict.status for verdict in report.verdicts if verdict.check == "worlds"} == {"passed"}
    assert server.app.context.host.stats().running == 0
    assert len(server.app.context.host.worlds) == 0
