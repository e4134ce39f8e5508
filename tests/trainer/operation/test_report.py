"""The report: one page that fetches and runs nothing, shows what was written, and gets by with what there is."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import TrainerError
from ludus.trainer.core.samples import RolloutGroup
from ludus.trainer.logs import RunLog
from ludus.trainer.report import write_report
from ludus.viewing.figures import FIGURES

MakeConfig = Callable[..., TrainConfig]
MakeGroup = Callable[..., RolloutGroup]

VOID = {"meta", "img", "line", "rect", "circle", "polyline", "polygon", "br", "path"}
HELD_OUT = {"evaluation/guess/mean": 0.25, "evaluation/guess/mean_low": 0.2, "evaluation/guess/mean_high": 0.3}


class Page(HTMLParser):
    """A page's elements and its text; fails where tags do not match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data

    def all(self, tag: str, style: str = "") -> list[dict[str, str | None]]:
        return [found for name, found in self.elements if name == tag and style in (found.get("class") or "")]


@pytest.fixture
def make_page(make_config: MakeConfig) -> Callable[..., Page]:
    """`make_page(lambda log: …)`: the report of a run that wrote this."""

    def make(fill: Callable[[RunLog], object]) -> Page:
        config = make_config()
        log = RunLog(config)
        fill(log)
        log.close()
        return Page(write_report(config.output))

    return make


def full(log: RunLog, make_group: MakeGroup, **more: Any) -> None:
    log.metrics(0, HELD_OUT)
    for step in range(1, 61):
        log.metrics(step, {
            "reward/mean": step / 60, "reward/guess": step / 60, "reward/std": 0.1, "rollout/tokens": 40 + step % 2,
            "component/guess/won": step / 60, "difficulty/guess/tiny": step / 60, "loss/entropy": 1 / step,
            "ends/won": step / 60, "ends/lost": 1 - step / 60, "rollout/failed": step % 2, "rollout/truncated": 0,
            "loss/zero_gradient": step % 3 == 0, "loss/mismatch_k3": 1e-4, "loss/masked": 0.1,
            "rollout/staleness_max": 1, "time/wait": step, "time/step": 100, "throughput/trained_tokens": 12_000,
            "sft/loss": float("nan") if step == 3 else 2,
        })  # fmt: skip
        log.rollouts(step, [make_group(step, 1.0, None, **more)])
    log.metrics(60, {name: value + 0.5 for name, value in HELD_OUT.items()})


def test_a_run_is_shown_with_its_headline_curves_and_episodes(
    make_page: Callable[..., Page], make_group: MakeGroup
) -> None:
    page = make_page(lambda log: full(log, make_group))
    assert "0.25→0.75" in page.text
    assert "Mean reward at step 0 and at step 60. The intervals do not overlap." in page.text
    assert "Qwen3-0.6B on guess, GRPO" in page.text
    titles = re.findall(r"<h3>([^<]+)</h3><figcaption>", page.source)
    assert titles == ["Reward", "Entropy", "Length", "Episodes lost", "Reward components", "Reward by difficulty",
                      "Ends", "Gradient = 0", "Time"]  # fmt: skip
    assert page.source.index("Episodes lost") < page.source.index("all other metrics") < page.source.index("Ends")
    assert page.text.count("held-out guess") == 1, "in the legend of the first chart"
    assert "gradient = 0 in 20 of 60 steps" in page.text
    assert "metric that did not change" in page.text
    constant = page.text.partition("metric that did not change")[2]
    assert "sft/loss2" in constant
    assert "rollout/staleness_max1" in constant
    assert "step 60: 1" in page.text, "values stand under the pointer"
    assert "guess(number=8)" in page.text
    assert "turn 2" in page.text
    assert "8 tokens sampled" in page.text
    assert "unknown_tool" in page.text
    assert "Broken: the tool broke" in page.text
    assert "reward 1" in page.text
    assert "0.25" in page.text, "what a step earned"
    assert len(page.all("details", "episode")) == 6, "two of each of three steps"


def test_overlapping_intervals_are_reported(make_page: Callable[..., Page]) -> None:
    def fill(log: RunLog) -> None:
        log.metrics(0, HELD_OUT)
        log.metrics(5, {name: value + 0.05 for name, value in HELD_OUT.items()})

    assert "The intervals overlap: this may be chance." in make_page(fill).text


def test_without_evaluation_the_training_reward_is_the_headline(make_page: Callable[..., Page]) -> None:
    page = make_page(lambda log: [log.metrics(step, {"reward/mean": step / 20}) for step in range(1, 21)])
    assert "0.075→0.975" in page.text
    assert "the first and the last 2 steps. No held-out tasks were run." in page.text


@pytest.mark.parametrize("metrics", [{"reward/mean": 0.0}, {"ends/won": 1.0}, {"time/step": 0.0}, HELD_OUT, {}])
def test_a_run_of_one_step_has_numbers_and_no_chart(make_page: Callable[..., Page], metrics: dict[str, float]) -> None:
    page = make_page(lambda log: log.metrics(1, metrics))
    assert "nan" not in "".join(str(attributes) for _, attributes in page.elements)
    assert page.all("figure") == []
    assert [name for name in metrics if name in ("reward/mean", "ends/won") and name not in page.text] == []


def test_metrics_of_equal_values_share_a_row_and_equal_notes_too(make_page: Callable[..., Page]) -> None:
    same = {f"evaluation/guess/{name}": value for name in ("mean", "pass@1", "pass^1") for value in (0.25,)}
    same |= {f"{name}_{side}": value for name in same for side, value in (("low", 0.2), ("high", 0.3))}

    def fill(log: RunLog) -> None:
        log.metrics(0, same)
        log.note("nothing learned")
        log.metrics(5, {name: value + 0.5 for name, value in same.items()})
        log.note("nothing learned")

    page = make_page(fill)
    assert "mean = pass@1 = pass^10.250 (0.200 to 0.300)0.750 (0.700 to 0.800)" in page.text
    assert page.text.count("nothing learned") == 1
    assert "0, 5nothing learned" in page.text


