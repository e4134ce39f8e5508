"""`ludus view`: what it shows of a file, that it loses nothing, and that what policies write stays text."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from ludus.cli.view import register
from ludus.viewing.page import POLICY

EVIL = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)></pre></main>\"'><svg onload=alert(1)>"
    "<a href=javascript:alert(1)>&lt;\u202egnp.exe\x1b[2J\x1b]0;owned\x07"
)
PIXEL = "data:image/png;base64,QUJD"


def episode(task: str, reward: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """A recorded episode of two turns, as a line of a file."""
    return {
        "format": "ludus.trajectory/0.1", "environment": "shop", "split": "train", "policy": "policy",
        "task": {"id": task, "split": "train", "index": 0, "fields": {}}, "started_at": 1.0, "seconds": 2.5,
        "episode": f"e_{task}", "status": "completed", "end_reason": "completed",
        "reward": None if reward is None else {
            "value": reward,
            "components": {"right": {"value": reward, "weight": 0.5, "evidence": "the order is there"}},
            "missing": {"tone": "the judge gave no verdict"},
        },
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Order tea."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
            {"type": "function_call", "call_id": "a", "name": "order", "arguments": '{"what": "tea", "count": 2}'},
            {"type": "function_call_output", "call_id": "a", "output": "Ordered."},
            {"type": "function_call", "call_id": "b", "name": "oder", "arguments": "{"},
            {"type": "function_call_output", "call_id": "b", "output": "There is no such tool."},
        ],
        "steps": [
            {"step": 1, "call_id": "a", "seconds": 0.1, "reward": {"value": 0.25}},
            {"step": 0, "call_id": "b", "seconds": 0.1, "error": "unknown_tool"},
        ],
        "turns": [
            {"items": 4, "policy_seconds": 0.1, "environment_seconds": 0.1},
            {"items": 6, "policy_seconds": 0.1, "environment_seconds": 0.1},
        ],
        **more,
    }  # fmt: skip


FAILED = episode(
    "broken", None, status="failed", end_reason="environment_error", attempts=3,
    failure={"kind": "environment", "error": "ZeroDivisionError", "message": "division by zero",
             "incident": "i-7", "attempt": 3},
)  # fmt: skip
UNSCORED = episode("unsure", reward=None) | {"reward": {"value": None, "reason": "no verdict"}}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "runs.jsonl", episode("tea"), FAILED, "nonsense", UNSCORED, episode("cake", 0.25))


def view(*arguments: object) -> Result:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "140"})


class Page(HTMLParser):
    """A page's elements and its text; fails where tags do not match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data


def test_the_list_has_a_row_per_episode_and_broken_lines_are_named(file: Path) -> None:
    done = view(file)
    rows = {line.split()[1]: line.split() for line in done.stdout.splitlines() if "shop/" in line}
    assert rows["shop/train/tea"] == ["1", "shop/train/tea", "1", "completed", "2", "2"]
    assert rows["shop/train/broken"] == ["2", "shop/train/broken", "unscored", "environment", "failure", "2", "2"]
    assert rows["shop/train/unsure"][2] == "unscored"
    assert rows["shop/train/cake"][:3] == ["5", "shop/train/cake", "0.25"]
    assert "4 episodes · mean reward 0.625 · 2 unscored · 1 broken line\n" in done.stdout
    assert f"{file}, line 3: not JSON" in done.stderr
    assert done.exit_code == 1


def test_an_episode_is_shown_in_full(file: Path) -> None:
    for name in ("1", "e_tea"):
        shown = view(file, "--episode", name).stdout
        for part in (
            "user: Order tea.", "turn 1", 'order(what="tea", count=2)', "Ordered.", "reward 0.25", "turn 2", "oder({)",
            "unknown_tool", "ended: completed", "reward: 1", "right: 1 (weight 0.5)  the order is there",
            "tone: not judged  the judge gave no verdict",
        ):  # fmt: skip
            assert part in shown
    assert "unscored: ZeroDivisionError: division by zero" in view(file, "--episode", "2").stdout
    assert "unscored: no verdict" in view(file, "--episode", "e_unsure").stdout
    missing = view(file, "--episode", "9")
    assert "has no episode '9' that matches" in missing.stderr
    assert missing.exit_code == 1


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (["--task", "tea"], {"tea"}),
        (["--task", "*ke"], {"cake"}),
        (["--failed"], {"broken", "unsure"}),
        (["--reward-below", "0.5"], {"cake"}),
        (["--reward-below", "0.5", "--failed"], set()),
        (["--limit", "1"], {"tea"}),
    ],
)
def test_episodes_are_filtered_alike_in_the_terminal_and_on_the_page(
    file: Path, tmp_path: Path, options: list[str], tasks: set[str]
) -> None:
    listed = view(file, *options).stdout
    assert {line.split()[1].rpartition("/")[2] for line in listed.splitlines() if "shop/" in line} == tasks
    view(file, "--html", tmp_path / "page.html", *options)
    text = Page(tmp_path / "page.html").text
    assert {task for task in ("tea", "broken", "unsure", "cake") if f"shop · {task}" in text} == tasks


