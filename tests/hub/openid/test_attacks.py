"""Attacks on signing in through an OpenID provider: each fails, and leaves no session behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import jwt
import pytest
from hub_people import PASSWORD, people_hub
from hub_sites import as_page
from hubs import new_name
from hypothesis import HealthCheck, given
from hypothesis import settings as checked
from hypothesis import strategies as st
from openid_people import CALLBACK, PATIENT, OpenIdHub, openid_hub, problem, settings_of
from openid_provider import CLIENT, Claims, SigningKey, TestProvider, onward, openid_provider, send_json

from ludus.hub.people.openid import fetching, pending
from ludus.hub.people.openid.fetching import Fetcher, ProviderFailed
from ludus.hub.people.openid.id_tokens import Expected, read_id_token
from ludus.hub.people.openid.provider import FRESH_SECONDS, PAUSE_SECONDS, Provider
from ludus.hub.people.openid.sign_in import STRAY
from ludus.protocol.errors import LudusError, Unauthenticated

_numbers = itertools.count(1)
Handler = BaseHTTPRequestHandler
HONEST = SigningKey("first")
STOLEN = SigningKey("first")
"""An attacker's key, with the name of the provider's."""


@pytest.fixture
def hub(one_hub: OpenIdHub) -> OpenIdHub:
    """The hub, its provider honest, and knowing nothing of it."""
    provider = one_hub.provider
    provider.discovery, provider.sign, provider.answers, provider.seen = {}, None, {}, []
    provider.keys = [HONEST]
    openid = one_hub.people.hub.people.openid
    assert openid is not None
    openid.provider = Provider(openid.settings)
    return one_hub


def signed_out(browser: httpx.Client) -> bool:
    return browser.get("/account").status_code == 303


# ── ID tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────


WRONG: dict[str, Claims] = {
    "of another issuer": {"iss": "https://evil.example"},
    "of the issuer with a slash": {"iss": "http://127.0.0.1/"},
    "without an issuer": {"iss": None},
    "for another client": {"aud": "another"},
    "for no client": {"aud": None},
    "for this client and another, which asked for it": {"aud": [CLIENT, "another"], "azp": "another"},
    "for several clients, without saying which asked": {"aud": [CLIENT, "another"]},
    "asked for by another client": {"azp": "another"},
    "that has expired": {"exp": 1_000_000_000},
    "without an end": {"exp": None},
    "of the future": {"iat": 4_000_000_000, "exp": 4_000_000_060},
    "from before this sign-in": {"iat": 1_000_000_000},
    "without a time": {"iat": None},
    "with a time that is none": {"iat": "soon"},
    "with an infinite time": {"iat": float("inf")},
    "not valid yet": {"nbf": 4_000_000_000},
    "of another sign-in": {"nonce": "another"},
    "without a nonce": {"nonce": None},
    "with a nonce that is no text": {"nonce": ["a"]},
    "without a subject": {"sub": None},
    "with an empty subject": {"sub": ""},
    "with a subject that is too long": {"sub": "x" * 256},
    "with a subject that is no text": {"sub": 7},
}  # fmt: skip


@pytest.mark.suite("hub", first=10)
@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_a_token_with_wrong_claims_does_not_sign_in(hub: OpenIdHub, claims: Claims) -> None:
    browser = hub.browser()
    assert "cannot be verified" in problem(hub.back(browser, hub.leave(browser), **claims))
    assert signed_out(browser)


def _unsigned(claims: Claims) -> str:
    return jwt.encode(claims, "", "none")


def _with_public_key_as_secret(claims: Claims, key: bytes) -> str:
    """What an attacker makes who takes the public key for the secret of an HMAC; PyJWT itself refuses to."""
    import base64
    import hashlib
    import hmac

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    head = part(b'{"alg":"HS256","kid":"first","typ":"JWT"}') + "." + part(json.dumps(claims).encode())
    return f"{head}.{part(hmac.new(key, head.encode(), hashlib.sha256).digest())}"


SIGNED: dict[str, Callable[[TestProvider, Claims], str]] = {
    "unsigned": lambda provider, claims: _unsigned(claims),
    "with the public key as the secret of an HMAC": lambda provider, claims: _with_public_key_as_secret(
        claims, provider.keys[0].pem
    ),
    "with the client's secret": lambda provider, claims: jwt.encode(claims, "secret" * 8, "HS256"),
    "with another key of the same name": lambda provider, claims: STOLEN.sign(claims),
    "with a key that is not the provider's": lambda provider, claims: SigningKey("other").sign(claims),
    "with a key in its own header": lambda provider, claims: jwt.encode(
        claims, STOLEN.key, "RS256", {"kid": "mine", "jwk": STOLEN.public}
    ),
    "with another algorithm than the provider names": lambda provider, claims: jwt.encode(
        claims, provider.keys[0].key, "RS512", {"kid": "first"}
    ),
    "with a critical header that is unknown": lambda provider, claims: jwt.encode(
        claims, provider.keys[0].key, "RS256", {"kid": "first", "crit": ["x"], "x": 1}
    ),
    "not at all": lambda provider, claims: "no.token.here",
    "as an endless text": lambda provider, claims: "a" * 100_000,
    "with its claims changed": lambda provider, claims: provider.keys[0].sign(claims).replace(".ey", ".fy"),
}


@pytest.mark.parametrize("sign", SIGNED.values(), ids=SIGNED)
def test_a_token_that_the_provider_did_not_sign_does_not_sign_in(
    hub: OpenIdHub, sign: Callable[[TestProvider, Claims], str]
) -> None:
    hub.provider.sign = lambda claims: sign(hub.provider, claims)
    browser = hub.browser()
    assert "cannot be verified" in problem(hub.sign_in(browser))
    assert signed_out(browser)


def test_a_symmetric_algorithm_is_refused_also_where_the_provider_names_it(hub: OpenIdHub) -> None:
    hub.provider.discovery = {"id_token_signing_alg_values_supported": ["RS256", "HS256", "none"]}
    for sign in (_unsigned, lambda claims: _with_public_key_as_secret(claims, hub.provider.keys[0].pem)):
        hub.provider.sign = sign
        assert "algorithm" in problem(hub.sign_in(hub.browser()))


@pytest.mark.filterwarnings("ignore:The RSA key is 1024")
def test_a_key_that_is_too_short_is_refused(hub: OpenIdHub) -> None:
    hub.provider.keys = [SigningKey("short", bits=1024)]
    assert "cannot be verified" in problem(hub.sign_in(hub.browser()))


def test_keys_are_read_again_after_a_rotation_and_not_for_every_unknown_name(hub: OpenIdHub) -> None:
    openid, now = hub.people.hub.people.openid, 0.0
    assert openid is not None
    openid.provider = Provider(openid.settings, clock=lambda: now)

    def reads() -> int:
        return sum(path == "/keys" for path, _, _ in hub.provider.seen)

    assert hub.sign_in(hub.browser()).status_code == 200
    hub.provider.keys = [SigningKey("second")]
    now += PAUSE_SECONDS - 1
    problem(hub.sign_in(hub.browser()))
    assert reads() == 1
    now += 2
    assert hub.sign_in(hub.browser()).status_code == 200
    assert reads() == 2
    hub.provider.sign = STOLEN.sign
    problem(hub.sign_in(hub.browser()))
    assert reads() == 2
    hub.provider.sign, hub.provider.keys = hub.provider.keys[0].sign, []
    now += FRESH_SECONDS
    assert "not the provider" in problem(hub.sign_in(hub.browser())), "a key that was withdrawn"


@checked(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(
            ["iss", "sub", "aud", "exp", "iat", "nbf", "nonce", "azp", "auth_time", "email", "groups", "jti"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=4,
        ),
    )
)
def test_odd_claims_are_refused_by_a_sentence(claims: Claims) -> None:
    usual = {"iss": "i", "sub": "s", "aud": CLIENT, "exp": 2e9, "iat": 1e9, "nonce": "n"}
    token = STOLEN.sign({**usual, **claims})
    expected = Expected("i", CLIENT, "n", 1e9, fresh=True)
    found = None
    with contextlib.suppress(Unauthenticated):  # and no other error
        found = read_id_token(token, [STOLEN.public], expected, ["RS256"], "groups")
    assert found is None or (found.issuer, found.subject) == ("i", claims.get("sub", "s"))


@checked(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["kty", "n", "e", "alg", "use", "crv", "x", "k"]), st.none() | st.integers() | st.text()
    )
)
def test_broken_keys_are_passed_over(key: dict[str, Any]) -> None:
    expected = Expected("i", CLIENT, "n", 1e9, fresh=False)
    claims = {"iss": "i", "sub": "s", "aud": CLIENT, "exp": 4e9, "iat": 1e9, "nonce": "n"}
    broken = {**STOLEN.public, "kid": "other", **key}
    assert read_id_token(STOLEN.sign(claims), [broken, STOLEN.public], expected, ["RS256"], "groups").subject == "s"


# ── the browser ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_victim_is_not_signed_in_as_the_attacker(hub: OpenIdHub) -> None:
    attacker, victim = hub.browser(), hub.browser("alice")
    mine = hub.provider.grant(hub.leave(attacker), sub="attacker")
    hub.leave(hub.browser())
    assert STRAY[1:] in problem(hub.come(victim, mine)), "without a sign-in of its own"
    hub.leave(victim)
    assert STRAY[1:] in problem(hub.come(victim, mine)), "with one"
    assert "alice" in as_page(victim.get("/account")).text
    assert onward(hub.come(attacker, mine)) == "/register/openid", "the attacker's own is not used up"


def test_a_victim_does_not_link_the_attackers_identity(hub: OpenIdHub) -> None:
    attacker, victim = hub.browser("bob"), hub.browser("alice")
    address = onward(hub.send(attacker, "/account/identities", "/account", password=PASSWORD))
    problem(hub.come(victim, hub.provider.grant(address, sub="linker")))
    onward(hub.send(victim, "/account/identities", "/account", password=PASSWORD))
    problem(hub.come(victim, hub.provider.grant(address, sub="linker")))
    assert "Unlink" not in victim.get("/account").text


def test_a_sign_in_that_comes_back_twice_is_worth_nothing(hub: OpenIdHub) -> None:
    browser = hub.browser()
    query = hub.provider.grant(hub.leave(browser), sub="twice")
    cookie = browser.cookies.get("ludus_sign_in")
    assert onward(hub.come(browser, query)) == "/register/openid"
    browser.cookies.clear()
    browser.cookies.set("ludus_sign_in", str(cookie))
    assert STRAY[1:] in problem(hub.come(browser, query))


def test_a_code_of_another_sign_in_is_worth_nothing(hub: OpenIdHub) -> None:
    """The code is the attacker's, or one that leaked; PKCE and the nonce bind it to the sign-in that asked for it."""
    victim, attacker = hub.browser(), hub.browser()
    leaked = hub.provider.grant(hub.leave(victim), sub="victim")
    mine = hub.provider.grant(hub.leave(attacker), sub="attacker")
    assert "refused" in problem(hub.come(attacker, {**mine, "code": leaked["code"]}))
    assert signed_out(attacker)


