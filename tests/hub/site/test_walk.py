"""A new person's whole way through a hub in a real Chromium: from the registration to a receipt that holds offline.

Needs Playwright, Chromium and bubblewrap; with the peer axe, each page on the way is checked in
both themes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import AXE
from hubs import MODULE, HubProcess, project

sync_api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PASSWORD = "correct horse battery staple"

pytestmark = [
    pytest.mark.suite("hub"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap"),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    """A hub with an administrator, where everyone may register."""
    accounts = [sys.executable, "-m", "ludus.cli", "hub", "accounts", "create", "root", "--admin", "--password-stdin"]
    subprocess.run([*accounts, "--data", tmp_path / "data"], input=PASSWORD, text=True, check=True, timeout=60)
    process = HubProcess(tmp_path / "data", "--no-seed", "--registration", "open")
    yield process
    assert process.stop() == 0


class Walker:
    """A person at a browser and at a terminal."""

    def __init__(self, context: Any, hub: HubProcess, folder: Path) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.hub = hub
        self.folder = folder
        self.token = ""
        self.problems: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(text)

    def go(self, path: str) -> str:
        """Open a page, check it, and return its text."""
        self.page.goto(self.hub.url + path)
        return self.look()

    def look(self) -> str:
        """Check the page that is open, in both themes and on a wide and a narrow screen, and return its text."""
        name = re.sub(r"\W+", "_", self.page.url.removeprefix(self.hub.url))[:60]
        for width in (420, 1100):
            self.page.set_viewport_size({"width": width, "height": 900})
            assert self.page.evaluate("() => document.documentElement.scrollWidth") <= width, self.page.url
            for theme in ("light", "dark"):
                self.page.emulate_media(color_scheme=theme)
                if folder := os.environ.get("LUDUS_SCREENSHOTS"):
                    self.page.screenshot(path=f"{folder}/walk{name}-{width}-{theme}.png", full_page=True)
                if AXE:
                    self.page.add_script_tag(path=AXE)
                    run = "() => axe.run().then(all => all.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
                    assert self.page.evaluate(run) == [], self.page.url
        return str(self.page.inner_text("main"))

    def fill(self, button: str, **fields: str) -> None:
        """Fill the form of a button, and send it."""
        form = self.page.locator("form", has=self.page.get_by_role("button", name=button, exact=True)).first
        for name, value in fields.items():
            form.locator(f"[name='{name}']").first.fill(value)
        form.get_by_role("button", name=button, exact=True).click()
        self.page.wait_for_load_state()

    def ludus(self, *arguments: str | Path, code: int = 0, hub: str = "") -> str:
        """Run a command with the token that was made on the site, and return all that it prints.

        Args:
            arguments: the command.
            code: its exit code.
            hub: another address of the hub.
        """
        own = {"LUDUS_CONFIG_DIR": str(self.folder / "config"), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "ludus.cli", *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
            env={**os.environ, **own, "LUDUS_HUB": hub or self.hub.url, "LUDUS_HUB_TOKEN": self.token},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def walker(hub: HubProcess, tmp_path: Path) -> Iterator[Walker]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1100, "height": 900}, bypass_csp=bool(AXE))
        yield Walker(context, hub, tmp_path)
        browser.close()


def test_a_person_registers_publishes_plays_evaluates_and_verifies_the_receipt(
    walker: Walker, hub: HubProcess, tmp_path: Path
) -> None:
    page = walker.page
    walker.go("/register")
    walker.fill("Register", name="grace", password=PASSWORD, again=PASSWORD)
    assert "grace" in walker.look()

    walker.go("/account/tokens")
    for scope in ("publish", "run", "results"):
        page.locator(f"[name='scope'][value='{scope}']").check()
    walker.fill("Make the token", name="laptop")
    found = re.search(r"ludus_hub_\w+", walker.look())
    assert found is not None
    walker.token = found[0]

    coin = project(tmp_path / "coin", "grace/coin", toml='tags = ["coin"]\n')
    walker.ludus("publish", coin, "--no-validate")
    changed = project(tmp_path / "coin", "grace/coin", "1.1.0", toml='tags = ["coin", "game"]\n',
                      module=MODULE.replace("heads or tails?", "Heads or tails?"))  # fmt: skip
    assert f"{hub.url}/grace/coin\n" in walker.ludus("publish", changed, "--no-validate")

    walker.go("/?q=coin")
    page.get_by_role("link", name="grace/coin").first.click()
    page.wait_for_url(re.compile("/grace/coin$"))
    assert "Say how a coin lies." in walker.look()

    page.get_by_role("link", name="What changed since 1.0.0").click()
    assert "tags[game]" in walker.look()
    page.get_by_role("link", name="grace_coin.py").click()
    assert '-         return "heads or tails?"\n+         return "Heads or tails?"' in walker.look()
    page.get_by_role("link", name="Whole file in 1.1.0").click()
    assert "class Toss(Environment[Coin])" in walker.look()
    with hub.client() as stranger:
        assert "1.1.0 · not validated" in stranger.get("/grace/coin/badge.svg").text

    walker.go("/grace/coin/play")
    walker.fill("Start")
    page.wait_for_url(re.compile("/play/"))
    assert "Heads or tails?" in walker.look()
    page.locator("[name='a.side']").fill("heads")
    page.keyboard.press("Enter")
    page.get_by_text("The episode has ended").wait_for()
    assert "reward" in walker.look()
    page.get_by_role("button", name="Keep in rollouts").click()
    page.wait_for_url(re.compile("/rollouts/"))
    assert "Heads or tails?" in walker.look()

    said = walker.ludus(
        "eval", "play", "grace/coin", "--env", "toss", "--split", "train", "--model", "random", "--tasks", "2",
        "--out", "random.jsonl",
    )  # fmt: skip
    run = re.search(r"/runs/([\w-]{22})", said)
    assert run is not None, said

    walker.go("/grace/coin")
    page.get_by_role("link", name="toss / train").click()
    page.wait_for_url(re.compile("/board"))
    assert "random" in walker.look()
    shown = walker.go(f"/runs/{run[1]}")
    assert "2" in shown

    walker.go("/rollouts")
    page.locator("[name='file']").set_input_files(tmp_path / "random.jsonl")
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_url(re.compile(r"/rollouts/\w+"))
    walker.look()
    page.get_by_role("link", name=re.compile("^1 · toss")).click()
    page.wait_for_url(re.compile(r"/rollouts/\w+/1"))
    assert "Turn 1" in walker.look()

    receipt = tmp_path / "receipt.json"
    with hub.client() as client:
        receipt.write_bytes(client.get(f"/api/v1/runs/{run[1]}/receipt").content)
        key = client.get("/api/v1/results/key").json()["key"]
    nowhere = "http://127.0.0.1:9"
    assert "grace/coin" in walker.ludus("hub", "verify", receipt, "--key", key, hub=nowhere)
    receipt.write_text(receipt.read_text().replace("random", "better"))
    assert "it was changed" in walker.ludus("hub", "verify", receipt, "--key", key, hub=nowhere, code=5)
    assert walker.problems == []
