"""The page that says how to use a hub: its commands are real ones, about this hub and a package that is there."""

from __future__ import annotations

import shlex
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from hub_people import people_hub, publish_private
from hub_sites import SiteHub, as_page
from hubs import release
from typer.testing import CliRunner

from ludus.cli.app import app


class Code(HTMLParser):
    """The blocks of code of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self._is_open = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "pre":
            self.blocks.append("")
            self._is_open = True

    def handle_endtag(self, tag: str) -> None:
        self._is_open = self._is_open and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._is_open:
            self.blocks[-1] += data


def is_real(words: list[str]) -> bool:
    """Whether the command line has a command with these options: it reads all of them before it shows its help."""
    return CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def commands(html: str) -> list[list[str]]:
    lines = [line for block in Code(html).blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ludus ")]


@pytest.mark.suite("hub")
def test_each_command_of_the_page_is_one_that_exists(browser: httpx.Client) -> None:
    found = commands(browser.get("/docs").text)
    assert {words[0] for words in found} == {"search", "info", "install", "eval", "train", "init", "publish"}
    for words in found:
        assert is_real(words), words
    assert not is_real(["eval", "play", "a/b", "--nope"])


def test_the_page_names_this_hub_and_a_package_that_it_has(browser: httpx.Client, site: SiteHub) -> None:
    html = browser.get("/docs").text
    page = as_page(browser.get("/docs"))
    assert f"LUDUS_HUB={site.url}" in page.text
    assert "has no accounts" in page.text
    package = next(words[1] for words in commands(html) if words[0] == "install")
    assert browser.get(f"/{package}").status_code == 200
    for link in page.all("a"):
        assert browser.get(link["href"]).status_code == 200, link["href"]
    assert "/docs" in [link["href"] for link in as_page(browser.get("/")).all("a")]


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("who", [None, "bob"])
def test_a_private_package_is_no_example_for_a_stranger(tmp_path: Path, who: str | None) -> None:
    with people_hub(tmp_path, None, ("alice", "bob")) as people:
        assert publish_private(people.of("alice"), release("alice/secretive")).status_code == 201
        assert "OWNER/NAME" in people.browser(who).get("/docs").text
        shown = people.browser("alice").get("/docs").text
    assert "alice/secretive" in shown
    assert "--owner alice" in shown
    assert "ludus account login --web" in shown
