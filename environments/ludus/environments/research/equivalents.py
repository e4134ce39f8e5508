"""Other right ways to lay out the perfect report."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Final

from ludus.environments.research.report import SECTIONS
from ludus.environments.research.sheet import Sheet
from ludus.environments.research.writer import perfect
from ludus.protocol import Answer, Call, StepResult

Policy = Generator[Call | Answer, StepResult, None]

_ITEM: Final = re.compile(r"^- ", re.MULTILINE)
_IDS: Final = re.compile(r"\[\w{4}\](?: \[\w{4}\])+")
_VALUE: Final = re.compile(r"^(- [^|\n]+ \| [^|\n]+ \| )([^|\n\[]+?)( \[)", re.MULTILINE)
_NUMBERED: Final = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)
_ROW: Final = re.compile(r"^\| (.*) \|$", re.MULTILINE)

_LAYOUTS: Final[Mapping[str, Callable[[str], str]]] = {
    "asterisks as bullets": lambda text: _ITEM.sub("* ", text),
    "numbers as bullets": lambda text: _ITEM.sub("1. ", text),
    "headings in bold": lambda text: _with_headings(text, "**{}**"),
    "headings of a lower level with a colon": lambda text: _with_headings(text, "### {}:"),
    "values in bold": lambda text: _VALUE.sub(r"\1**\2**\3", text),
    "ids in one pair of brackets": lambda text: _IDS.sub(lambda hit: f"[{', '.join(_codes(hit[0]))}]", text),
    "ids in another order": lambda text: _IDS.sub(
        lambda hit: " ".join(f"[{code}]" for code in reversed(_codes(hit[0]))), text
    ),
    "conclusions as sentences": lambda text: _NUMBERED.sub(r"\1) The answer is \2.", text),
    "a table without outer bars": lambda text: _ROW.sub(r"\1", text),
    "a block of Markdown": lambda text: f"```markdown\n{text}```\n",
}
"""What becomes of the text of the perfect report."""


def _with_headings(text: str, form: str) -> str:
    for name in SECTIONS:
        text = text.replace(f"## {name}\n", f"{form.format(name)}\n")
    return text


def _codes(ids: str) -> list[str]:
    return re.findall(r"\w{4}", ids)


def policies(sheet: Sheet) -> Mapping[str, Policy]:
    """Return the policies by what is different in them."""
    return {name: _submitted(sheet, layout(perfect(sheet).text())) for name, layout in _LAYOUTS.items()}


def _submitted(sheet: Sheet, report: str) -> Policy:
    """Open the pages that a perfect report cites, and submit a report."""
    for page in sheet.needed:
        yield Call("open", {"page": sheet.archive.titles[page]})
    yield Call("submit", {"report": report})