def test_without_pkce_the_nonce_still_binds_a_code(hub: OpenIdHub) -> None:
    def careless(handler: Handler) -> None:
        send_json(handler, {"id_token": hub.provider.keys[0].sign(stolen)})

    victim, attacker = hub.browser(), hub.browser()
    address = hub.leave(victim)
    code = hub.provider.grant(address, sub="victim")["code"]
    stolen = hub.provider._grants[code].claims
    hub.provider.answers["/token"] = careless
    assert "another sign-in" in problem(hub.back(attacker, hub.leave(attacker)))


def test_a_sign_in_ends_after_a_while(hub: OpenIdHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "LASTS", -pending.LASTS)
    assert STRAY[1:] in problem(hub.sign_in(hub.browser()))


def test_there_are_not_more_sign_ins_than_the_hub_bears(hub: OpenIdHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MOST", 0)
    answer = hub.send(hub.browser(), "/login/openid", next="/")
    assert (answer.status_code, "Too many" in problem(answer)) == (429, True)


@pytest.mark.parametrize(
    "query",
    [
        {}, {"state": ""}, {"state": "x" * 9000, "code": "y"}, {"code": "y"}, {"error": "access_denied"},
        {"state": "a", "error": "<script>"}, {"state": "\udc80".encode("utf-8", "replace").decode()},
    ],
)  # fmt: skip
def test_a_browser_that_brings_nonsense_back_keeps_its_session(hub: OpenIdHub, query: dict[str, str]) -> None:
    browser = hub.browser("alice")
    problem(hub.come(browser, query))
    assert not signed_out(browser)


@pytest.mark.suite("hub", first=4)
@pytest.mark.parametrize(
    "following",
    [
        "https://evil.example", "//evil.example", "/\\evil.example", "\\/evil.example", "/\t/evil.example",
        "javascript:alert(1)", "/%0d%0aset-cookie:a=b\r\nx", "http:evil.example", "",
    ],
)  # fmt: skip
def test_a_sign_in_leads_to_no_other_site(hub: OpenIdHub, following: str) -> None:
    name = new_name("att")
    hub.register(name, sub=name)
    browser = hub.browser()
    where = onward(hub.sign_in(browser, following, sub=name))
    assert where.startswith("/")
    assert urlsplit(where)[:2] == ("", "")
    assert not where.startswith(("//", "/\\"))
    registered = hub.browser()
    hub.sign_in(registered, following, sub=f"{name}-2")
    answer = hub.send(registered, "/register/openid", "/register/openid", name=new_name("att"))
    assert urlsplit(answer.headers["location"])[:2] == ("", "")


def test_the_words_of_a_provider_are_not_shown(hub: OpenIdHub) -> None:
    browser = hub.browser()
    state = dict(parse_qsl(urlsplit(hub.leave(browser)).query))["state"]
    answer = hub.come(browser, {"state": state, "error": "<b>evil</b>", "error_description": "call this number"})
    assert "without a reason" in problem(answer)
    assert "evil" not in answer.text
    assert "number" not in answer.text


def test_a_sign_in_of_another_provider_is_refused(hub: OpenIdHub) -> None:
    browser = hub.browser()
    query = hub.provider.grant(hub.leave(browser))
    assert "another OpenID provider" in problem(hub.come(browser, {**query, "iss": "https://evil.example"}))
    assert not [path for path, _, _ in hub.provider.seen if path == "/token"], "the code went nowhere"
    query = hub.provider.grant(hub.leave(browser))
    assert hub.come(browser, {**query, "iss": hub.provider.url}).status_code == 200


def test_a_provider_that_names_itself_must_do_so_each_time(hub: OpenIdHub) -> None:
    hub.provider.discovery = {"authorization_response_iss_parameter_supported": True}
    browser = hub.browser()
    assert "another OpenID provider" in problem(hub.sign_in(browser))


def test_cookies_of_a_sign_in_are_new_each_time_and_not_for_scripts(hub: OpenIdHub) -> None:
    browser = hub.browser()
    answer = hub.send(browser, "/login/openid", next="/")
    parts = {part.strip() for part in answer.headers["set-cookie"].split(";")}
    assert {"HttpOnly", "SameSite=lax"} <= parts
    first = browser.cookies.get("ludus_sign_in")
    hub.leave(browser)
    assert browser.cookies.get("ludus_sign_in") != first
    planted = "p" * 43
    browser.cookies.clear()
    browser.cookies.set("ludus_sign_in", planted)
    assert browser.get("/register/openid").status_code == 401


def test_a_session_that_was_planted_before_is_not_signed_in(hub: OpenIdHub) -> None:
    name = new_name("att")
    hub.register(name, sub=name)
    browser, attacker = hub.browser(), hub.browser()
    planted = "v" * 43
    hub.sign_in(browser, sub=name)
    attacker.cookies.set("ludus_visitor", planted)
    assert signed_out(attacker)


def test_a_person_who_signs_out_meanwhile_links_and_confirms_nothing(hub: OpenIdHub) -> None:
    name = new_name("att")
    browser = hub.register(name, sub=name)
    address = onward(hub.send(browser, "/account/confirm", "/account"))
    hub.send(browser, "/logout", "/account")
    assert "signed out meanwhile" in problem(hub.back(browser, address, sub=name))


@pytest.mark.parametrize(
    "where",
    ["/login/openid", "/register/openid", "/account/confirm", "/account/identities", "/account/identities/1/unlink"],
)
def test_other_sites_cannot_send_the_forms(hub: OpenIdHub, where: str) -> None:
    browser = hub.browser("alice")
    for form_key in ("", as_page(hub.browser("bob").get("/account")).hidden("form_key")):
        assert browser.post(where, data={"form_key": form_key, "password": PASSWORD}).status_code == 403
    assert hub.provider.seen == []


@pytest.mark.parametrize("where", ["/account/confirm", "/account/identities", "/account/identities/1/unlink"])
def test_strangers_change_no_account(hub: OpenIdHub, where: str) -> None:
    assert hub.send(hub.browser(), where).status_code == 401


def test_a_hub_without_a_provider_has_none_of_the_pages(tmp_path: Path) -> None:
    with people_hub(tmp_path, None, ("alice",), people=PATIENT) as people:
        browser = people.browser("alice")
        form_key = as_page(browser.get("/account")).hidden("form_key")
        assert "OpenID" not in browser.get("/login").text
        for where in (CALLBACK, "/register/openid"):
            assert browser.get(where).status_code == 404
        for where in ("/login/openid", "/register/openid", "/account/confirm", "/account/identities"):
            assert browser.post(where, data={"form_key": form_key, "password": PASSWORD}).status_code == 404


# ── the provider's answers ─────────────────────────────────────────────────────────────────────────────────────────


def _huge(handler: Handler) -> None:
    send_json(handler, {"issuer": "x" * (fetching.MOST_BYTES + 1)})


def _endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"{" * 65536)
    except OSError:
        pass


