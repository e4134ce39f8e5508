"""Mistakes in a class with worlds are found when the server starts, with the fix."""

from __future__ import annotations

from typing import Any

import pytest
from kept_world import Errand, Shop, Stock

from ludus.protocol.errors import AuthoringError
from ludus.server import Match, SeatedEnvironment, WorldEnvironment, tool
from ludus.server.tasks.catalog import publish


def changed(**changes: Any) -> type[Shop]:
    return type("Changed", (Shop,), changes)


class Bare(WorldEnvironment[Errand, Stock]):
    """Nothing."""

    splits = {"train": [Errand(id="a", goods="a")]}

    def prompt(self) -> str:
        return ""

    def grade(self, answer: str) -> float:
        return 0.0


class Overlapping(Shop):
    @tool(concurrent=True)
    async def both(self) -> str:
        """Overlap."""
        return ""


class Mailing(Shop):
    outside_effects = True
    durable = "none"
    forkable = False


class Garden(Match[Errand]):
    seats = ("one", "other")


class Seated(Shop, SeatedEnvironment[Any, Any]):
    """Both."""

    match_class = Garden
    forkable = False

    def observe(self) -> str:
        return ""


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (Bare, "no new_world"), (changed(save_world=lambda self: b""), "define both"),
        (changed(load_world=lambda self, saved: Stock()), "define both"), (Overlapping, "must not overlap"),
        (changed(task_tools=lambda self: ()), "must not overlap"), (Mailing, "outside_effects"),
        (changed(chain_length=0), "chain_length"), (changed(chain_length="5"), "chain_length"),
        (changed(chain_length=3), "cannot be chains of 3"), (Seated, "has seats and worlds"),
    ],
)  # fmt: skip
def test_a_class_that_contradicts_itself_is_refused(cls: Any, why: str) -> None:
    with pytest.raises(AuthoringError, match=why):
        publish("shop", cls)


@pytest.mark.requirement("WORLD-1")
def test_the_catalog_says_which_environments_have_worlds_and_chains() -> None:
    info = publish("shop", Shop).info
    assert info.worlds is not None
    assert info.worlds.chain == 2
    plain: Any = type("Plain", (Shop,), {"chain_length": 1})
    assert publish("plain", plain).info.model_dump(mode="json")["worlds"] == {"chain": 1}


def test_a_world_is_saved_as_json_of_its_class() -> None:
    shop = Shop()
    shop.world = Stock(sold=["fig"], opened_with=3)
    assert shop.save_world() == b'{"sold":["fig"],"opened_with":3}'
    assert shop.load_world(shop.save_world()) == shop.world
