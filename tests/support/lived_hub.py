"""A hub over SQLite that people have used: each table of its database has rows that its own code has written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import results_hub
from hub_people import PASSWORD, publish_private
from hub_sites import as_page
from hubs import OTHER_KEY, publish, release
from openid_people import OpenIdHub, openid_hub
from results_hub import Player, ResultsHub, episode, locks_release, submission
from rollout_lines import line

from ludus.registry.types.people import USUAL_SCOPES, HubScope, NewToken
from ludus.registry.types.signing import public_key
from ludus.server.durability.journal import MemoryJournal
from ludus.server.serving.serve import serving
from ludus.server.serving.settings import ServerSettings

COIN, SECRET, LOCKS = "alice/coin", "alice/secret", "ada/locks"
"""A package with two versions, a private one, and one with boards of results."""

CARD = "# Coin\n\nÜnïcode \u2028 &amp; 'quotes', \"more\"; and a line that begins like a statement:\nSET x = 1;\n"

BOARDS = (
    f"/api/v1/environments/{LOCKS}/versions/1.0.0/board?environment=locks&split=test&level=played",
    f"/api/v1/environments/{LOCKS}/versions/1.0.0/board?environment=locks&split=test&level=reported",
    f"/api/v1/environments/{LOCKS}/versions/1.0.0/board?environment=locks&split=train&level=reported",
)

PUBLIC = (
    f"/api/v1/environments/{COIN}", f"/api/v1/environments/{COIN}/versions", f"/api/v1/environments/{COIN}/owners",
    f"/api/v1/environments/{COIN}/versions/1.0.0", f"/api/v1/environments/{COIN}/versions/1.1.0",
    f"/api/v1/environments/{LOCKS}/versions/1.0.0", f"/api/v1/environments/{LOCKS}/versions/1.0.0/boards",
    "/api/v1/environments?q=locks", "/api/v1/owners/alice/keys", "/api/v1/organizations/guild", "/api/v1/results/log",
    "/api/v1/results/key", *BOARDS,
)  # fmt: skip
"""What everyone reads of that hub, and what does not depend on the time."""

OWN = (f"/api/v1/environments/{SECRET}", f"/api/v1/environments/{SECRET}/versions/1.0.0", "/api/v1/account")
"""What alice reads."""


@dataclass
class LivedHub:
    """That hub, which runs.

    Attributes:
        data: its data folder.
        token: a token of alice that never expires.
        public: more that everyone reads.
    """

    data: Path
    token: str
    public: list[str]


def succeeded(answer: httpx.Response) -> Any:
    """Return the document of an answer, or its text; it must be one of success."""
    assert answer.status_code < 400, f"{answer.request.url}: {answer.status_code} {answer.text}"
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    return answer.json() if is_json else answer.text


@asynccontextmanager
async def lived_hub(folder: Path) -> AsyncIterator[LivedHub]:
    """Run the hub in a folder, with an episode that is being played."""
    with _accounts(folder) as lived:
        pass
    async with serving(tuple(results_hub.CLASSES.values()), ServerSettings(port=0), journal=MemoryJournal()) as server:
        hub = ResultsHub(folder / "data", server.url)
        await hub.start()
        try:
            await _results(hub, lived)
            yield lived
        finally:
            await hub.stop()


# ── people and packages ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _accounts(folder: Path) -> Iterator[LivedHub]:
    with openid_hub(folder) as hub:
        people = hub.people
        people.hub.people.accounts.create("carol", PASSWORD)
        new = NewToken(name="a program", scopes=USUAL_SCOPES, days=None)
        token = people.hub.people.tokens.create(people.account("alice"), new, is_admin=False).token
        alice, bob, root = people.as_(token), people.of("bob"), people.of("root", [HubScope.ADMIN])
        _packages(alice)
        succeeded(root.post("/api/v1/invitations"))
        succeeded(root.put(f"/api/v1/blocks/{'0' * 64}", json={"reason": "it sends keys to a stranger"}))
        _organization(alice, bob)
        _sign_ins(hub)
        browser = people.browser("alice")
        form = {"form_key": as_page(browser.get("/rollouts")).hidden("form_key")}
        kept = browser.post("/rollouts", data=form, files={"file": ("a.jsonl", f"{json.dumps(line())}\n".encode())})
        assert kept.status_code == 303, kept.text
        yield LivedHub(folder / "data", token, [])


def _packages(alice: httpx.Client) -> None:
    for version in ("1.0.0", "1.1.0"):
        succeeded(publish(alice, release(COIN, version, card=CARD)))
    where = f"/api/v1/environments/{COIN}"
    succeeded(alice.post(f"{where}/versions/1.1.0/yank", json={"reason": "a wrong coin; it's false"}))
    succeeded(alice.put(f"{where}/owners/bob"))
    succeeded(alice.post("/api/v1/owners/alice/keys", json={"key": public_key(OTHER_KEY)}))
    succeeded(publish_private(alice, release(SECRET)))
    succeeded(alice.put(f"/api/v1/environments/{SECRET}/readers/bob"))


def _organization(alice: httpx.Client, bob: httpx.Client) -> None:
    succeeded(alice.post("/api/v1/organizations", json={"name": "guild", "public": True}))
    for name in ("bob", "carol"):
        succeeded(alice.put(f"/api/v1/organizations/guild/invitations/{name}", json={"role": "reader"}))
    succeeded(bob.post("/api/v1/account/organizations/guild"))


def _sign_ins(hub: OpenIdHub) -> None:
    """Sign in in every way; one through the provider and one on a device stay open."""
    hub.register("dora", sub="dora-at-provider", email="dora@example.org", email_verified=True)
    hub.leave(hub.browser())
    browser = hub.browser()
    answer = hub.send(browser, "/login", name="alice", password=PASSWORD)
    assert answer.status_code == 303, answer.text
    succeeded(hub.people.client.post("/api/v1/login/device", json={"name": "a laptop", "scopes": ["read"], "days": 30}))


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _results(hub: ResultsHub, lived: LivedHub) -> None:
    """Play a run on the board of the locks and begin one on that of the debts; upload some, and take one off."""
    digest = hub.publish_release(locks_release(LOCKS))
    where = f"/api/v1/environments/{LOCKS}/versions/1.0.0/results"
    async with hub.client("alice") as alice, hub.client("bob") as bob:
        player = await Player.register(alice, LOCKS, tasks=4, priceIn=2.0, priceOut=1.0)
        await player.play(3, inputTokens=1000, outputTokens=100)
        begun = await Player.register(bob, LOCKS, environment="debts", tasks=2)
        await begun.next()
        reported = succeeded(await bob.post(where, json=submission(digest, 1.0, 0.0, None, 1.0)))
        wrong = succeeded(await alice.post(where, json=submission(digest, 1.0)))
        succeeded(await alice.post(f"/api/v1/runs/{wrong['key']}/remove", json={"reason": "a mistake"}))
        tasks = [{"task": "train-0", "index": 0, "episodes": [episode()]}]
        seen = succeeded(await alice.post(where, json=submission(digest, 1.0, split="train", tasks=tasks)))
        row = {"id": "train-0", "split": "train", "index": 0, "fields": {}}
        rollouts = json.dumps({**line(2, task=row, sample=0), "environment": "locks"}).encode()
        succeeded(await alice.post(f"/api/v1/runs/{seen['key']}/rollouts", content=rollouts))
    lived.public += [f"/api/v1/runs/{player.key}{part}" for part in ("", "/rows", "/receipt")]
    lived.public += [f"/api/v1/runs/{reported['key']}", f"/api/v1/runs/{seen['key']}/rollouts"]
