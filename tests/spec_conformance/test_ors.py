"""The module `ors`: the Open Reward Standard."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import OrsPeer, validate

from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Any]


@pytest.fixture
async def ors(server: LudusServer, connect: Connect) -> OrsPeer:
    peer: OrsPeer = connect("ors", server)
    return peer


@pytest.mark.requirement("ORS-15")
async def test_clients_that_know_the_extension_learn_what_ors_has_no_word_for(ors: OrsPeer) -> None:
    ors.headers["Ludus-Extension"] = "0.2"
    session, faulty = await ors.open(), await ors.open("faulty")
    told = (await ors.call(session, "earn"))["ludus"]
    validate("StepResult", {**told, "content": []})
    assert told["reward"]["components"][f"{world.SECRET}-part"]["value"] == 1.0
    assert (await ors.call(session, "refuse"))["ludus"]["error"]["code"] == "refused"
    events = await ors.events("/faulty/call", {"name": "crash", "input": {}}, faulty)
    assert [kind for kind, _ in events][-2:] == ["ludus", "error"]
    error = json.loads(events[-2][1])
    validate("ErrorObject", error)
    assert (error["code"], world.SECRET in events[-2][1]) == (5001, False)
