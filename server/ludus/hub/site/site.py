"""What all pages of the site share."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ludus.hub.endpoints.hosts import PlayAddress
from ludus.hub.parts.hub import Hub
from ludus.hub.registry.catalog import PackageCatalog
from ludus.hub.site.rendering import HEADERS, Renderer
from ludus.hub.site.visitors import Visitor, Visitors
from ludus.protocol.errors import InvalidParams, PayloadTooLarge

FORM_BYTES: Final = 256 * 1024
"""The largest form without a file."""

FORM_FIELDS: Final = 200
"""The most fields of a form."""


class Site:
    """The parts of the site.

    Args:
        hub: the hub.
        renderer: makes pages.
        play_address: where environments run.
    """

    def __init__(self, hub: Hub, renderer: Renderer, play_address: PlayAddress) -> None:
        self.hub = hub
        self.renderer = renderer
        self.play_address = play_address
        self.visitors = Visitors(hub)

    def page(
        self, request: Request, template: str, *, visitor: Visitor | None = None, status: int = 200, **values: Any
    ) -> Response:
        """Return a page; its browser gets a cookie only if a visitor is given, because the page has forms then.

        Of a list that has fewer pages than the address says, this is a redirection to the last one.
        """
        if values.get("page", 1) > max(1, values.get("pages", 1)):
            others = [pair for pair in request.query_params.multi_items() if pair[0] != "page"]
            return see(f"{request.url.path}?{urlencode([*others, ('page', max(1, values['pages']))])}")
        known = visitor or self.visitors.shown(request)
        response = self.renderer.page(
            template, status, needs_sign_in=self.visitors.needs_sign_in, owner_name=known.owner,
            has_account=known.viewer.account is not None, form_key=known.form_key, **values,
        )  # fmt: skip
        return self.visitors.set_cookie(request, response, visitor) if visitor is not None else response

    def catalog(self, request: Request) -> PackageCatalog:
        """Return the packages as the person at the browser sees it."""
        return self.hub.catalog_of(self.visitors.visitor(request).viewer)

    async def form(self, request: Request, most: int = FORM_BYTES) -> tuple[Visitor, Any]:
        """Return the visitor who has sent a form, and its fields.

        Raises:
            PayloadTooLarge: the form is larger than `most` bytes.
            Forbidden: it is not a form of this hub for this browser.
        """
        length = request.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= most):
            raise PayloadTooLarge(f"the form is larger than the {most:,} bytes that this page takes", limit="form")
        fields = await request.form(max_files=1, max_fields=FORM_FIELDS, max_part_size=most)
        return await run_in_threadpool(self.visitors.check_form, request, str(fields.get("form_key", ""))), fields


def see(address: str) -> Response:
    """Return a redirection to a page of this hub after a form."""
    return RedirectResponse(address, 303, {**HEADERS})


def whole_number(request: Request, name: str, default: int, most: int = 100_000) -> int:
    """Return a parameter of the query as a number from 1.

    Raises:
        InvalidParams: it is no number from 1 to `most`.
    """
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= most):
        raise InvalidParams(f"{name!r} in the address must be a whole number from 1 to {most:,}, not {text[:40]!r}")
    return int(text)


def short_text(request: Request, name: str, most: int = 200) -> str:
    """Return a parameter of the query; an empty text if it is missing.

    Raises:
        InvalidParams: it is longer than `most` characters.
    """
    text = request.query_params.get(name, "").strip()
    if len(text) > most:
        raise InvalidParams(f"{name!r} in the address is longer than {most} characters")
    return text


def sentence(message: str) -> str:
    """Return the message of an error as a sentence of a page."""
    return message[:1].upper() + message[1:] + "."


def local_path(address: str) -> str:
    """Return an address if it is a path of this hub, and otherwise the first page."""
    parts = urlsplit(address)
    is_local = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if is_local and not parts.scheme and not parts.netloc else "/"
