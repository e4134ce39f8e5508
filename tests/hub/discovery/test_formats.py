"""What discovery answers is valid by the schemas of its formats, and is what the registry holds.

The schemas of server cards, of `server.json` and of the registry's read API are those that others publish. The one of
AI catalogs is ours, written from a specification that publishes its grammar in another language; `schemas/README.md`
names the sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from hubs import HubProcess, Release, new_name, published, release, upload
from jsonschema import Draft202012Validator, FormatChecker, ValidationError

from ludus.protocol.episodes import SplitInfo
from ludus.registry.types.packages import EnvironmentEntry, Provenance
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

SCHEMAS = Path(__file__).parent / "schemas"
OPENAPI = yaml.safe_load((SCHEMAS / "registry-openapi.yaml").read_text())
CARD = "application/mcp-server-card+json"
OFFICIAL = "io.modelcontextprotocol.registry/official"
PUBLISHER = "io.modelcontextprotocol.registry/publisher-provided"


def check(value: Any, schema: dict[str, Any]) -> None:
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(value)


def registry(answer: httpx.Response, path: str) -> Any:
    """Return an answer of the registry API, which must be as the published description says."""
    content = OPENAPI["paths"][path]["get"]["responses"][str(answer.status_code)]["content"]
    check(answer.json(), {**OPENAPI, **content["application/json"]["schema"]})
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


LIST, VERSIONS = "/v0.1/servers", "/v0.1/servers/{serverName}/versions"
ONE = f"{VERSIONS}/{{version}}"


def servers(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    """Read all pages."""
    found: list[dict[str, Any]] = []
    while True:
        page = registry(client.get(LIST, params=params), LIST)
        found += page["servers"]
        assert page["metadata"]["count"] == len(page["servers"])
        if "nextCursor" not in page["metadata"]:
            return found
        params["cursor"] = page["metadata"]["nextCursor"]


def named(one: Release) -> str:
    return "localhost/" + one.manifest.id.replace("/", ".")


def labels(found: list[dict[str, Any]]) -> list[str]:
    return [f"{one['server']['name']}@{one['server']['version']}" for one in found]


@pytest.mark.suite("hub", first=1)
def test_a_version_has_a_valid_server_json_with_a_pinned_remote(client: httpx.Client) -> None:
    entry = EnvironmentEntry(
        name="toss", source="alice_x:Toss", splits=(SplitInfo(name="train", type="train", count=2),)
    )
    name = new_name()
    one = release(
        f"alice/{name}", environments=({**entry.model_dump(), "source": f"alice_{name}:Toss"},), license="MIT",
        provenance=Provenance(repository="https://github.com/alice/envs"),
    )  # fmt: skip
    published(client, one)
    answer = client.get(f"/api/v1/environments/{one.manifest.id}/versions/1.0.0/server.json")
    server = answer.json()
    check(server, {**OPENAPI, "$ref": "#/components/schemas/ServerDetail"})
    assert server["$schema"] == "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    assert (server["name"], server["version"], server["description"]) == (named(one), "1.0.0", "A coin.")
    base = str(client.base_url).rstrip("/")
    assert server["remotes"] == [{"type": "streamable-http", "url": f"{base}/e/alice/{name}@1.0.0/mcp"}]
    assert server["repository"] == {"url": "https://github.com/alice/envs", "source": "github"}
    facts = server["_meta"][PUBLISHER]["dev.ludus/environment"]
    assert facts["extension"] == "dev.ludus/episodes"
    assert facts["environments"] == {"toss": {"train": 2}}


def test_the_registry_finds_a_server_by_its_encoded_name(client: httpx.Client) -> None:
    name = new_name()
    one, two = release(f"alice/{name}"), release(f"alice/{name}", "1.1.0")
    published(client, one)
    published(client, two)
    where = f"{LIST}/{quote(named(one), safe='')}/versions"
    found = registry(client.get(where), VERSIONS)
    assert labels(found["servers"]) == [f"{named(one)}@1.1.0", f"{named(one)}@1.0.0"]
    assert [row["_meta"][OFFICIAL]["isLatest"] for row in found["servers"]] == [True, False]
    latest = registry(client.get(f"{where}/latest"), ONE)
    assert latest == found["servers"][0] == registry(client.get(f"{where}/1.1.0"), ONE)
    assert registry(client.get(f"{LIST}/{named(one)}/versions/v1.0.0"), ONE) == found["servers"][1]


def test_what_is_absent_is_a_404_of_the_registry(client: httpx.Client) -> None:
    name = new_name()
    published(client, release(f"alice/{name}"))
    for where in (
        f"localhost%2Falice.{name}x/versions",
        f"com.example%2Falice.{name}/versions",
        "localhost%2F/versions",
    ):
        answer = client.get(f"{LIST}/{where}")
        assert answer.status_code == 404
        if "error" in answer.json() and isinstance(answer.json()["error"], str):
            registry(answer, VERSIONS)
    answer = client.get(f"{LIST}/localhost%2Falice.{name}/versions/9.9.9")
    assert answer.status_code == 404
    assert "9.9.9" in registry(answer, ONE)["error"]


def test_pages_hold_every_version_once_in_every_order(client: httpx.Client) -> None:
    owner = new_name("owner")
    every = [release(f"{owner}/{new_name()}", f"1.{number}.0") for number in range(3) for _ in range(3)]
    before = servers(client, search=f"{owner}.", limit=100)
    assert before == []
    for one in every:
        published(client, one)
    wanted = sorted(f"{named(one)}@{one.manifest.version}" for one in every)
    for limit in (1, 2, 8, 9, 100):
        assert sorted(labels(servers(client, search=f"{owner}.", limit=limit))) == wanted
    everything = labels(servers(client, limit=7))
    assert set(wanted) < set(everything)
    assert len(everything) == len(set(everything))


@pytest.mark.suite("hub", first=1)
def test_a_search_finds_parts_of_names_in_any_case(client: httpx.Client) -> None:
    owner, name = new_name("owner"), new_name()
    one = release(f"{owner}/{name}-words.v2", parts=None)
    published(client, one)
    mine = [f"{named(one)}@1.0.0"]
    for text in (
        name,
        name.upper(),
        f"{owner}.{name}",
        f"{name}-words.v",
        f"host/{owner}.",
        f"LOCALHOST/{owner}.{name}",
    ):
        assert labels(servers(client, search=text)) == mine, text
    for text in (f"{name}_words", f"{name}%", f"x/{owner}", f"localhost/{name}", f"{owner}/{name}"):
        assert servers(client, search=text) == [], text
    assert set(mine) < set(labels(servers(client, search="local")))


def test_a_mirror_reads_only_what_changed(client: httpx.Client) -> None:
    owner, name = new_name("owner"), new_name()
    old, new = release(f"{owner}/{name}"), release(f"{owner}/{name}", "2.0.0")
    published(client, old)
    first = servers(client, search=f"{owner}.")
    since = first[0]["_meta"][OFFICIAL]["updatedAt"]
    assert servers(client, search=f"{owner}.", updated_since=since) == []
    published(client, new)
    changed = servers(client, search=f"{owner}.", updated_since=since, limit=1)
    latest = {one["server"]["version"]: one["_meta"][OFFICIAL]["isLatest"] for one in changed}
    assert latest == {"1.0.0": False, "2.0.0": True}, "the version that is no longer the latest changed too"
    since = max(one["_meta"][OFFICIAL]["updatedAt"] for one in changed)
    reason = "scores a lost game as won"
    client.post(f"/api/v1/environments/{owner}/{name}/versions/2.0.0/yank", json={"reason": reason})
    changed = servers(client, search=f"{owner}.", updated_since=since)
    states = {one["server"]["version"]: one["_meta"][OFFICIAL] for one in changed}
    assert (states["2.0.0"]["status"], states["2.0.0"]["statusMessage"]) == ("deprecated", reason)
    assert (states["1.0.0"]["status"], states["1.0.0"]["isLatest"]) == ("active", True)


def test_the_version_filter_gives_one_version_of_each_server(client: httpx.Client) -> None:
    owner, name = new_name("owner"), new_name()
    for version in ("1.0.0", "1.1.0"):
        published(client, release(f"{owner}/{name}", version))
    for version, wanted in (("latest", "1.1.0"), ("1.0.0", "1.0.0"), ("v1.0.0", "1.0.0")):
        found = servers(client, search=f"{owner}.", version=version)
        assert [one["server"]["version"] for one in found] == [wanted]
    assert servers(client, search=f"{owner}.", version="3.0.0") == []


@pytest.mark.suite("hub", first=3)
@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"limit": "0"}, "limit"), ({"limit": "101"}, "limit"), ({"limit": "ten"}, "limit"),
        ({"cursor": "made up"}, "nextCursor"), ({"cursor": "t:1:1"}, "nextCursor"),
        ({"cursor": "n:x:1", "updated_since": "2026-01-01T00:00:00Z"}, "nextCursor"),
        ({"cursor": "t:999999999999999999:1", "updated_since": "2026-01-01T00:00:00Z"}, "nextCursor"),
        ({"updated_since": "0001-01-01T00:00:00+14:00"}, "updated_since"),
        ({"updated_since": "9999-12-31T23:59:59-14:00"}, "updated_since"),
        ({"updated_since": "yesterday"}, "updated_since"), ({"updated_since": "2026-01-01"}, "updated_since"),
        ({"search": "x" * 201}, "search"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_refused_with_its_name(plain_client: httpx.Client, params: Any, word: str) -> None:
    answer = plain_client.get(LIST, params=params)
    assert answer.status_code == 400
    assert word in answer.json()["error"]


def test_a_parameter_that_the_official_registry_ignores_is_ignored(plain_client: httpx.Client) -> None:
    assert plain_client.get(LIST, params={"include_deleted": "true", "unknown": "1"}).status_code == 200


def test_cards_are_valid_and_lead_to_the_newest_or_the_pinned_version(client: httpx.Client) -> None:
    name = new_name()
    for version in ("1.0.0", "1.1.0"):
        published(client, release(f"alice/{name}", version))
    schema = json.loads((SCHEMAS / "server-card.schema.json").read_text())
    base = str(client.base_url).rstrip("/")
    for where, version in ((f"alice/{name}", "1.1.0"), (f"alice/{name}@1.0.0", "1.0.0")):
        answer = client.get(f"/e/{where}/mcp/server-card", headers={"accept": CARD})
        assert answer.headers["content-type"] == CARD
        card = answer.json()
        check(card, {**schema, "$ref": "#/$defs/ServerCard"})
        assert (card["name"], card["version"]) == (f"localhost/alice.{name}", version)
        assert [remote["url"] for remote in card["remotes"]] == [f"{base}/e/{where}/mcp"]
    assert client.get(f"/e/alice/{name}@3.0.0/mcp/server-card").status_code == 404
    assert client.get(f"/e/alice/{name}x/mcp/server-card").json()["error"]["data"]["kind"] == "PackageNotFound"


@pytest.mark.parametrize("path", ["/.well-known/ai-catalog.json", "/.well-known/mcp/server-card.json"])
def test_the_ai_catalog_leads_to_the_card_of_each_package(client: httpx.Client, path: str) -> None:
    name = new_name()
    published(client, release(f"alice/{name}"))
    answer = client.get(path)
    assert answer.headers["content-type"] == "application/ai-catalog+json"
    catalog = answer.json()
    check(catalog, json.loads((SCHEMAS / "ai-catalog.schema.json").read_text()))
    entries = {entry["identifier"]: entry for entry in catalog["entries"]}
    assert len(entries) == len(catalog["entries"])
    entry = entries[f"urn:air:localhost:mcp:alice.{name}"]
    assert client.get(entry["url"]).json()["title"] == f"alice/{name}"
    published(client, release(f"alice/{name}", "1.1.0"))
    entries = {entry["identifier"]: entry for entry in client.get(path).json()["entries"]}
    assert entries[f"urn:air:localhost:mcp:alice.{name}"]["version"] == "1.1.0"


def test_our_schema_of_ai_catalogs_refuses_what_the_formats_do_not_allow() -> None:
    schema = json.loads((SCHEMAS / "ai-catalog.schema.json").read_text())
    entry = {
        "identifier": "urn:air:example.org:mcp:a.b", "displayName": "a/b", "type": CARD, "url": "https://example.org/c",
        "updatedAt": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    whole = {"specVersion": "1.0", "host": {"displayName": "Hub"}, "entries": [entry]}
    check(whole, schema)
    changes: list[dict[str, Any]] = [
        {"identifier": "a/b"}, {"type": "application/json"}, {"url": "not a URL"}, {"data": {}}, {"more": 1},
        {"updatedAt": "yesterday"},
    ]  # fmt: skip
    required = ("identifier", "displayName", "type", "url")
    faults: list[dict[str, Any]] = [
        {**whole, "specVersion": "2.0"}, {**whole, "more": 1}, {**whole, "host": {}}, {"specVersion": "1.0"},
        *({**whole, "entries": [{**entry, **change}]} for change in changes),
        *({**whole, "entries": [{key: entry[key] for key in entry if key != left_out}]} for left_out in required),
    ]  # fmt: skip
    for fault in faults:
        with pytest.raises(ValidationError):
            check(fault, schema)


def test_what_does_not_run_is_not_found(client: httpx.Client) -> None:
    owner = new_name("owner")
    unsigned, yanked = release(f"{owner}/{new_name()}", key=None), release(f"{owner}/{new_name()}")
    upload(client, unsigned)
    published(client, yanked)
    client.post(f"/api/v1/environments/{yanked.manifest.id}/versions/1.0.0/yank", json={"reason": "wrong"})
    shown = client.get("/.well-known/ai-catalog.json").text
    assert yanked.manifest.id not in shown
    assert unsigned.manifest.id not in shown
    assert labels(servers(client, search=f"{owner}.")) == [f"{named(yanked)}@1.0.0"]
    assert client.get(f"/e/{unsigned.manifest.id}/mcp/server-card").status_code == 404


def test_a_client_that_has_an_answer_already_gets_an_empty_one(plain_client: httpx.Client) -> None:
    first = plain_client.get("/.well-known/ai-catalog.json")
    again = plain_client.get("/.well-known/ai-catalog.json", headers={"if-none-match": f'"x", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]


@pytest.fixture(scope="module")
def public_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that others reach at a public address, with a token, and with one version."""
    folder = tmp_path_factory.mktemp("public")
    token, record = new_token("alice", ("tasks:read",))
    write_token_file(folder / "tokens.json", TokenFile(tokens=(record,)))
    hub = HubProcess(
        folder / "data", "--no-seed", "--host", "0.0.0.0", "--public-url", "https://hub.example.org/rl",
        "--token-file", str(folder / "tokens.json"),
    )  # fmt: skip
    with hub.client(token) as client:
        published(client, release("alice/coin"))
    yield hub
    hub.stop()


