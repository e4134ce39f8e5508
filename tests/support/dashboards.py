"""What Grafana dashboards ask for, and what a server exposes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
MADE_BY_PROMETHEUS = frozenset({"le", "job", "instance"})

Exposed = dict[str, set[str]]
"""The labels of each series, by its name."""


def exposed_by(text: str) -> Exposed:
    """The labels of each series; families without a sample have only those that their help gives."""
    found: Exposed = {}
    for family in text_string_to_metric_families(text):
        if not family.samples and family.type == "counter":
            found.setdefault(f"{family.name}_total", set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_asked(path: Path, exposed: Exposed) -> None:
    """Check that a dashboard asks for nothing but what a server exposes."""
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    for title, expression in expressions(path):
        for name, labels in selectors(parser, expression):
            assert name in exposed, f"{title}: no server exposes {name}"
            assert labels <= exposed[name] | MADE_BY_PROMETHEUS, f"{title}: {name} has the labels {exposed[name]}"


def dashboard(path: Path) -> dict[str, Any]:
    """The dashboard in a file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def expressions(path: Path) -> Iterator[tuple[str, str]]:
    """The title and the expression of each query, with Grafana's own variables replaced."""
    for panel in dashboard(path)["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], re.sub(r"\$\w+", ".*", expression)
    for variable in dashboard(path)["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
            yield f"variable {variable['name']}", f"sum by ({label}) ({name})"


def selectors(parser: Any, expression: str) -> Iterator[tuple[str, set[str]]]:
    """The name of each series in an expression, with the labels that are matched or grouped by."""
    yield from walk(parser, parser.parse(expression), set())


def walk(parser: Any, node: Any, grouped: set[str]) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, parser.VectorSelector):
        yield node.name, {one.name for one in node.matchers.matchers} | grouped
    elif isinstance(node, parser.MatrixSelector):
        yield from walk(parser, node.vector_selector, grouped)
    elif isinstance(node, parser.AggregateExpr):
        labels = set(node.modifier.labels) if node.modifier is not None else set()
        yield from walk(parser, node.expr, grouped | labels)
    elif isinstance(node, parser.Call):
        for argument in node.args:
            yield from walk(parser, argument, grouped)
    elif isinstance(node, parser.BinaryExpr):
        yield from walk(parser, node.lhs, grouped)
        yield from walk(parser, node.rhs, grouped)
    elif isinstance(node, parser.ParenExpr):
        yield from walk(parser, node.expr, grouped)
    else:
        assert isinstance(node, parser.NumberLiteral), f"an unexpected kind of expression: {node!r}"


def check_complete(path: Path) -> None:
    """Check the form of a dashboard: data sources, variables, and that no panel covers another one."""
    found = dashboard(path)
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    variables = {one["name"]: one["type"] for one in found["templating"]["list"]}
    assert variables["datasource"] == "datasource"
    for panel in found["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]
            assert all(one["datasource"]["uid"] == "${datasource}" for one in panel["targets"])
    used = {name for _, text in expressions(path) for name in re.findall(r"\$(\w+)", text)}
    assert used <= variables.keys()
    cells = [
        (x, y)
        for panel in found["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
