"""Numbers on pages: a zero never has a minus sign, wherever it is rounded."""

from __future__ import annotations

from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.hub.site.charts import Bar, bar_chart
from ludus.hub.site.rendering import Renderer
from ludus.viewing.charts import number
from ludus.viewing.page import reward_chip

TEMPLATES = files("ludus.hub.site").joinpath("templates")


def shown(macro: str, value: Any) -> str:
    """What a macro of the results prints."""
    renderer = Renderer()
    template = renderer._templates.get_template("results.html")
    return str(getattr(template.module, macro)(value))


@pytest.mark.parametrize("value", [-0.0, -0.0004])
def test_an_interval_around_zero_has_no_negative_zero(value: float) -> None:
    text = shown("interval", SimpleNamespace(value=-0.0, interval=(-0.0, value)))
    assert ">(0 to" in text
    assert not text.startswith("-")


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(-0.3, ".0f", "0"), (-0.7, ".0f", "-1"), (-0.0, ".3g", "0"), (0, ".0f", "0"), (-0.04, ".1f", "0.0"),
     (-0.25, ".3g", "-0.25")],
)  # fmt: skip
def test_a_rounded_number_has_a_sign_only_if_it_is_not_zero(value: float, form: str, text: str) -> None:
    filters: Any = Renderer()._templates.filters
    assert filters["rounded"](value, form) == text


def test_charts_and_other_numbers_have_no_negative_zero() -> None:
    filters: Any = Renderer()._templates.filters
    assert filters["number"](-0.0) == "0"
    assert "-0<" not in bar_chart("t", [Bar("a", -0.0, None, None), Bar("b", -0.0, -0.1, 0.1)], -1.0, 1.0)
    assert number(-0.0) == "0"
    assert reward_chip(-0.0, "reward ").endswith(">reward 0</span>")


def test_no_template_rounds_in_another_way() -> None:
    """The filter `format` prints "-0" for a small negative number."""
    templates = [one for one in TEMPLATES.iterdir() if one.name.endswith(".html")]
    assert len(templates) > 30
    for template in templates:
        assert "| format(" not in template.read_text(encoding="utf-8"), template.name