def _bomb(handler: Handler) -> None:
    import zlib

    body = zlib.compress(b"{" * 50_000_000)
    handler.send_response(200)
    for name, text in {"content-encoding": "deflate", "content-length": str(len(body))}.items():
        handler.send_header(name, text)
    handler.end_headers()
    handler.wfile.write(body)


def _redirecting(handler: Handler) -> None:
    send_json(handler, {}, 302, location="http://127.0.0.1:1/elsewhere")


def _no_json(handler: Handler) -> None:
    send_json(handler, ["no object"])


def _deep(handler: Handler) -> None:
    body = b"[" * 100_000
    handler.send_response(200)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _broken(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


ANSWERS = (_huge, _endless, _bomb, _redirecting, _no_json, _deep, _broken)
PATHS = ("/.well-known/openid-configuration", "/keys", "/token")


@pytest.mark.suite("hub", first=4)
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: one.__name__[1:])
@pytest.mark.parametrize("path", PATHS)
def test_an_answer_that_is_none_ends_the_sign_in_with_a_sentence(
    hub: OpenIdHub, path: str, answer: Callable[[Handler], None]
) -> None:
    browser = hub.browser()
    if path == PATHS[0]:
        hub.provider.answers[path] = answer
        found = hub.send(browser, "/login/openid", next="/")
    else:
        address = hub.leave(browser)
        hub.provider.answers[path] = answer
        found = hub.back(browser, address)
    assert (found.status_code, "OpenID provider" in problem(found)) == (503, True)
    hub.provider.answers.clear()
    assert hub.sign_in(hub.browser()).status_code == 200, "and nothing of it is kept"


