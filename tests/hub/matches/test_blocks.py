"""Matches of a blocked version are void, and its entrants play no more."""

from __future__ import annotations

from hubs import kind_of
from match_hub import Contender, entrant_params, matches_of, meet
from results_hub import ResultsHub


async def test_open_matches_of_a_blocked_version_are_void_and_no_entrant_loses(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other, hub.client("root") as root:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        sha256 = (await root.get(f"/api/v1/environments/{package}/versions/1.0.0")).json()["sha256"]
        assert (await root.put(f"/api/v1/blocks/{sha256}", json={"reason": "it cheats"})).status_code == 200
        for who in (alice, bob):
            info = await who.info()
            assert (info["state"], info["losses"]) == ("ended", 0)
            assert (await who.ask(0))["ticket"] is None
        ended = await alice.end(tickets[0])
        assert (ended["state"], ended["result"]) == ("void", None)
        assert not any(lobby.client.matches for lobby in matches_of(hub)._lobbies.values()), "nothing is live any more"
        where = f"/api/v1/environments/{package}/versions/1.0.0/entrants"
        assert kind_of(await one.post(where, json=entrant_params(model="another"))) == "VersionBlocked"
