"""Private packages: a stranger gets the same answers, by the same queries, as if they did not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from hub_people import PeopleHub, people_hub, publish_private, statements
from hubs import KEY, Release, kind_of, new_name, published, release, upload
from results_hub import run_params, submission
from starlette.routing import BaseRoute, Mount, Route

from ludus.hub.endpoints import guards
from ludus.hub.people import access_tokens
from ludus.registry.types.people import USUAL_SCOPES, HubScope
from ludus.registry.types.signing import public_key

VALUES = {
    "version": "1.0.0", "other": "bob", "principal": "bob", "play": "p" * 24, "image": "1", "file": "f" * 16,
    "line": "1", "token": "999999", "identity": "999999", "digest": "d" * 12, "run": "r" * 22,
    "number": "1", "namespace": "localhost", "organization": "secretorg",
}  # fmt: skip
NAMES = {"unknown": "secretive", "signed in": "hiddenthing", "with a token": "concealed", "others": "obscured"}
"""The package of each kind of strangers."""
BODIES = {
    "/yank": {"reason": "no"}, "/access": {"private": True}, "/keys": {"key": public_key(KEY)},
    "/results": submission("0" * 64, 1.0), "/versions/1.0.0/runs": run_params(),
    "/organizations/secretorg": {"public": True},
    **{f"/{room}/{name}": {"role": "owner"} for room in ("members", "invitations") for name in NAMES.values()},
    "/remove": {"reason": "no"},
}  # fmt: skip
ENDPOINT = ("", "/health", "/ready", "/mcp", "/play/play_AAAA/mcp", "/list_environments", "/logs", "/channel", "/info")
SEARCHES = (
    "/?q=NAME", "/?owner=alice", "/?tag=hidden", "/api/v1/environments?q=NAME",
    "/api/v1/environments?tag=hidden", "/api/v1/environments?tag=owner:alice", "/api/v1/environments/alice/NAM",
    "/alice/NAME/versions/1.0.0/diff?from=0.9.0", "/alice/NAME/play?version=1.0.0",
)  # fmt: skip


@pytest.fixture(scope="module")
def people(request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    database = None if kind == "sqlite" else request.getfixturevalue("postgres").new_url()
    with people_hub(tmp_path_factory.mktemp("people"), database) as hub:
        yield hub


@dataclass(frozen=True)
class Sent:
    """A request of the walk."""

    method: str
    path: str

    def by(self, client: httpx.Client) -> tuple[int, bytes, list[tuple[str, str]]]:
        """The answer to it, without the time."""
        of_api = self.path.startswith("/api/")
        body = next((body for end, body in BODIES.items() if of_api and self.path.endswith(end)), None)
        if self.method == "DELETE" and self.path.endswith("/organizations/secretorg"):
            body = {"name": "secretorg"}
        if self.path.endswith("/versions") and self.method == "POST":
            answer = client.request(self.method, self.path, files={"wheel": ("a.whl", b"PK", "text/plain")})
        elif client.headers.get("accept") == "text/html" and body is None and self.method == "POST":
            form_key = re.search(r'name="form_key" value="(\w+)"', client.get("/login").text)
            assert form_key is not None
            step = {"do": "remove", "name": "alice"} if self.path.startswith("/orgs/") else {"private": "yes"}
            answer = client.request(self.method, self.path, data={"form_key": form_key[1], **step})
        else:
            answer = client.request(self.method, self.path, json=body)
        kept = [pair for pair in answer.headers.items() if pair[0] not in ("date", "set-cookie")]
        if client.headers.get("accept") != "text/html":
            client.cookies.clear()
            return answer.status_code, re.sub(rb'name="form_key" value="\w+"', b"", answer.content), kept
        return answer.status_code, answer.content, kept


def all_requests(routes: list[BaseRoute], secret: Release) -> Iterator[Sent]:
    """A request for each route and method of the application, about the package where the route names one."""
    owner, _, name = secret.manifest.id.partition("/")
    values = {
        **VALUES, "owner": owner, "name": name, "project": f"{owner}-{name}", "sha256": secret.sha256,
        "filename": secret.filename, "server": f"{owner}.{name}",
    }  # fmt: skip
    for route in routes:
        if isinstance(route, Mount):
            assert route.path == "/e", f"{route.path} is new: say here what it has"
            for version in ("", "@1.0.0"):
                yield from (Sent("GET", f"/e/{secret.manifest.id}{version}{rest}") for rest in ENDPOINT)
            continue
        if not isinstance(route, Route):
            inner = getattr(route, "original_router", None) or getattr(route, "router", None)
            assert inner is not None, f"{route} is of a new kind: say here what it has"
            yield from all_requests(inner.routes, secret)
            continue
        path = re.sub(r"{(\w+)(?::\w+)?}", lambda match: values[match[1]], route.path)
        path += (
            "?environment=toss&split=train&level=played"
            if path.endswith("/board")
            else "?path=*.dist-info/METADATA"
            if path.endswith(("/diff/file", "/files/text"))
            else ""
        )
        for method in sorted(route.methods or ()):
            yield Sent(method, path)
            if method == "GET" and "{filename}" in route.path:
                yield Sent(method, f"{path}.metadata")


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("who", NAMES)
def test_every_route_answers_strangers_the_same_for_a_private_and_an_absent_package(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(access_tokens, "USED_SECONDS", 3600.0)  # so that an export does not change on a slow machine
    name = NAMES[who]
    secret = release(f"alice/{name}", tags=("hidden",), card="# Secretive\n")
    searches = [path.replace("NAME", name).replace("NAM", name[:-1]) for path in SEARCHES]
    requests = [*all_requests(people.app.routes, secret), *(Sent("GET", path) for path in searches)]
    requests = [one for one in requests if one.path not in ("/metrics", "/account/delete", "/account/sessions/end")]
    about = [one for one in requests if name in one.path]
    assert len(about) > 40, "the walk reaches the routes of a package"
    bob = people.of("bob")
    strangers = {
        "unknown": {"no token": people.as_(None)},
        "signed in": {"bob's browser": people.browser("bob")},
        "with a token": {"bob": bob},
        "others": {"a browser": people.browser(), "publishes only": people.of("bob", [HubScope.PUBLISH])},
    }[who]
    published(people.of("alice"), release(f"alice/{name}ness"))  # a name to suggest, in both cases

    def walk() -> dict[tuple[str, Sent], tuple[int, bytes, list[tuple[str, str]]]]:
        return {
            (one_of, one): one.by(client)
            for one_of, client in strangers.items()
            for one in requests
            if one.path != "/logout"
        }

    for client in (bob, *strangers.values()):
        client.get("/api/v1/environments")  # which notes when its token was used
    absent = walk()
    refused = publish_private(bob, secret)
    counted = published_count(bob)
    assert publish_private(people.of("alice"), secret).status_code == 201
    private = walk()
    assert published_count(bob) == counted
    for case, before in absent.items():
        assert private[case] == before, case
    assert kind_of(refused) == "Forbidden"
    assert publish_private(bob, secret).content == refused.content
    found = people.of("alice").get(f"/api/v1/environments/alice/{name}")
    assert found.status_code == 200, "its owner sees it"
    bad = [case for case, answer in absent.items() if answer[0] not in (200, 303, 307, 401, 403, 404, 405)]
    bad = [case for case in bad if case[1] in about and case[1].method != "OPTIONS"]
    bad = [case for case in bad if not case[1].path.endswith("/versions")]
    assert bad == [], "no request is refused for its own form"


@pytest.mark.suite("hub")
def test_every_route_answers_strangers_the_same_for_a_private_and_an_absent_organization(people: PeopleHub) -> None:
    secret = release("secretorg/secretive", tags=("hidden",), card="# Secretive\n")
    requests = [one for one in all_requests(people.app.routes, secret) if "secretorg" in one.path]
    requests += [Sent("GET", path) for path in ("/?owner=secretorg", "/api/v1/environments?tag=owner:secretorg")]
    about = [one for one in requests if "/organizations/" in one.path or "/orgs/" in one.path]
    assert len(about) >= 15, "the walk reaches the routes of an organization"
    alice = people.of("alice")
    strangers = {
        "no token": people.as_(None), "bob": people.of("bob"), "a browser": people.browser(),
        "bob's browser": people.browser("bob"),
        "a member's token that only publishes": people.of("alice", [HubScope.PUBLISH]),
    }  # fmt: skip
    for client in strangers.values():
        client.get("/api/v1/environments")  # which notes when its token was used

    def walk() -> dict[tuple[str, Sent], tuple[int, bytes, list[tuple[str, str]]]]:
        return {(who, one): one.by(client) for who, client in strangers.items() for one in requests}

    absent = walk()
    where = "/api/v1/organizations/secretorg"
    assert alice.post("/api/v1/organizations", json={"name": "secretorg"}).status_code == 201
    assert publish_private(alice, secret).status_code == 201
    for name in ("carol", "nosuchaccount"):
        assert alice.put(f"{where}/invitations/{name}", json={"role": "owner"}).status_code == 200
    private = walk()
    for case, before in absent.items():
        if case[0].startswith("a member's") and case[1].path.endswith(("/versions", "/yank", "/keys")):
            continue  # a member publishes, and sees the keys to publish with
        assert private[case] == before, case
    assert {answer[0] for case, answer in absent.items() if case[1] in about} <= {401, 403, 404, 303}
    for client in (strangers["bob"], strangers["no token"]):
        assert client.get(where).status_code == 404
        assert client.get("/api/v1/owners/secretorg/keys").json()["keys"] == []
    assert alice.get(where).status_code == 200, "its owner sees it"


def test_the_same_statements_run_for_a_private_and_an_absent_organization(people: PeopleHub) -> None:
    alice, name = people.of("alice"), new_name("org")
    assert alice.post("/api/v1/organizations", json={"name": name}).status_code == 201
    assert publish_private(alice, release(f"{name}/coin")).status_code == 201
    for client in (people.as_(None), people.of("bob")):
        client.get("/api/v1/environments")
        for path in ("/api/v1/organizations/{}", "/orgs/{}", "/api/v1/owners/{}/keys", "/index/{}/simple/"):
            ran = []
            for one in (name, name[::-1]):
                with statements(people.hub) as found:
                    client.get(path.format(one))
                ran.append(found)
            assert ran[0] == ran[1], path
            assert ran[0]


def test_a_package_leaves_discovery_when_it_becomes_private_and_comes_back(people: PeopleHub) -> None:
    name = f"alice/{new_name()}"
    alice, stranger = people.of("alice"), people.as_(None)
    published(alice, release(name))

    def found() -> set[str]:
        catalog = stranger.get("/.well-known/ai-catalog.json").json()["entries"]
        servers = stranger.get("/v0.1/servers", params={"search": name.replace("/", ".")}).json()["servers"]
        listed = {one["displayName"] for one in catalog} | {one["server"]["title"] for one in servers}
        return listed & {name}

    for private, shown in ((None, {name}), (True, set()), (False, {name})):
        if private is not None:
            assert alice.put(f"/api/v1/environments/{name}/access", json={"private": private}).status_code == 200
        assert found() == shown


def published_count(client: httpx.Client) -> list[str]:
    """The lines of the metrics that are about packages."""
    text = client.get("/metrics").text
    return [line for line in text.splitlines() if "packages" in line or "published" in line]


@pytest.mark.suite("hub")
def test_the_same_statements_run_for_a_private_and_an_absent_package(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (guards, access_tokens):
        monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)  # look everything up, every time
    name = new_name("hush")
    secret = release(f"alice/{name}")
    assert publish_private(people.of("alice"), secret).status_code == 201
    other = release(f"alice/{name[::-1]}")
    compared = 0
    for client in (people.as_(None), people.of("bob")):
        client.get("/api/v1/environments")  # which notes when the token was used
        for one, absent in zip(
            all_requests(people.app.routes, secret), all_requests(people.app.routes, other), strict=True
        ):
            if one.path == absent.path or one.method == "POST":
                continue
            with statements(people.hub) as of_private:
                one.by(client)
            with statements(people.hub) as of_absent:
                absent.by(client)
            assert of_private == of_absent, one
            compared += bool(of_private)
    assert compared > 40


def test_the_owner_maintainers_and_readers_read_a_private_package(people: PeopleHub) -> None:
    name = f"alice/{new_name()}"
    alice, bob, carol = people.of("alice"), people.of("bob"), people.of("carol")
    one = release(name)
    info = publish_private(alice, one).json()
    assert info["private"] is True
    where, file = f"/api/v1/environments/{name}", f"/files/{one.sha256}/{one.filename}"
    project = f"/index/alice/simple/{name.replace('/', '-')}/"
    for path in (where, file, project):
        assert [client.get(path).status_code for client in (alice, bob, carol)] == [200, 404, 404]
    assert alice.put(f"{where}/readers/bob").json()["readers"] == ["bob"]
    assert alice.put(f"{where}/owners/carol").status_code == 200
    for path in (where, file, f"{file}.metadata", project, f"{where}/owners", f"{where}/versions/latest"):
        assert [client.get(path).status_code for client in (alice, bob, carol)] == [200, 200, 200], path
        assert people.as_(None).get(path).status_code == 404
    assert bob.get(file).headers["cache-control"] == "private, no-store"
    assert name in bob.get("/api/v1/environments?q=coin&size=100").text
    assert name in people.browser("bob").get(f"/{name}").text
    assert kind_of(publish_private(bob, release(name, "1.1.0"))) == "Forbidden"
    assert kind_of(bob.put(f"{where}/access", json={"private": False})) == "Forbidden"
    assert publish_private(carol, release(name, "1.1.0")).status_code == 201
    assert alice.delete(f"{where}/readers/bob").json()["readers"] == []
    assert bob.get(where).status_code == 404


def test_a_private_package_is_made_public_and_private_again(people: PeopleHub) -> None:
    name, alice, stranger = f"alice/{new_name()}", people.of("alice"), people.as_(None)
    publish_private(alice, release(name))
    where = f"/api/v1/environments/{name}"
    assert alice.put(f"{where}/access", json={"private": False}).json()["private"] is False
    assert stranger.get(where).json()["private"] is False
    assert kind_of(publish_private(alice, release(name, "2.0.0"))) == "Conflict"
    assert stranger.get(f"{where}/versions/2.0.0").status_code == 404
    assert alice.put(f"{where}/access", json={"private": True}).json()["private"] is True
    assert stranger.get(where).status_code == 404
    assert published(alice, release(name, "2.0.0"))["private"] is True, "without a word, a package stays as it is"


def test_tokens_read_private_packages_only_with_their_scope_and_only_those_of_their_list(people: PeopleHub) -> None:
    first, second = f"alice/{new_name()}", f"alice/{new_name()}"
    for name in (first, second):
        publish_private(people.of("alice"), release(name))
    limited = people.of("alice", [HubScope.READ, HubScope.PUBLISH], (first,))
    assert limited.get(f"/api/v1/environments/{first}").status_code == 200
    assert limited.get(f"/api/v1/environments/{second}").status_code == 404
    assert second not in limited.get("/api/v1/environments?size=100").text
    assert kind_of(publish_private(limited, release(second, "2.0.0"))) == "Forbidden"
    assert publish_private(limited, release(first, "2.0.0")).status_code == 201
    for scope in (HubScope.RUN, HubScope.RESULTS, HubScope.PUBLISH, HubScope.ACCOUNT):
        assert people.of("alice", [scope]).get(f"/api/v1/environments/{first}").status_code == 404, scope
    assert people.of("root", [HubScope.ADMIN]).get(f"/api/v1/environments/{first}").status_code == 200
    assert people.of("root", USUAL_SCOPES).get(f"/api/v1/environments/{first}").status_code == 404


def test_keys_of_an_owner_with_private_packages_only_are_theirs(people: PeopleHub) -> None:
    publish_private(people.of("carol"), release(f"carol/{new_name()}"))
    assert people.as_(None).get("/api/v1/owners/carol/keys").json()["keys"] == []
    assert people.of("bob").get("/api/v1/owners/carol/keys").json()["keys"] == []
    assert people.of("carol").get("/api/v1/owners/carol/keys").json()["keys"] == [public_key(KEY)]
    published(people.of("carol"), release(f"carol/{new_name()}"))
    assert people.as_(None).get("/api/v1/owners/carol/keys").json()["keys"] == [public_key(KEY)]


def test_twine_puts_versions_into_a_private_package(people: PeopleHub) -> None:
    name, alice = f"alice/{new_name()}", people.of("alice")
    publish_private(alice, release(name))
    assert upload(alice, release(name, "1.1.0")).status_code == 200
    assert people.as_(None).get(f"/api/v1/environments/{name}").status_code == 404
    assert alice.get(f"/api/v1/environments/{name}").json()["version"] == "1.1.0"


@pytest.mark.parametrize("pattern", ["%", "_", "alice/%", "ALICE", "аlice", "*", "'", '"'])
def test_patterns_and_look_alikes_find_no_private_package(people: PeopleHub, pattern: str) -> None:
    stranger = people.as_(None)
    publish_private(people.of("alice"), release("alice/patterned"))
    for path in (f"/api/v1/environments/{pattern}/patterned", f"/api/v1/environments/alice/{pattern}"):
        assert stranger.get(path).status_code == 404
    listed = stranger.get("/api/v1/environments", params={"q": pattern, "size": 100}).json()["packages"]
    assert "alice/patterned" not in {one["id"] for one in listed}
    assert "alice-patterned" not in stranger.get(f"/index/{pattern}/simple/").text
