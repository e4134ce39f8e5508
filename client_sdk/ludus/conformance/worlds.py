"""The check of worlds: state that outlives an episode."""

from __future__ import annotations

from functools import partial
from typing import Any

from ludus.conformance.checks import Suite, expect, expect_equal
from ludus.conformance.context import CheckContext, new_key, read
from ludus.protocol.modules import Module

suite = Suite(Module.WORLDS)

_NO_WORLD = "w_no_such_world"


@suite.check(
    "a world has versions, one writer at a time and branches; without worlds, a start that names one is refused",
    "WORLD-1",
    "WORLD-2",
    "WORLD-3",
    "WORLD-4",
    "WORLD-5",
    "WORLD-6",
    "WORLD-7",
    "WORLD-9",
    "WORLD-10",
    "WORLD-11",
    "WORLD-12",
)
async def worlds(context: CheckContext) -> None:
    await context.refused(4046, "worlds/get", world=_NO_WORLD)
    await context.refused(4046, "worlds/branch", world=_NO_WORLD, key=new_key())
    await context.refused(4046, "worlds/reset", world=_NO_WORLD, version=0, key=new_key())
    expect_equal(await context.must("worlds/delete", world=_NO_WORLD), {"deleted": False}, "a deletion of no world")
    if context.target.environment.get("worlds") is None:
        started = await context.start()
        with_fields = [
            result for result in (context.target.environment, started) if "worlds" in result or "world" in result
        ]
        expect(not with_fields, "an environment without worlds has fields of the module")
        await context.refused(4220, "episodes/start", **context.place, key=new_key(), world={})
        return
    await context.refused(4046, "episodes/start", **context.place, key=new_key(), world={"id": _NO_WORLD})
    expect("world" not in await context.start(), "an episode has a world although its start names none")
    group = await context.start_group(2, index=0, world={})
    read("episodes/start", group)
    first_episode, second_episode = group["episodes"]
    expect(first_episode["world"]["id"] != second_episode["world"]["id"], "two new worlds have one id")
    for episode in (first_episode, second_episode):
        world = episode["world"]["id"]
        context.at_end(partial(context.ask, "worlds/delete", world=world))
        expect_equal(episode["world"]["version"], 0, "the version that the first episode of a world began with")
    await _busy(context, first_episode)
    await context.must("episodes/close", episode=second_episode["episode"])
    expect_equal(
        await _versions(context, second_episode["world"]["id"]), [0], "versions after an episode that was closed"
    )
    await context.must("episodes/grade", episode=first_episode["episode"], answer="", key=new_key())
    expect_equal(
        (await context.info(first_episode["episode"]))["world"].get("committed"), 1, "the version that an episode made"
    )
    await _later(context, first_episode["world"]["id"])


async def _busy(context: CheckContext, episode: dict[str, Any]) -> None:
    """Try what is refused while an episode plays in a world."""
    world = episode["world"]["id"]
    start = {**context.place, "index": 0}
    await context.refused(4094, "episodes/start", **start, key=new_key(), world={"id": world})
    await context.refused(4094, "worlds/reset", world=world, version=0, key=new_key())
    await context.refused(4094, "worlds/delete", world=world)
    await context.refused(4220, "episodes/fork", episode=episode["episode"], key=new_key())
    expect((await context.must("worlds/get", world=world))["world"]["busy"], "a world with an episode is not busy")


async def _later(context: CheckContext, world: str) -> None:
    """Go on with a world that has two versions: the next episode, branches, a reset, the deletion."""
    start = {**context.place, "index": 0}
    await context.refused(-32602, "episodes/start", **start, key=new_key(), count=2, world={"id": world})
    gone = {"id": world, "branch": True, "version": 99}
    await context.refused(4047, "episodes/start", **start, key=new_key(), world=gone)
    following = await context.start(index=0, world={"id": world})
    expect_equal(following["world"], {"id": world, "version": 1, "committed": None}, "the world of the next episode")
    group = await context.start_group(2, index=0, world={"id": world, "branch": True, "version": 0})
    branches = {episode["world"]["id"] for episode in group["episodes"]}
    expect(len(branches | {world}) == 3, "branches are not worlds of their own")
    for branch in branches:
        context.at_end(partial(context.ask, "worlds/delete", world=branch))
        origin = (await context.must("worlds/get", world=branch))["world"]["origin"]
        expect_equal(origin, {"world": world, "version": 0}, "the origin of a branch")
    for episode in (following, *group["episodes"]):
        await context.must("episodes/close", episode=episode["episode"])
    key = new_key()
    for _ in range(2):
        again = (await context.must("worlds/reset", world=world, version=0, key=key))["world"]
        expect_equal((again["version"], again["versions"][-1]["resetTo"]), (2, 0), "the last version after a reset")
    await context.refused(4047, "worlds/reset", world=world, version=99, key=new_key())
    await context.refused(4047, "worlds/branch", world=world, version=99, key=new_key())
    listed = await context.must("worlds/list", limit=1000)
    expect(world in {row["world"] for row in listed["worlds"]} or listed["nextCursor"], "a world is not listed")
    for deleted in (True, False):
        expect_equal(await context.must("worlds/delete", world=world), {"deleted": deleted}, "a deletion")
    await context.refused(4046, "worlds/get", world=world)


async def _versions(context: CheckContext, world: str) -> list[int]:
    world_row = (await context.must("worlds/get", world=world))["world"]
    return [version["version"] for version in world_row["versions"]]
