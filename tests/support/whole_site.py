"""A hub with something on every page of its site, and the addresses of all these pages."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from hub_people import PASSWORD
from hubs import KEY, Release, WheelParts, new_name, release
from openid_people import settings_of
from openid_provider import TestProvider, onward
from results_hub import CLASSES, OWNER, Player, ResultsHub, episode, locks_release, submission
from rollout_lines import PIXEL, line

from ludus.hub.app import parts_of
from ludus.hub.core.rates import RateSettings
from ludus.hub.seed import seed
from ludus.hub.settings.people import PeopleSettings
from ludus.hub.site.openid_pages import CALLBACK
from ludus.protocol.episodes import SplitInfo, ToolSpec
from ludus.registry.types.packages import EnvironmentEntry
from ludus.registry.types.people import USUAL_SCOPES, NewToken

PERSON: Final = "grace"
"""An administrator with an account, who owns most of what is on the hub."""

PLAYER: Final = "grace who plays"
"""The browser of that person in which episodes are played."""

CARD: Final = """# Coin

Say how a coin lies. **Easy**, and `fast`.

| reward | when |
|---|---|
| 1 | right |
| 0 | wrong |

> A quotation, and a [link](https://example.org).

```python
from ludus import load
```

1. one
2. two
"""

ROUTES_WITHOUT_A_PAGE: Final = {
    "/static/{digest}/{name}": "a file that pages load; its size counts with each of them",
    "/account/export": "a file to download",
    "/rollouts/{file}/download": "a file to download",
    "/{owner}/{name}/play/{play}/demonstration": "a file to download",
    "/{owner}/{name}/versions/{version}/card": "plain text",
    "/{owner}/{name}/badge.svg": "a picture",
    "/{owner}/{name}/versions/{version}/badge.svg": "a picture",
    "/rollouts/{file}/{line:int}/images/{image:int}": "an image on the page of its episode",
    "/runs/{run}/rollouts/{line:int}/images/{image:int}": "an image on the page of its episode",
    "/{owner}/{name}/play/{play}/images/{image:int}": "an image on the page of its play",
}
"""The routes of the site that answer with something other than a page, with the reason."""


@dataclass(frozen=True)
class Visit:
    """A page to open.

    Attributes:
        name: what it shows, for messages and screenshots.
        path: its address.
        who: the account that has signed in; None for a stranger.
        status: the status of the answer.
        entries: what is entered in a form of the page, by field; the page after that is checked.
        button: the button that sends the form.
    """

    name: str
    path: str
    who: str | None = PERSON
    status: int = 200
    entries: tuple[tuple[str, str], ...] = ()
    button: str = ""


@dataclass
class WholeSite:
    """A running hub.

    Attributes:
        hub: the hub.
        visits: pages of every kind, by the path of their route.
        known: the cookies of browsers that must be the same ones, by `Visit.who`.
    """

    hub: ResultsHub
    visits: dict[str, list[Visit]] = field(default_factory=dict)
    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, route: str, *visits: Visit) -> None:
        self.visits.setdefault(route, []).extend(visits)

    def cookies(self, who: str) -> dict[str, str]:
        """Return the cookies of a browser in which an account has signed in."""
        if who in self.known:
            return self.known[who]
        people = parts_of(self.hub.app).hub.people
        name = new_name("session").ljust(43, "0")
        people.sessions.begin(people.accounts.sign_in(who, PASSWORD).id, name, "Mozilla/5.0 (X11; Linux) Firefox/140.0")
        return {"ludus_visitor": name}

    def client(self, who: str = PERSON) -> httpx.AsyncClient:
        """A client with a new token of an account."""
        people = parts_of(self.hub.app).hub.people
        wanted = NewToken(name=new_name("client"), scopes=USUAL_SCOPES, days=1)
        account = people.accounts.sign_in(who, PASSWORD).id
        token = people.tokens.create(account, wanted, is_admin=False).token
        return httpx.AsyncClient(base_url=self.hub.url, headers={"authorization": f"Bearer {token}"}, timeout=60)

    def browser(self, who: str = PERSON) -> httpx.AsyncClient:
        """A browser without JavaScript in which an account has signed in."""
        return httpx.AsyncClient(
            base_url=self.hub.url, headers={"accept": "text/html"}, timeout=60, follow_redirects=True,
            cookies=self.cookies(who),
        )  # fmt: skip


@asynccontextmanager
async def whole_site(folder: Path, serve: Any, provider: TestProvider) -> AsyncIterator[WholeSite]:
    """Run a hub with accounts, an OpenID provider and the built-in library, and put something on each of its pages."""
    server = await serve(*CLASSES.values())
    hub = ResultsHub(folder / "data", server.url)
    rates = RateSettings(address_minute=1_000_000, logins_of_address=1000, logins_of_pair=1000)
    hub.more = {
        "people": PeopleSettings(registration="open", rates=rates),
        "openid": settings_of(provider.url, registration="open"),
    }
    await hub.start()
    site = WholeSite(hub)
    try:
        accounts = parts_of(hub.app).hub.people.accounts
        await asyncio.to_thread(accounts.create, PERSON, PASSWORD, admin=True)
        await asyncio.to_thread(accounts.create, "linus", PASSWORD)
        await asyncio.to_thread(seed, parts_of(hub.app).hub)
        await _add_people(site)
        await _add_openid(site, provider)
        await _add_packages(site)
        await _add_organization(site)
        await _add_results(site)
        await _add_rollouts(site)
        await _add_plays(site)
        yield site
    finally:
        await hub.stop()


async def _add_people(site: WholeSite) -> None:
    async with httpx.AsyncClient(base_url=site.hub.url, timeout=60) as device:
        wanted = {"name": "ludus on laptop", "scopes": [str(one) for one in USUAL_SCOPES]}
        code = (await _ok(device.post("/api/v1/login/device", json=wanted))).json()["user_code"]
    page = "/account/device"
    site.add(page, Visit("device", page), Visit("device-asked", page, entries=(("code", code),), button="Go on"),
             Visit("device-unknown", page, entries=(("code", "x"),), button="Go on"))  # fmt: skip
    site.add("/login", Visit("sign-in", "/login", None), Visit("signed-in", "/login"))
    site.add("/register", Visit("register", "/register", None))
    site.add("/account", Visit("account", "/account"), Visit("account-of-a-member", "/account", "linus"))
    site.add("/account/tokens", Visit("tokens", "/account/tokens"), Visit("no-tokens", "/account/tokens", "linus"),
             Visit("token-made", "/account/tokens", entries=(("name", "ci"),), button="Make the token"))  # fmt: skip
    site.add("/account/audit", Visit("audit", "/account/audit"))
    site.add("/account/audit/all", Visit("audit-of-all", "/account/audit/all"))
    site.add(CALLBACK, Visit("stray-sign-in", f"{CALLBACK}?state=x&code=y", None, 401))
    site.add("/register/openid", Visit("stray-registration", "/register/openid", None, 401))


async def _add_openid(site: WholeSite, provider: TestProvider) -> None:
    """Let one person come back from the provider who waits for a name, and another one who has chosen it."""
    for who in ("newcomer", "ada of the provider"):
        browser = httpx.AsyncClient(
            base_url=site.hub.url, headers={"accept": "text/html"}, timeout=60, follow_redirects=True
        )
        async with browser:
            leaving = await _send(browser, "/login", "/login/openid", next="/account")
            query = provider.grant(onward(leaving), sub=who, preferred_username="lovelace", email="ada@example.org")
            await _ok(browser.get(CALLBACK, params=query))
            if who != "newcomer":
                await _send(browser, "/register/openid", "/register/openid", name="lovelace")
            site.known[who] = dict(browser.cookies)
    site.add("/register/openid", Visit("name-of-a-newcomer", "/register/openid", "newcomer"))
    site.add("/account", Visit("account-without-a-password", "/account", "ada of the provider"))


MORE_FILES: Final = {
    "1.0.0": {"coins/edge.png": b"\x89PNG\r\n\0\1"},
    "1.1.0": {
        "coins/edge.png": b"\x89PNG\r\n\0\2\3",
        "coins/rules.py": b'"""The rules: a coin lies\xe2\x80\xae on one side."""\n\nSIDES = ("heads", "tails")\n',
    },
}
"""The files of some versions besides the module."""


def coin_release(package: str, version: str = "1.0.0", **changes: Any) -> Release:
    """Return a release with everything that an environment's page can show."""
    parts = WheelParts(package.replace("/", "-"), version, more=MORE_FILES.get(version, {}))
    if version != "1.0.0":
        parts.module = parts.module.replace("heads or tails?", "Heads or tails?")
    schema = {
        "type": "object", "required": ["side"],
        "properties": {"side": {"type": "string", "enum": ["heads", "tails"], "description": "How the coin lies."},
                       "sure": {"type": "boolean", "description": "Whether you are sure."}},
    }  # fmt: skip
    splits = (
        SplitInfo(name="train", type="train", count=None), SplitInfo(name="test", type="test", count=40),
    )  # fmt: skip
    toss = EnvironmentEntry(
        name="toss", source=f"{parts.package}:Toss", version="1.0", description="Say how a coin lies.", splits=splits,
        tools=(ToolSpec(name="say", description="Say it.\nOnce.", input_schema=schema),), reward_range=(-1.0, 1.0),
        seedable=True, gradable=True, forkable=True, durability="replay",
    )  # fmt: skip
    fields: dict[str, Any] = {
        "description": "Say how a coin lies.", "tags": ("coin", "game"), "license": "MIT", "environments": (toss,),
        "network": ("api.example.org",), "secrets": ({"name": "API_KEY", "description": "Of the mint."},),
        "resources": {"cpus": 2, "memory_mb": 2048}, "citation": "@misc{coin,\n  title={Coin}\n}",
        "provenance": {"repository": "https://example.org/grace/coin", "commit": "a" * 40, "dirty": True},
    }  # fmt: skip
    return release(
        package, version, parts=parts, key=KEY, card=f"{CARD}\nThis is {version}.\n", **{**fields, **changes}
    )


VALIDATION: Final = {
    "passed": False,
    "reports": [
        {"environment": "toss", "passed": False, "checks": [
            {"kind": "determinism", "status": "passed", "detail": "The same seed gives the same episode."},
            {"kind": "reward-hacking", "status": "failed", "findings": ["`say` earns 1.0 when it is called twice."]},
        ]},
    ],
}  # fmt: skip


async def _add_packages(site: WholeSite) -> None:
    async with site.client() as client:
        for version in ("1.0.0", "1.1.0"):
            one = coin_release("grace/coin", version, description=f"Version {version}: say how a coin lies.")
            files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
            answer = await client.post(
                "/api/v1/environments/grace/coin/versions", files=files,
                data={**one.fields(), "validation": _json(VALIDATION)},
            )  # fmt: skip
            assert answer.status_code == 201, answer.text
        await _ok(client.post("/api/v1/environments/grace/coin/versions/1.0.0/yank", json={"reason": "The edge."}))
        await _publish_private(client, coin_release("grace/hidden"))
        await _ok(client.put("/api/v1/environments/grace/hidden/readers/linus"))
    coin = "/grace/coin"
    site.add("/", Visit("catalog", "/", None), Visit("search", "/?q=number&tag=game"), Visit("none", "/?q=nosuchword"),
             Visit("absent", "/nope/nope", None, 404))  # fmt: skip
    site.add("/docs", Visit("docs", "/docs"), Visit("docs-of-a-stranger", "/docs", None))
    site.add("/{owner}/{name}", Visit("environment", coin, None), Visit("own-environment", coin),
             Visit("wordle", "/ludus/wordle", None), Visit("private", "/grace/hidden"))  # fmt: skip
    site.add("/{owner}/{name}/versions/{version}", Visit("yanked-version", f"{coin}/versions/1.0.0", None))
    diff, listing = f"{coin}/versions/1.1.0/diff", f"{coin}/versions/1.1.0/files"
    version = "/{owner}/{name}/versions/{version}"
    site.add(f"{version}/diff", Visit("changes", diff, None), Visit("no-changes", f"{diff}?from=1.1.0", None))
    site.add(f"{version}/diff/card", Visit("changes-of-the-card", f"{diff}/card", None))
    site.add(f"{version}/diff/file", Visit("changes-of-a-file", f"{diff}/file?path=grace_coin.py", None),
             Visit("added-file", f"{diff}/file?path=coins/rules.py", None),
             Visit("changed-picture", f"{diff}/file?path=coins/edge.png", None))  # fmt: skip
    site.add(f"{version}/files", Visit("files", listing, None))
    site.add(f"{version}/files/text", Visit("text-of-a-file", f"{listing}/text?path=coins/rules.py", None),
             Visit("picture-as-text", f"{listing}/text?path=coins/edge.png", None))  # fmt: skip
    site.add("/{owner}/{name}/versions/{version}/trainers",
             Visit("trainers", f"/{OWNER}/locks/versions/1.0.0/trainers?environment=debts"))  # fmt: skip
    site.add("/{owner}/{name}/access", Visit("access", "/grace/hidden/access"))


async def _add_organization(site: WholeSite) -> None:
    async with site.client() as grace, site.client("linus") as linus:
        for name in ("acme", "initech"):
            await _ok(grace.post("/api/v1/organizations", json={"name": name}))
            await _ok(grace.put(f"/api/v1/organizations/{name}/invitations/linus", json={"role": "publisher"}))
        await _ok(linus.post("/api/v1/account/organizations/acme"))
        await _ok(grace.put("/api/v1/organizations/acme/invitations/hopper", json={"role": "reader"}))
        await _publish_private(grace, coin_release("acme/dice"))
    site.add("/account/organizations", Visit("organizations", "/account/organizations"),
             Visit("invited", "/account/organizations", "linus"))  # fmt: skip
    site.add("/orgs/{organization}", Visit("organization", "/orgs/acme"), Visit("member", "/orgs/acme", "linus"))
    site.add("/orgs/{organization}/audit", Visit("organization-audit", "/orgs/acme/audit"))


async def _add_results(site: WholeSite) -> None:
    hub, package = site.hub, f"{OWNER}/locks"
    digest = hub.publish_release(locks_release(package))
    async with hub.client("alice") as alice, hub.client("bob") as bob:
        played = await Player.register(alice, package, model="Qwen/Qwen2.5-1.5B-Instruct", tasks=4, samples=2)
        await played.play(right=5)
        other = await Player.register(bob, package, model="a-model-with-a-very-long-name-and-no-space-in-it", tasks=4)
        await other.play(right=1)
        opened = await Player.register(bob, package, model="not-done", tasks=3)
        submitted = f"/api/v1/environments/{package}/versions/1.0.0/results"
        tasks = [
            {"task": f"train-{index}", "index": index, "episodes": [episode(sample) for sample in range(2)]}
            for index in range(2)
        ]
        sent = submission(digest, split="train", samples=2, tasks=tasks, scored=4, mean=1.0)
        run = (await _ok(alice.post(submitted, json=sent))).json()["key"]
        lines = b"".join(_json(one).encode() + b"\n" for one in episodes("train-0", "train"))
        await _ok(alice.post(f"/api/v1/runs/{run}/rollouts", content=lines))
        await _ok(alice.post(submitted, json=submission(digest, 1.0, 0.0, 1.0)))
        removed = (await _ok(bob.post(submitted, json=submission(digest, 1.0, 0.0)))).json()["key"]
        await _ok(bob.post(f"/api/v1/runs/{removed}/remove", json={"reason": "The prompt held the answers."}))
    board = f"/{package}/versions/1.0.0/board?environment=locks&split=test&level="
    site.add("/{owner}/{name}/versions/{version}/board", Visit("board-played", f"{board}played", None),
             Visit("board-reported", f"{board}reported"),
             Visit("board-empty", f"{board.replace('=test', '=train')}played"))  # fmt: skip
    site.add("/{owner}/{name}", Visit("environment-with-results", f"/{package}", None))
    site.add("/runs/{run}", Visit("run", f"/runs/{played.key}", None), Visit("run-open", f"/runs/{opened.key}"),
             Visit("run-with-rollouts", f"/runs/{run}"), Visit("run-removed", f"/runs/{removed}"))  # fmt: skip
    site.add("/runs/{run}/rollouts", Visit("rollouts-of-a-run", f"/runs/{run}/rollouts", None))
    site.add("/runs/{run}/rollouts/{line:int}", Visit("rollout-of-a-run", f"/runs/{run}/rollouts/1", None))
    site.add("/results/log", Visit("log-of-results", "/results/log", None))


def episodes(task: str, split: str = "train") -> list[dict[str, Any]]:
    """Return lines of a file of trajectories: an episode with an image and components, its fork, and another one."""
    row = {"id": task, "split": split, "index": 0, "fields": {}}
    part = {"value": 0.25, "weight": 2.0, "evidence": "The lock moved."}
    first = line(
        3, task=row, sample=0, environment="locks", episode="e1", reward={"value": 0.5, "components": {"moved": part}}
    )
    first["items"][0]["content"].append({"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"})
    branch = {"parent": "e1", "step": 1, "turn": 1, "place": "1.0"}
    fork = line(5, task=row, sample=0, environment="locks", episode="e2", branch=branch)
    return [first, fork, line(2, task=row, sample=1, environment="locks")]


async def _add_rollouts(site: WholeSite) -> None:
    async with site.browser() as browser:
        lines = b"".join(_json(one).encode() + b"\n" for one in episodes("t")) + b"{broken\n"
        kept = await _send(browser, "/rollouts", "/rollouts", files={"file": ("evening.jsonl", lines)})
    where = kept.url.path
    name = where.rpartition("/")[2]
    site.add("/rollouts", Visit("rollouts", "/rollouts"), Visit("rollouts-of-a-stranger", "/rollouts", None))
    site.add("/rollouts/{file}", Visit("rollout-file", where))
    site.add("/rollouts/{file}/{line:int}", Visit("rollout", f"{where}/1"), Visit("rollout-fork", f"{where}/2"))
    site.add("/rollouts/compare", Visit("rollouts-compared", f"/rollouts/compare?a={name}:1&b={name}:2"))


async def _add_plays(site: WholeSite) -> None:
    """A play belongs to its browser, so the visits have that browser's cookie; see `WholeSite.known`."""
    package = f"/{OWNER}/locks"
    async with site.browser() as browser:
        site.known[PLAYER] = dict(browser.cookies)
        form = {"version": "1.0.0", "what": "locks/train"}
        running = (await _send(browser, f"{package}/play", f"{package}/play", **form)).url.path
        ended = (await _send(browser, f"{package}/play", f"{package}/play", **form)).url.path
        for fields in ({"tool": "look", "turn": "1"}, {"tool": "turn", "a.number": "1", "turn": "2"}):
            answer = await _send(browser, ended, ended, **fields)
        assert "The episode has ended" in answer.text
    site.add("/{owner}/{name}/play", Visit("play-start", f"{package}/play"))
    site.add("/{owner}/{name}/play/{play}", Visit("play", running, PLAYER), Visit("play-ended", ended, PLAYER))


async def _send(browser: httpx.AsyncClient, page: str, where: str, files: Any = None, **fields: str) -> httpx.Response:
    """Send a form of a page."""
    found = re.search(r'name="form_key" value="(\w+)"', (await browser.get(page)).text)
    assert found is not None
    return await _ok(browser.post(where, data={"form_key": found[1], **fields}, files=files))


async def _publish_private(client: httpx.AsyncClient, one: Release) -> None:
    files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
    fields = {**one.fields(), "visibility": "private"}
    await _ok(client.post(f"/api/v1/environments/{one.manifest.id}/versions", data=fields, files=files))


async def _ok(sent: Awaitable[httpx.Response]) -> httpx.Response:
    answer = await sent
    assert answer.status_code < 300, f"{answer.request.method} {answer.url}: {answer.text[:2000]}"
    return answer


def _json(value: Any) -> str:
    return json.dumps(value)
