"""The check of seats: several agents in one match."""

from __future__ import annotations

from ludus.conformance.checks import Suite, expect, expect_equal
from ludus.conformance.context import NO_TOOL, CheckContext, new_key, read
from ludus.protocol.modules import Module

suite = Suite(Module.SEATS)

_FIELDS = ("seats", "opponents", "seat", "match")


@suite.check(
    "the seats of a match are episodes that end together; without seats, a start that names some is refused",
    "SEAT-1",
    "SEAT-2",
    "SEAT-3",
    "SEAT-5",
    "SEAT-9",
    "SEAT-11",
    "SEAT-12",
)
async def seats(context: CheckContext) -> None:
    environment = context.target.environment
    names = [seat["name"] for seat in environment.get("seats", ())]
    if not names:
        started = await context.start()
        fields = [name for name in _FIELDS if name in environment or name in started]
        expect(not fields, f"an environment without seats has the fields {fields}")
        for field, value in (("seats", "all"), ("seats", ["first"]), ("opponent", "any")):
            await context.refused(4220, "episodes/start", **context.place, key=new_key(), **{field: value})
        return
    for wrong in (["no such seat"], [names[0], names[0]]):
        await context.refused(-32602, "episodes/start", **context.place, key=new_key(), seats=wrong)
    strength = "no such strength"
    await context.refused(-32602, "episodes/start", **context.place, key=new_key(), seats="all", opponent=strength)
    group = await context.start_group(2, seats="all")
    read("episodes/start", group)
    episodes = group["episodes"]
    expect_equal([episode["seat"] for episode in episodes], names * 2, "the seats of two matches")
    matches = [episode["match"] for episode in episodes]
    expect_equal(matches, [matches[0]] * len(names) + [matches[-1]] * len(names), "the matches of the episodes")
    expect(matches[0] != matches[-1], "two matches have one id")
    await _play(context, [episode["episode"] for episode in episodes[: len(names)]])


async def _play(context: CheckContext, episodes: list[str]) -> None:
    """Take a step in one seat of a match, then leave the match from it."""
    acting, *waiting = episodes
    await context.step(acting, 1, NO_TOOL)
    expect_equal(
        [await context.count_steps(episode) for episode in episodes], [1] + [0] * len(waiting), "steps of the seats"
    )
    await context.refused(4220, "episodes/fork", episode=waiting[0], key=new_key())
    await context.must("episodes/close", episode=acting)
    for episode in waiting:
        info = await context.info(episode)
        expect_equal(info["endReason"], "completed", "the end of a seat after another one has left the match")
        log = await context.must("episodes/rewards", episode=episode)
        expect_equal(
            [(entry["source"], entry["step"]) for entry in log["entries"]], [("match", 0)],
            "the reward log of a seat whose match ended before its first step",
        )  # fmt: skip