def test_an_empty_run_is_shown(make_page: Callable[..., Page], tmp_path: Path) -> None:
    assert "Nothing has been measured yet." in make_page(lambda log: None).text
    assert "No steps yet." in Page(write_report(tmp_path)).text


def test_torn_and_foreign_lines_are_left_out(make_config: MakeConfig, make_group: MakeGroup) -> None:
    config = make_config()
    log = RunLog(config)
    full(log, make_group)
    log.close()
    for name in ("metrics.jsonl", "rollouts.jsonl"):
        path = config.output / name
        path.write_text('\n[1]\n{"step": "x"}\n\x00\xff\n' + path.read_text() + '{"step": 61, "reward/mean": 0.')
    page = Page(write_report(config.output))
    assert "0.25→0.75" in page.text
    assert len(page.all("details", "episode")) == 6


def test_every_curve_is_explained_on_the_page_about_training() -> None:
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    table = page.partition("## What the metrics mean")[2].partition("\n\n**")[0]
    first_cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [name.replace("<n>", "1") for cell in first_cells for name in re.findall("`(.+?)`", cell)]
    named = [re.sub("<.+?>", "x", name) for name in named]
    patterns = [pattern for figure in FIGURES for pattern in figure.metrics]
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in named)] == []


EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(1)></pre></main>\"'><svg onload=alert(1)>"
    "<a href=javascript:alert(1)>&lt;$title ${config}\u202egnp.exe\x1b[2J"
)


def test_texts_of_environments_and_models_stay_texts(make_page: Callable[..., Page], make_group: MakeGroup) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
    foreign = {"type": "input_image", "image_url": 'data:image/png;base64,A" onerror="alert(1)'}
    remote = {"type": "input_image", "image_url": "https://example.org/pixel.png"}
    items = [
        {"type": "message", "role": f"user{EVIL}", "content": EVIL},
        {"type": "message", "role": "user", "content": [image, foreign, remote, {"type": EVIL}]},
        {"type": f"reasoning{EVIL}", "summary": []},
        {"type": "function_call", "call_id": "a", "name": EVIL, "arguments": EVIL},
        {"type": "function_call_output", "call_id": "a", "output": EVIL},
    ]
    failure = {"kind": "environment", "error": EVIL, "message": EVIL, "attempt": 1}

    def fill(log: RunLog) -> None:
        log._tokenizer = type("Evil", (), {"decode": lambda self, ids: EVIL})()
        log.metrics(1, {f"evaluation/{EVIL}/mean": 0.5, f"reward/{EVIL}": 0.5, f"ends/{EVIL}": 1.0, EVIL: 1.0})
        log.note(EVIL)
        log.rollouts(1, [make_group(1, 1.0, prompt=EVIL, answer=EVIL)])
        log.rollouts(1, [make_group(2, 1.0, items=items, failure=failure)])

    page = make_page(fill)
    allowed = {"html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "h3", "div", "span", "p",
               "section", "figure", "figcaption", "svg", "g", "line", "rect", "text", "circle", "polyline", "polygon",
               "table", "tr", "td", "th", "details", "summary", "strong", "pre", "mark", "i", "img",
               "path"}  # fmt: skip
    assert {tag for tag, _ in page.elements} <= allowed
    assert page.all("img") == [{"alt": "image", "src": "data:image/png;base64,QUJD"}]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("href", "style", "srcset")]
    assert page.text.count("<script>alert(1)</script>") > 10
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text
    assert page.text.count("[an image]") == 2


def test_the_page_forbids_itself_scripts_and_requests(make_page: Callable[..., Page], make_group: MakeGroup) -> None:
    page = make_page(lambda log: full(log, make_group))
    policy = next(found["content"] for found in page.all("meta") if found.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert not re.search(
        r"@import|url\(|https?:", page.source[page.source.index("<style>") : page.source.index("</style>")]
    )


def test_long_texts_and_long_runs_are_cut(make_page: Callable[..., Page], make_group: MakeGroup) -> None:
    def fill(log: RunLog) -> None:
        for step in range(3_000):
            log.metrics(step, {"reward/mean": 1.0, "ends/won": 1.0})
        log.rollouts(1, [make_group(1, 1.0, prompt="x" * 100_000)])

    page = make_page(fill)
    assert "92,000 characters more" in page.text
    assert len(page.all("g", "h")) <= 2 * 150


def test_the_report_is_written_at_evaluations_and_at_the_end(make_config: MakeConfig) -> None:
    config = make_config("--logging.report=true")
    log = RunLog(config)
    report = config.output / "report.html"
    log.metrics(1, {"reward/mean": 1.0})
    assert not report.exists()
    log.metrics(1, HELD_OUT)
    report.unlink()
    log.close()
    assert report.exists()


def test_a_report_that_cannot_be_written_is_a_remark(make_config: MakeConfig) -> None:
    config = make_config("--logging.report=true")
    log = RunLog(config)
    (config.output / "report.html").mkdir()
    log.metrics(1, HELD_OUT)
    (config.output / "report.html").rmdir()
    log.close()
    assert "the report could not be written: cannot write" in Page(config.output / "report.html").text
    (config.output / "report.html.new").mkdir()
    with pytest.raises(TrainerError, match="Is a directory"):
        write_report(config.output)