def test_an_answer_that_does_not_end_is_waited_for_no_longer_than_the_bound(
    hub: OpenIdHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SECONDS", 0.2)
    go_on = threading.Event()

    def silent(handler: Handler) -> None:
        go_on.wait(30)

    hub.provider.answers[PATHS[0]] = silent
    try:
        assert "did not answer" in problem(hub.send(hub.browser(), "/login/openid", next="/"))
    finally:
        go_on.set()


DOCUMENTS: dict[str, dict[str, Any]] = {
    "another issuer": {"issuer": "https://evil.example"},
    "no issuer": {"issuer": None},
    "no keys": {"jwks_uri": None},
    "no authorization": {"authorization_endpoint": None},
    "keys at another port of this machine": {"jwks_uri": "http://127.0.0.1:1/keys"},
    "keys by another name of this machine": {"jwks_uri": "http://localhost/keys"},
    "the secret to another host": {"token_endpoint": "https://evil.example/token"},
    "the secret to the metadata of a cloud": {"token_endpoint": "http://169.254.169.254/latest"},
    "a file": {"jwks_uri": "file:///etc/passwd"},
    "a script": {"authorization_endpoint": "javascript:alert(1)"},
    "an address with a password": {"token_endpoint": "http://a:b@127.0.0.1/token"},
    "an address that is none": {"token_endpoint": "http://[1"},
    "a number": {"token_endpoint": 7},
    "no PKCE": {"code_challenge_methods_supported": ["plain"]},
    "no way to send the secret": {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
}  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_discovery_document_leads_nowhere_else(hub: OpenIdHub, document: dict[str, Any]) -> None:
    hub.provider.discovery = document
    found = hub.send(hub.browser(), "/login/openid", next="/")
    assert (found.status_code, "OpenID provider" in problem(found)) == (503, True)
    assert [path for path, _, _ in hub.provider.seen] == [PATHS[0]]


PRIVATE = (
    "http://login.example.org/keys", "https://127.0.0.1/keys", "https://10.0.0.1/keys", "https://169.254.169.254/x",
    "https://[::1]/keys", "https://[::ffff:10.0.0.1]/keys", "https://localhost/keys", "https://0.0.0.0/keys",
    "https://[64:ff9b::10.0.0.1]/keys", "https://[2002:7f00:1::]/keys", "https://[::127.0.0.1]/keys",
    "https://[fec0::1]/keys", "https://224.0.0.1/keys",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_a_provider_elsewhere_names_no_private_address(address: str) -> None:
    with pytest.raises(ProviderFailed):
        Fetcher("https://login.example.org").check_address("jwks_uri", address)


def test_a_provider_elsewhere_may_use_several_hosts_and_one_inside_its_own() -> None:
    Fetcher("https://login.example.org").check_address("jwks_uri", "https://keys.example.com/keys")
    Fetcher("https://10.0.0.1").check_address("jwks_uri", "https://10.0.0.1:8443/keys")


def test_a_provider_elsewhere_names_no_public_address_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "is_own", lambda address: str(address) == "192.0.3.7")
    fetcher = Fetcher("https://login.example.org")
    fetcher.check_address("jwks_uri", "https://192.0.3.8/keys")
    with pytest.raises(ProviderFailed, match="private network"):
        fetcher.check_address("jwks_uri", "https://192.0.3.7/keys")


async def test_a_host_that_resolves_to_a_private_address_is_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    def inside(host: str, port: int, *rest: object, **more: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", inside)
    with pytest.raises(ProviderFailed, match="private network"):
        await Fetcher("https://login.example.org").get("https://keys.example.org:1/keys")
    with pytest.raises(ProviderFailed, match="Connect call failed"):
        await Fetcher("https://login.example.org").get("https://login.example.org:1/keys")


def test_the_secret_goes_into_the_form_where_the_provider_wants_that(tmp_path: Path) -> None:
    with openid_hub(tmp_path) as hub:
        hub.provider.discovery = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        hub.sign_in(hub.browser())
        ((_, form, headers),) = [one for one in hub.provider.seen if one[0] == "/token"]
        assert (form["client_id"], form["client_secret"][:8]) == (CLIENT, "a secret")
        assert "authorization" not in headers


async def test_a_client_without_a_secret_sends_none() -> None:
    with openid_provider() as found:
        settings = settings_of(found.url, client_secret=None, public_client=True)
        provider, expected = Provider(settings), Expected(found.url, CLIENT, "n", 0.0, fresh=False)
        with pytest.raises(LudusError):
            await provider.redeem("code", "http://127.0.0.1/x", "v", expected)
        ((_, form, headers),) = [one for one in found.seen if one[0] == "/token"]
        assert form["client_id"] == CLIENT
        assert "client_secret" not in form
        assert "authorization" not in headers


def test_people_are_never_found_by_their_address_or_name(hub: OpenIdHub) -> None:
    """Neither a verified address that the provider gives to a new person, nor a name, leads to another's account."""
    name = new_name("att")
    claims: dict[str, Any] = {"email": "shared@example.org", "email_verified": True, "preferred_username": name}
    hub.register(name, sub="first-person", **claims)
    browser = hub.browser()
    assert onward(hub.sign_in(browser, sub="second-person", **claims)) == "/register/openid"
    assert hub.send(browser, "/register/openid", "/register/openid", name=name).status_code == 422
    assert signed_out(browser)


def test_attempts_to_sign_in_are_bounded(tmp_path: Path) -> None:
    from ludus.hub.core.rates import RateSettings
    from ludus.hub.settings.people import PeopleSettings

    with openid_provider() as provider:
        people = PeopleSettings(rates=RateSettings(logins_of_address=2, registrations_hour=1))
        with people_hub(
            tmp_path, None, (), people=people, openid=settings_of(provider.url, registration="open")
        ) as one:
            hub = OpenIdHub(one, provider)
            hub.register(new_name("att"), sub="a")
            browser = hub.browser()
            hub.sign_in(browser, sub="b")
            where = "/register/openid"
            assert hub.send(browser, where, where, name=new_name("att")).status_code == 429
            assert hub.send(browser, "/login/openid").status_code == 429