@pytest.mark.suite("hub")
def test_a_public_hub_names_itself_whatever_host_a_client_claims(public_hub: HubProcess) -> None:
    with public_hub.client() as client:
        card = client.get("/e/alice/coin/mcp/server-card", headers={"host": "evil.example"})
        catalog = client.get("/.well-known/ai-catalog.json", headers={"host": "evil.example"})
        assert "evil" not in card.text + catalog.text
        assert card.headers["cache-control"].startswith("public")
        assert card.json()["name"] == "org.example.hub/alice.coin"
        remote = card.json()["remotes"][0]
        assert remote["url"] == "https://hub.example.org/rl/e/alice/coin/mcp"
        assert [(one["name"], one["isSecret"]) for one in remote["headers"]] == [("Authorization", True)]
        check(
            card.json(), {**json.loads((SCHEMAS / "server-card.schema.json").read_text()), "$ref": "#/$defs/ServerCard"}
        )
        assert catalog.json()["entries"][0]["identifier"] == "urn:air:hub.example.org:mcp:alice.coin"


def test_a_page_of_another_site_reads_discovery_of_a_public_hub_and_nothing_else(public_hub: HubProcess) -> None:
    origin = {"origin": "https://elsewhere.example"}
    with public_hub.client() as client:
        for path in ("/.well-known/ai-catalog.json", "/v0.1/servers", "/e/alice/coin/mcp/server-card"):
            assert client.get(path, headers=origin).headers["access-control-allow-origin"] == "*"
            assert client.options(path, headers=origin).status_code == 204
        for path in ("/api/v1/environments", "/e/alice/coin/mcp", "/v0.1/serversx"):
            assert client.get(path, headers=origin).status_code == 403
        assert client.post("/v0.1/servers", headers=origin).status_code == 403


def test_a_page_of_another_site_reads_nothing_of_a_hub_on_loopback(plain_client: httpx.Client) -> None:
    answer = plain_client.get("/.well-known/ai-catalog.json", headers={"origin": "https://elsewhere.example"})
    assert answer.status_code == 403
