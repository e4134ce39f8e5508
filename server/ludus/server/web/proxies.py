"""The server's address as clients see it, behind proxies that end TLS, rewrite the host or add a path prefix.

How this works:

1. `ServerSettings` says what is known in advance: the public URL, the prefix (root path), the proxies to trust.
2. `ProxyMiddleware` is the outermost layer of the application. It removes the prefix from the path of a request that
   still has it, and for a request from a trusted proxy replaces client, scheme and `Host` by what that proxy forwarded.
3. All code that shows an address calls `public_address(scope)` or `address_seen(scope)`; no other code uses `Host` for
   that.

Anyone can send any `Host` and any forwarded header. So if a public URL is set, it is the only address that is shown.
Forwarded headers count only if the connection comes from a listed proxy, and only the entries that listed proxies
wrote. Lists are read from their end, because each proxy appends.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.protocol.episodes import ForkResult, PlayAccess, StartedEpisode, StartResult
from ludus.protocol.model import WireModel

__all__ = ["parse_public_url"]


ProxyHeaders = Literal["x-forwarded", "forwarded"]
"""The family of headers that the proxies set: `X-Forwarded-*`, or RFC 7239's `Forwarded`."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ADDRESS: Final = "ludus.public_address"
"""The key of the ASGI scope under which the request's known public address is stored."""

_ROOT: Final = "ludus.path_prefix"
"""The key of the ASGI scope under which the prefix of the server's paths is stored."""

_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~@!-]+)+")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PAIR: Final = re.compile(r'\s*([A-Za-z-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*')
_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_LONGEST: Final = 2048
_REMEMBERED: Final = 4096


def parse_public_url(text: str) -> str:
    """Return a public URL in its canonical form, without a slash at its end.

    Raises:
        ValueError: the text is not an http(s) address, or has a query, a fragment or credentials.
    """
    try:
        parts = urlsplit(text.strip())
        netloc, path = parts.netloc, parts.path.rstrip("/")
        port = parts.port
    except ValueError:
        parts, netloc, path, port = urlsplit(""), "", "", None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(netloc) or port == 0:
        raise ValueError(f"{text!r} is not an address; write it like https://rl.example.org or https://example.org/rl")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a query or a fragment; write the address alone, like https://rl.example.org")
    return f"{parts.scheme}://{netloc}{parse_root_path(path)}"


def parse_root_path(text: str) -> str:
    """Return a path prefix as `/part/part`, or an empty string for none.

    Raises:
        ValueError: the text has characters other than letters, digits and `._~@!-` between its slashes.
    """
    path = text.strip().rstrip("/")
    if path and (not _PREFIX.fullmatch(path) or ".." in path.split("/") or "." in path.split("/")):
        raise ValueError(f"{text!r} is not a path prefix; write it like /rl or /lab/rl")
    return path


def parse_network(text: str) -> Network:
    """Return the network of a proxy given as an address (`10.0.0.7`) or a network (`10.0.0.0/8`).

    Raises:
        ValueError: the text is neither.
    """
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address or a network; write it like 10.0.0.7 or 10.0.0.0/8") from None


@dataclass(frozen=True)
class ProxyRules:
    """The settings for the server's public address and the proxies in front of it.

    Attributes:
        public_url: the only address to show, or empty if it depends on the request.
        root_path: the path prefix under which clients reach the server, or empty.
        trusted: the networks of proxies whose forwarded headers count.
        headers: the family of headers those proxies set; the other family is ignored, as proxies pass it through.
    """

    public_url: str = ""
    root_path: str = ""
    trusted: tuple[Network, ...] = ()
    headers: ProxyHeaders = "x-forwarded"
    _verdicts: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def __bool__(self) -> bool:
        """Return whether there is anything to apply."""
        return bool(self.public_url or self.root_path or self.trusted)

    def trusts(self, address: str) -> bool:
        """Return whether `address` is a listed proxy. Results are cached."""
        verdict = self._verdicts.get(address)
        if verdict is None:
            verdict = self._judge(address)
            if len(self._verdicts) < _REMEMBERED:
                self._verdicts[address] = verdict
        return verdict

    def _judge(self, address: str) -> bool:
        try:
            parsed: Any = ipaddress.ip_address(address)
        except ValueError:
            return False
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self.trusted)


class Hop(NamedTuple):
    """What one proxy forwarded about the request that it received. A part that it did not send is empty."""

    client: str = ""
    scheme: str = ""
    host: str = ""
    prefix: str = ""


