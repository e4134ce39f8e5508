"""An OpenID provider that does what a test asks of it: honest by default, hostile on demand; and one from PyPI."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from free_ports import free_port
from hub_sites import as_page
from jwt.algorithms import RSAAlgorithm
from peer_clients import peer_variables, python_of
from waiting import answers, block_until_up

CLIENT, SECRET = "the-hub", "a secret: with/odd+characters%"
PATIENCE = 60.0
Claims = dict[str, Any]


class SigningKey:
    """An RSA key with a name."""

    def __init__(self, name: str, bits: int = 2048) -> None:
        self.name = name
        self.key = rsa.generate_private_key(65537, bits)

    @property
    def public(self) -> dict[str, Any]:
        """The public key as a JSON Web Key."""
        found: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {**{name: found[name] for name in ("kty", "n", "e")}, "use": "sig", "kid": self.name}

    @property
    def pem(self) -> bytes:
        """The public key as text, which an attacker takes for the secret of an HMAC."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form)

    def sign(self, claims: Claims) -> str:
        return jwt.PyJWS().encode(json.dumps(claims).encode(), self.key, "RS256", {"kid": self.name})


@dataclass
class Grant:
    """What a code stands for."""

    query: dict[str, str]
    claims: Claims


@dataclass
class TestProvider:
    """Its attributes are what it answers; a test changes them."""

    __test__ = False
    url: str = ""
    keys: list[SigningKey] = field(default_factory=list)
    discovery: dict[str, Any] = field(default_factory=dict)
    """Fields of the discovery document to replace; None removes one."""
    sign: Callable[[Claims], str] | None = None
    """Signs in place of the first key."""
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    """What to answer at a path in place of the usual."""
    seen: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    """The path, the form and the headers of each request."""
    _grants: dict[str, Grant] = field(default_factory=dict)

    def grant(self, address: str, **claims: Any) -> dict[str, str]:
        """Let a person sign in who was sent to an address, and return the parameters with which the browser returns."""
        query = dict(parse_qsl(urlsplit(address).query))
        code, now = secrets.token_hex(8), int(time.time())
        usual: Claims = {
            "iss": self.url, "sub": "alice-at-provider", "aud": CLIENT, "exp": now + 60, "iat": now, "auth_time": now,
            "nonce": query["nonce"], **claims,
        }  # fmt: skip
        self._grants[code] = Grant(query, {name: value for name, value in usual.items() if value is not None})
        return {"state": query["state"], "code": code}

    def document(self) -> dict[str, Any]:
        usual = {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize?tenant=1",
            "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"], "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"], **self.discovery,
        }  # fmt: skip
        return {name: value for name, value in usual.items() if value is not None}

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Exchange a code, which is used up, as an honest provider does."""
        grant = self._grants.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        wanted = base64.b64encode(b"the-hub:a%20secret%3A%20with%2Fodd%2Bcharacters%25").decode()
        if grant is None or form["redirect_uri"] != grant.query["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "<b>no</b>"}
        if challenge != grant.query["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        if authorization != f"Basic {wanted}":
            return 401, {"error": "invalid_client"}
        token = (self.sign or self.keys[0].sign)(grant.claims)
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": token}


class _Handler(BaseHTTPRequestHandler):
    provider: TestProvider

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0"))).decode()
        self._serve({name: values[0] for name, values in parse_qs(body).items()})

    def _serve(self, form: dict[str, str]) -> None:
        provider, path = self.provider, urlsplit(self.path).path
        provider.seen.append((path, form, {name.lower(): value for name, value in self.headers.items()}))
        if path in provider.answers:
            provider.answers[path](self)
        elif path == "/.well-known/openid-configuration":
            send_json(self, provider.document())
        elif path == "/keys":
            send_json(self, {"keys": [{"kty": "oct", "k": "c2VjcmV0"}, *(key.public for key in provider.keys)]})
        elif path == "/token":
            status, answer = provider.redeem(form, self.headers.get("authorization", ""))
            send_json(self, answer, status)
        else:
            send_json(self, {}, 404)

    def log_message(self, format: str, *args: object) -> None:
        pass


def send_json(handler: BaseHTTPRequestHandler, value: Any, status: int = 200, **headers: str) -> None:
    body = json.dumps(value).encode()
    handler.send_response(status)
    for name, text in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
        handler.send_header(name, text)
    handler.end_headers()
    with contextlib.suppress(OSError):
        handler.wfile.write(body)


@contextmanager
def openid_provider() -> Iterator[TestProvider]:
    """Run a provider on loopback."""
    provider = TestProvider(keys=[SigningKey("first")])
    handler = type("Handler", (_Handler,), {"provider": provider})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        provider.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def onward(answer: httpx.Response) -> str:
    """The address to which a page goes on by itself; it has a link to the same."""
    page = as_page(answer, 200)
    (refresh,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "refresh"]
    delay, _, address = refresh.partition(";url=")
    assert delay == "0"
    assert address in {one.get("href") for one in page.all("a")}
    return address


@contextmanager
def real_provider(folder: Path) -> Iterator[str]:
    """Run oidc-provider-mock from its own virtual environment, and yield its address."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", folder / "provider.log"
    command = [python_of("oidc-provider"), "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=peer_variables()
        )  # fmt: skip
    try:
        block_until_up(process, lambda: answers(url), log)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def signed_in_at(address: str, person: str, **claims: Any) -> str:
    """Sign in at that provider's form, and return the address to which it sends the browser."""
    parts = urlsplit(address)
    with httpx.Client(base_url=f"{parts.scheme}://{parts.netloc}", timeout=PATIENCE) as browser:
        assert browser.put(f"/users/{person}", json=claims).status_code == 204
        assert re.search(r'name="sub"', browser.get(address).text)
        answer = browser.post(address, data={"sub": person})
    return str(answer.headers["location"])
