"""Badges: small pictures that say which version of a package is the latest and whether it is sound, for READMEs."""

from __future__ import annotations

import hashlib
from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.site.site import Site

KEPT_SECONDS: Final = 300
"""How long a browser or a proxy may show a badge without asking again."""

LABEL: Final = "ludus"
"""The text on the left."""

LONGEST: Final = 60
"""The most characters of the text on the right."""

_GOOD, _PLAIN, _BAD = "#22693f", "#4a5059", "#a3352c"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "cross-origin",
}
"""The headers of badges: pages of others may show them, and nothing in them may run."""

_NARROW: Final = frozenset("fijlrt1.,:;!'|()[] ")
_SVG: Final = Markup(
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{title}">'
    "<title>{title}</title>"
    '<rect width="{width}" height="20" rx="4" fill="{color}"/>'
    '<path d="M4 0H{split}V20H4A4 4 0 0 1 0 16V4A4 4 0 0 1 4 0Z" fill="#1d1f23"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
    '<text x="7" y="14" textLength="{label_width}">{label}</text>'
    '<text x="{start}" y="14" textLength="{text_width}">{text}</text></g></svg>\n'
)


class Badges:
    """The badges of packages and of their versions."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def badge(self, request: Request) -> Response:
        """Return the badge of a version; of the latest one if the address names none."""
        parts = request.path_params
        record = self._site.catalog(request).version(parts["owner"], parts["name"], parts.get("version"))
        body = draw(*state_of(record)).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        kept = "private, no-store" if record.private else f"public, max-age={KEPT_SECONDS}"
        headers = {**_HEADERS, "cache-control": kept, "etag": tag}
        if _names(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="image/svg+xml")


def state_of(record: VersionRecord) -> tuple[str, str]:
    """Return the text on the badge of a version, and its color."""
    if record.blocked is not None:
        return f"{record.version} · blocked", _BAD
    if record.yanked is not None:
        return f"{record.version} · yanked", _BAD
    if not record.signed:
        return f"{record.version} · unsigned", _BAD
    if record.validation is None:
        return f"{record.version} · not validated", _PLAIN
    return (f"{record.version} · validated", _GOOD) if record.validation.passed else (
        f"{record.version} · validation failed", _BAD
    )  # fmt: skip


def draw(text: str, color: str) -> str:
    """Return a badge as SVG."""
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    label_width, text_width = _width(LABEL), _width(text)
    split = label_width + 14
    return str(_SVG.format(
        width=split + text_width + 14, split=split, start=split + 7, label=LABEL, label_width=label_width, text=text,
        text_width=text_width, color=color, title=f"{LABEL}: {text}",
    ))  # fmt: skip


def _width(text: str) -> int:
    """Return about how wide a text is; the picture then fits it to this width in any font."""
    return round(sum(4.2 if letter in _NARROW else 7.0 for letter in text))


def _names(wanted: str, tag: str) -> bool:
    """Return whether the header `If-None-Match` names a version of the answer."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in wanted.split(","))
