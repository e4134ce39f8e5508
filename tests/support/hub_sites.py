"""A hub whose pages play environments of a real `ludus serve`, each in a process of its own, and HTML to look at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import httpx
import uvicorn

from ludus.hub.app import create_hub, parts_of
from ludus.hub.seed import seed
from ludus.hub.serve import HubServer
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.results import ResultLimits

VOID = frozenset({"meta", "link", "input", "img", "br", "hr"})


class Page(HTMLParser):
    """A parsed page: its elements, whose tags must match.

    Attributes:
        elements: tag and attributes, in order.
        text: the text outside of elements' tags.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        opened = self._open.pop()
        assert opened == tag, f"<{opened}> is closed by </{tag}> before {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> Iterator[dict[str, str]]:
        """The attributes of all elements of a tag."""
        return (attributes for name, attributes in self.elements if name == tag)

    def hidden(self, name: str) -> str:
        """The value of a hidden field."""
        return next(one["value"] for one in self.all("input") if one.get("name") == name)


@dataclass
class SiteHub:
    """A running hub with a server that plays."""

    url: str
    data: Path
    server: str = ""
    """The address of the server at which the environments run, if a test needs it."""


def as_page(answer: httpx.Response, status: int = 200) -> Page:
    """Return an answer as a parsed page."""
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Page(answer.text)


def main(data: str, play_url: str, database: str | None = None, lease: str = "30", port: str = "0") -> None:
    """Run a hub whose environments run at `play_url`; none do if that is empty.

    With a port, other processes reach it there, and it has no package; by default it has a free port and the library.
    """
    limits = ResultLimits(lease_seconds=float(lease), sweep_seconds=min(5.0, float(lease)))
    settings = HubSettings(
        data=Path(data), port=int(port), database_url=database, results=limits,
        peer_url=f"http://127.0.0.1:{port}" if port != "0" else None,
    )  # fmt: skip
    app = create_hub(settings, play_address=lambda *version: play_url or None)
    if port == "0":
        seed(parts_of(app).hub)

    def announce(url: str) -> None:
        sys.stdout.write(f"Ludus hub at {url} (site)\n")
        sys.stdout.flush()

    server: uvicorn.Server = HubServer(app, settings, announce)
    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
