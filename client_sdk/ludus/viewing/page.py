"""The parts of HTML pages: the frame with its style, escaping, chips, tables and texts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ludus.protocol.text import printable
from ludus.protocol.trajectory import StepRecord

__all__ = ["step_chips", "text_block"]


POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page's own content security policy: nothing in it may run or be fetched."""
SHOWN_TEXT: Final = 8_000
"""The maximum number of characters shown of one text."""
LARGEST_IMAGE: Final = 300_000
"""The maximum length of an image's address."""


def escape(text: object) -> str:
    """Return text as HTML, with U+FFFD in place of control characters and of characters that reorder text."""
    return html.escape(printable(str(text)))


def head(title: str, facts: Iterable[str]) -> str:
    """Return the beginning of a page up to its first section, facts escaped."""
    name = escape(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{name}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{name}</h1>"
        f'<div class="facts">{"".join(f"<span>{escape(fact)}</span>" for fact in facts)}</div></header>\n'
    )


def foot() -> str:
    """Return the end of a page."""
    return "</main>\n</body>\n</html>\n"


def section(title: str, content: str, about: str = "") -> str:
    """Return a section; the content is HTML."""
    note = f'<p class="soft small">{escape(about)}</p>' if about else ""
    return f"<section><h2>{escape(title)}</h2>{note}{content}</section>\n"


def fold(title: str, content: str, kind: str = "", *, is_open: bool = False) -> str:
    """Return content (HTML) that a click on the title unfolds."""
    start = f"<details{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}{' open' if is_open else ''}>"
    return f'{start}<summary class="soft">{escape(title)}</summary>{content}</details>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of texts."""
    titles = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"


def chip(text: str, tone: str = "") -> str:
    """Return a short text in a frame; nothing if the text is empty."""
    return f'<span class="chip {tone}">{escape(text)}</span>' if text else ""


def reward_chip(value: float | None, label: str = "") -> str:
    """Return a reward in a frame, green above 0 and red below; nothing if there is none."""
    tone = "" if not value else "good" if value > 0 else "bad"
    return chip(f"{label}{value:zg}", tone) if value is not None else ""


def step_chips(step: StepRecord | None) -> str:
    """Return what is to be known about a step: its reward or that it has none, its error, its noise."""
    if step is None:
        return ""
    unscored = step.reward is not None and step.reward.value is None
    return (
        reward_chip(step.reward.value if step.reward else None, "reward ")
        + (chip("unscored", "bad") if unscored else "")
        + chip(step.error or "", "bad")
        + chip(f"noise: {step.noise}" if step.noise else "")
    )


def shorten(text: str) -> str:
    """Return at most `SHOWN_TEXT` characters of a text, and how many were left out."""
    left_out = len(text) - SHOWN_TEXT
    return text if left_out <= 0 else f"{text[:SHOWN_TEXT]}\n… {left_out:,} characters more"


def text_block(text: str) -> str:
    """Return text as it was written, shortened."""
    return f"<pre>{escape(shorten(text))}</pre>"


def image(address: str) -> str:
    """Return an image that is part of the file; a note for any other address, which would be fetched."""
    if len(address) < LARGEST_IMAGE and re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", address):
        return f'<img alt="image" src="{address}">'
    return text_block("[an image]")


@cache
def _style() -> str:
    folder = Path(__file__).parent
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("style.css", "charts.css"))
