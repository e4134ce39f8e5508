"""What a cassette compares: requests over HTTP, and calls. Equal ones have the same key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from ludus.sandbox.core.cassette_settings import Cassette
from ludus.sandbox.core.errors import CassetteError


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and without spaces.

    Raises:
        CassetteError: the value is not JSON.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CassetteError(f"a cassette keeps only JSON values: {error}") from None


def http_request(
    settings: Cassette, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes
) -> dict[str, Any]:
    """Return the description of a request by which it is found: its method, address, chosen headers and body's digest.

    The body itself is not kept. The order of the query's parts does not count.
    """
    described: dict[str, Any] = {"method": method, "url": _address(settings, url)}
    if digest := _digest(settings, body):
        described["body"] = digest
    if settings.headers:
        kept_headers: dict[str, list[str]] = {}
        for name, value in headers:
            if name.lower() in settings.headers:
                kept_headers.setdefault(name.lower(), []).append(value)
        described["headers"] = {name: ", ".join(values) for name, values in kept_headers.items()}
    return {"http": described}


def call_request(settings: Cassette, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a call by which it is found: its name and its arguments."""
    ignored = _ignored(settings, "argument")
    relevant = {key: value for key, value in arguments.items() if key not in ignored}
    return {"call": {"name": name, "arguments": json.loads(canonical(relevant))}}


def _ignored(settings: Cassette, kind: str) -> set[str]:
    return {part.partition(":")[2] for part in settings.ignore if part.startswith(f"{kind}:")}


def _address(settings: Cassette, url: str) -> str:
    parts = urlsplit(url)
    ignored = _ignored(settings, "query")
    pairs = [part.partition("=") for part in parts.query.split("&") if part]
    relevant = sorted(f"{name}{sign}{value}" for name, sign, value in pairs if _spelled(name) not in ignored)
    address = parts._replace(query="&".join(relevant), fragment="")
    return address.geturl()


def _spelled(name: str) -> str:
    """Return a query's name as `ignore` spells it; percent signs may hide a letter."""
    return unquote_plus(name)


def _digest(settings: Cassette, body: bytes) -> str:
    if "body" in settings.ignore or not body:
        return ""
    if names := _ignored(settings, "body"):
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            relevant = {key: item for key, item in value.items() if key not in names}
            body = json.dumps(relevant, sort_keys=True, separators=(",", ":")).encode()
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