class ProxyMiddleware:
    """ASGI middleware that makes a request look as it did before it passed the proxies."""

    def __init__(self, app: ASGIApp, rules: ProxyRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request with the address that its sender used."""
        if scope["type"] != "lifespan":
            scope = self._applied(scope)
        await self._app(scope, receive, send)

    def _applied(self, scope: Scope) -> Scope:
        rules = self._rules
        changed = dict(scope)
        client = scope.get("client")
        prefix = rules.root_path
        hop = None
        if rules.trusted and client is not None and rules.trusts(client[0]):
            hop = forwarded(scope["headers"], rules)
        if hop is not None:
            prefix = prefix or hop.prefix
            if hop.client:
                changed["client"] = (hop.client, 0)
            if hop.scheme:
                changed["scheme"] = hop.scheme if scope["type"] == "http" else {"https": "wss"}.get(hop.scheme, "ws")
            if hop.host:
                headers = [pair for pair in scope["headers"] if pair[0] != b"host"]
                changed["headers"] = [(b"host", hop.host.encode("ascii")), *headers]
        path: str = scope["path"]
        if rules.root_path and path.startswith(rules.root_path + "/"):
            changed["path"] = path[len(rules.root_path) :]
            raw: bytes = scope.get("raw_path") or b""
            changed["raw_path"] = raw.removeprefix(rules.root_path.encode("ascii"))
        if rules.public_url:
            changed[_ADDRESS] = rules.public_url
        elif hop is not None and hop.host:
            changed[_ADDRESS] = _origin(changed) + prefix
        changed[_ROOT] = prefix
        return changed


def public_address(scope: Scope) -> str | None:
    """Return the address by which clients reach this server, without a slash at its end, or None if it is not known.

    It is known from a public URL, or from the host that a trusted proxy forwarded.
    """
    address: str | None = scope.get(_ADDRESS)
    return address


def address_seen(scope: Scope) -> str:
    """Return the public address, or if that is not known, the address to which this request was sent."""
    return public_address(scope) or _origin(scope) + path_prefix(scope)


def path_prefix(scope: Scope) -> str:
    """Return the path prefix under which clients reach this server, such as `/rl`, or an empty string."""
    prefix: str = scope.get(_ROOT, "")
    return prefix


def with_urls(result: WireModel, scope: Scope | None) -> WireModel:
    """Return a method's result with the URL of each episode's agent endpoint, if the public address is known."""
    address = public_address(scope) if scope is not None else None
    if address is None:
        return result
    if isinstance(result, StartResult):
        return result.model_copy(update={"episodes": tuple(_with_url(episode, address) for episode in result.episodes)})
    if isinstance(result, ForkResult):
        return result.model_copy(update={"episode": _with_url(result.episode, address)})
    return result


def _with_url(episode: StartedEpisode, address: str) -> StartedEpisode:
    if episode.play is None:
        return episode
    play = PlayAccess(path=episode.play.path, expires_at=episode.play.expires_at, url=address + episode.play.path)
    return episode.model_copy(update={"play": play})


def _origin(scope: Scope) -> str:
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    if not _HOST.fullmatch(host):
        name, port = scope.get("server") or ("localhost", None)
        host = f"[{name}]" if ":" in name else name
        host = f"{host}:{port}" if port else host
    return f"{_SCHEMES.get(scope.get('scheme', 'http'), 'http')}://{host}"


def forwarded(headers: Sequence[tuple[bytes, bytes]], rules: ProxyRules) -> Hop | None:
    """Return what the listed proxies forwarded about a request, or None if they sent nothing readable.

    Args:
        headers: the headers of a request that came from a listed proxy.
        rules: which proxies are listed, and which family of headers they set.
    """
    hops = _rfc7239(headers) if rules.headers == "forwarded" else _x_forwarded(headers, rules)
    combined = None
    for hop in reversed(hops):
        # The last hop was written by the proxy that connected to this server. An earlier hop counts only if the
        # client that the later one names is a listed proxy too.
        combined = hop if combined is None else Hop(*(new or old for new, old in zip(hop, combined, strict=True)))
        if not rules.trusts(hop.client):
            break
    return combined


def _joined(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    text = ",".join(value.decode("latin-1") for key, value in headers if key == name)
    return [part.strip() for part in text.split(",")] if text and len(text) <= _LONGEST else []


def _x_forwarded(headers: Sequence[tuple[bytes, bytes]], rules: ProxyRules) -> list[Hop]:
    clients = _joined(headers, b"x-forwarded-for")
    schemes, hosts, ports, prefixes = (
        _joined(headers, b"x-forwarded-" + name) for name in (b"proto", b"host", b"port", b"prefix")
    )
    longest = max(map(len, (clients, schemes, hosts, ports, prefixes)))
    hops = []
    for back in range(longest, 0, -1):
        client, scheme, host, port, prefix = (
            values[-back] if back <= len(values) else "" for values in (clients, schemes, hosts, ports, prefixes)
        )
        hops.append(_hop(client, scheme, _with_port(host, port, scheme), prefix))
    return hops


def _with_port(host: str, port: str, scheme: str) -> str:
    if not host or not port.isdigit() or len(port) > 5 or re.search(r":\d+$", host):
        return host
    return host if port == {"http": "80", "https": "443"}.get(scheme.lower()) else f"{host}:{port}"


def _rfc7239(headers: Sequence[tuple[bytes, bytes]]) -> list[Hop]:
    text = ",".join(value.decode("latin-1") for key, value in headers if key == b"forwarded")
    if len(text) > _LONGEST:
        return []
    hops = []
    for element in _split(text, ","):
        pairs = [_PAIR.fullmatch(pair) for pair in _split(element, ";")]
        pairs_by_name = {match[1].lower(): _unquoted(match[2]) for match in pairs if match is not None}
        broken = any(match is None for match in pairs)
        hops.append(
            Hop()
            if broken
            else _hop(pairs_by_name.get("for", ""), pairs_by_name.get("proto", ""), pairs_by_name.get("host", ""), "")
        )
    return hops


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside quotes."""
    parts = re.findall(rf'(?:"(?:[^"\\]|\\.)*"|[^"{separator}]|")+', text)
    return [part for part in parts if part.strip()]


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _hop(client: str, scheme: str, host: str, prefix: str) -> Hop:
    """Return a hop; parts that are not well formed are left empty."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?", client)
    if bracketed:
        client = bracketed[1]
    elif client.count(":") == 1:
        client = client.partition(":")[0]
    try:
        client = str(ipaddress.ip_address(client))
    except ValueError:
        client = ""
    scheme = _SCHEMES.get(scheme.lower(), "")
    host = host if _HOST.fullmatch(host) else ""
    try:
        prefix = parse_root_path(prefix)
    except ValueError:
        prefix = ""
    return Hop(client, scheme, host, prefix)
