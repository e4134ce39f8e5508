"""Templates, static files, and the headers of every page."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ludus.protocol.text import printable

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The content security policy of pages: nothing inline runs, and nothing is fetched from elsewhere."""

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every page, besides those that the hub's server sends with all answers."""

FILES: Final = {
    "site.css": "text/css; charset=utf-8",
    "site.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "htmx.LICENSE.txt": "text/plain; charset=utf-8",
}
"""The static files and their media types."""


class StaticFile:
    """One static file, in memory.

    Attributes:
        address: its path, which holds its digest, so that browsers may keep it forever.
        size: its bytes as they are sent to a browser, compressed.
    """

    def __init__(self, name: str, media_type: str) -> None:
        self._data = files("ludus.hub.site").joinpath("static", name).read_bytes()
        self._compressed = gzip.compress(self._data, mtime=0)
        self._media_type = media_type
        self.address = f"/static/{hashlib.sha256(self._data).hexdigest()[:12]}/{name}"
        self.size = len(self._compressed)

    def response(self, request: Request) -> Response:
        """Return the file, compressed if the client takes that."""
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "vary": "accept-encoding",
        }
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self._data, media_type=self._media_type, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(self._compressed, media_type=self._media_type, headers=headers)


class Renderer:
    """Renders templates as pages. Everything that a template gets is escaped."""

    def __init__(self) -> None:
        self.static = {name: StaticFile(name, media_type) for name, media_type in FILES.items()}
        self._by_address = {file.address: file for file in self.static.values()}
        self._templates = Environment(
            loader=PackageLoader("ludus.hub.site"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, auto_reload=False, finalize=_shown,
        )  # fmt: skip
        self._templates.filters.update(day=_day, size=_size, number=_number, rounded=_rounded)
        names: dict[str, Any] = self._templates.globals
        names["static"] = {name: file.address for name, file in self.static.items()}

    def page(
        self, template: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
    ) -> Response:
        """Return a page."""
        text = self._templates.get_template(template).render(**values)
        body = text.encode("utf-8", "replace")
        return Response(body, status, {**HEADERS, **(headers or {})}, "text/html; charset=utf-8")

    def file(self, request: Request) -> Response | None:
        """Return the static file of a request; None if there is none."""
        found = self._by_address.get(request.url.path)
        return found.response(request) if found is not None else None


def _shown(value: Any) -> Any:
    """Return text without control characters and without characters that reorder it."""
    return printable(value) if type(value) is str else value


def _day(moment: datetime) -> Markup:
    """Return the day of a moment, which the style sheet keeps on one line."""
    return Markup("<time>{:%Y-%m-%d}</time>").format(moment)


def _size(count: int) -> str:
    """Return a number of bytes for people."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _number(value: float) -> str:
    return f"{value:z,.6g}" if isinstance(value, float) else f"{value:,}"


def _rounded(value: float, form: str) -> str:
    """Return a number in a form such as `.3g`, and never a zero with a minus sign."""
    return format(value, f"z{form}")