def test_the_page_holds_everything(file: Path, tmp_path: Path) -> None:
    done = view(file, "--html", tmp_path / "page.html")
    assert "4 of 4 episodes" in done.stdout
    text = Page(tmp_path / "page.html").text
    for part in (
        "mean reward 0.625", "2 unscored", "not JSON", 'order(what="tea", count=2)', "reward 0.25", "unknown_tool",
        "the order is there", "the judge gave no verdict", "ZeroDivisionError: division by zero", "incident i-7",
        "3 attempts", "unscored: no verdict", "turn 2",
    ):  # fmt: skip
        assert part in text


def test_rollouts_of_a_training_run_show_their_step(tmp_path: Path) -> None:
    file = write(tmp_path / "rollouts.jsonl", {"step": 7, "held_out": True, "trajectory": episode("tea")})
    assert view(file, "--html", tmp_path / "page.html").exit_code == 0
    text = Page(tmp_path / "page.html").text
    assert "step 7 · shop · tea" in text
    assert "held-out" in text


def evil(tmp_path: Path) -> Path:
    items = [
        {"type": "message", "role": f"user{EVIL}", "content": EVIL},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PIXEL},
         {"type": "input_image", "image_url": 'data:image/png;base64,A" onerror="alert(1)'},
         {"type": "input_image", "image_url": "https://example.org/pixel.png"}, {"type": EVIL}, EVIL]},
        {"type": f"reasoning{EVIL}", "summary": []},
        {"type": "function_call", "call_id": "a", "name": EVIL, "arguments": EVIL},
        {"type": "function_call_output", "call_id": "a", "output": EVIL},
        {},
    ]  # fmt: skip
    reward = {"value": 1, "components": {EVIL: {"value": 1, "evidence": EVIL}}, "missing": {EVIL: EVIL}}
    failure = {"kind": "policy", "error": EVIL, "message": EVIL, "attempt": 1, "incident": EVIL}
    first = episode(EVIL, items=items, policy=EVIL, episode=EVIL, environment=EVIL) | {"reward": reward}
    return write(tmp_path / "evil.jsonl", first, episode(EVIL, None, failure=failure), json.dumps({EVIL: 1}))


def test_text_of_policies_and_environments_stays_text_on_the_page(tmp_path: Path) -> None:
    view(evil(tmp_path), "--html", tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    allowed = {"html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "div", "span", "p",
               "section", "table", "tr", "td", "th", "details", "summary", "strong", "pre", "img"}  # fmt: skip
    assert {tag for tag, _ in page.elements} <= allowed
    assert [attributes for tag, attributes in page.elements if tag == "img"] == [{"alt": "image", "src": PIXEL}]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("href", "style", "srcset")]
    assert page.text.count("<script>document.title='owned'</script>") > 10
    assert not {"\u202e", "\x1b", "\x07"} & set(page.text)
    assert [found["content"] for tag, found in page.elements if found.get("http-equiv")] == [POLICY]


def test_text_of_policies_and_environments_cannot_control_the_terminal(tmp_path: Path) -> None:
    file = evil(tmp_path)
    for arguments in ((file,), (file, "--episode", "1"), (file, "--episode", "2")):
        done = view(*arguments)
        assert "<script>" in done.stdout
        assert not {"\u202e", "\x1b", "\x07"} & set(done.output)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_without_a_network_shows_the_page_and_runs_nothing_in_it(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    view(evil(tmp_path), "--html", tmp_path / "page.html")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
               "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", (tmp_path / "page.html").as_uri()]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=50).stdout
    assert "<title>Episodes of evil.jsonl</title>" in shown, "a script would have changed the title"
    assert "<script" not in shown
    assert "How episodes ended" in shown


@pytest.mark.suite("breadth")
def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    file, text = tmp_path / "many.jsonl", "x" * 20_000
    with file.open("w") as lines:
        for number in range(10_000):
            lines.write(json.dumps(episode(f"t{number}", 0.5, policy=text)) + "\n")
    size = file.stat().st_size
    assert size > 200_000_000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (size * 3 // 4, size * 3 // 4))

    program = "import sys; from ludus.cli import main; sys.argv[0] = 'ludus'; main()"
    command = [sys.executable, "-c", program, "view", str(file), "--html", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, preexec_fn=limit)
    assert done.stdout.split(": ")[-1].strip() == "1,000 of 10,000 episodes", done.stderr
    assert (tmp_path / "page.html").stat().st_size < 60_000_000


def test_viewing_needs_neither_client_nor_extras() -> None:
    program = (
        "import sys, ludus.viewing\n"
        "assert not {'ludus.client', 'torch', 'jinja2', 'aiohttp', 'fastapi'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
