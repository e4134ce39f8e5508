"""The report: complete without scripts and network, and what environments and policies write stays text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from evaluations import cell, document, parse, played

from ludus.evaluation.config import ModelSpec
from ludus.evaluation.figures import probe_figures
from ludus.protocol.episodes import TaskRow
from ludus.protocol.trajectory import Failure
from ludus.viewing import write_evaluation_page
from ludus.viewing.evaluation import SHOWN_TASKS
from ludus.viewing.page import POLICY

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)></td>\"'><svg onload=alert(1)>\u202e\x1b[2J"


class Page(HTMLParser):
    """The tags of a page, and its text outside of the style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_shows_every_cell_and_runs_and_fetches_nothing(tmp_path: Path) -> None:
    spec = ModelSpec(model="openai:m", price_in=1.0, price_out=1.0)
    full = [played(task, sample, float(task % 2), tokens=(1000, 10)) for task in range(6) for sample in range(2)]
    probe = probe_figures(
        "truncated-prompt", full[2:4], full, spec=spec, applies=True, planned=2, success_at=1.0, reward_range=None,
        trajectories="p.jsonl",
    )  # fmt: skip
    whole = cell(full, model=spec, probes=(probe,))
    partial = cell([played(0, 0, failure="infrastructure")], split="test", planned=7, problem="the server is gone")
    file = tmp_path / "report.html"
    write_evaluation_page(parse(document(whole, partial, finished=False)), file)
    text = file.read_text("utf-8")
    page = Page(text)
    shown = " ".join(page.words)
    for word in (
        "0.500", "50.0%", "12 of 12", "12,000", "0.01212", "truncated-prompt", "the server is gone",
        "6 of 7 episodes were not played", "1 of 1 episodes have no reward", "not finished", "t-1",
    ):  # fmt: skip
        assert word in shown, word
    assert POLICY in text
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "form", "a"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href")], tag
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_whatever_a_server_or_a_model_says_stays_text(tmp_path: Path) -> None:
    row = TaskRow(id=EVIL, split="train", index=0, fields={})
    failure = Failure(kind="environment", error="E", message=EVIL, attempt=1)
    evil = [
        played(0, 0, 1.0, environment_version=EVIL).model_copy(update={"task": row}),
        played(0, 1, failure="environment").model_copy(update={"task": row, "failure": failure}),
    ]
    spec = ModelSpec(model="openai:m", name=EVIL)
    probe = probe_figures(
        "no-tools", evil, evil, spec=spec, applies=True, planned=2, success_at=1.0, reward_range=None,
        trajectories=EVIL,
    )  # fmt: skip
    one = cell(
        evil, model=spec, environment=EVIL, version=EVIL, split=EVIL, problem=EVIL, trajectories=EVIL, probes=(probe,)
    )
    file = tmp_path / "report.html"
    write_evaluation_page(parse(document(one, models=(EVIL,), ludus_version=EVIL)), file)
    text = file.read_text("utf-8")
    tags = {tag for tag, _ in Page(text).tags}
    assert "script" not in tags
    assert "img" not in tags
    assert "onload" not in {name for _, attributes in Page(text).tags for name in attributes}
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;" in text


def test_a_large_cell_lists_the_tasks_with_the_lowest_rewards(tmp_path: Path) -> None:
    many = [played(task, 0, 0.0 if task == 77 else 1.0) for task in range(SHOWN_TASKS + 50)]
    file = tmp_path / "report.html"
    write_evaluation_page(parse(document(cell(many))), file)
    text = file.read_text("utf-8")
    assert f"{SHOWN_TASKS} of {SHOWN_TASKS + 50} tasks" in text
    assert "<td>t-77</td><td>0</td>" in text
