"""A mediocre agent for `search`: it reads what a search for the question finds, and answers what it saw most often."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator

from ludus.environments.search import SearchTask
from ludus.protocol import Answer, Call, StepResult, text_of

_LINK = re.compile(r"\[\[([^\]|]*)(?:\|([^\]]*))?\]\]")
_PATTERNS = {
    "year": re.compile(r"\b1\d{3}\b"),
    "number": re.compile(r"\b\d{1,3}(?:,\d{3})*\b(?= [a-z])"),
    "date": re.compile(r"\b\d{1,2} (?:[A-Z][a-z]+) \d{4}\b"),
}


def read_and_guess(task: SearchTask, pages: int) -> Generator[Call | Answer, StepResult, None]:
    """Search for the question, open the first pages, and answer with the most frequent candidate of the right form.

    Args:
        task: the task, of which only the public fields are read.
        pages: how many pages to open.
    """
    result = yield Call("search", {"query": task.question[:300]})
    codes = re.findall(r"^\[(\w{4})\]", text_of(result.content), re.MULTILINE)[:pages]
    text = ""
    for code in codes:
        opened = yield Call("open", {"page": code})
        text += text_of(opened.content)
    if task.form == "name":
        found = Counter(shown or title for title, shown in _LINK.findall(text))
    else:
        found = Counter(_PATTERNS[task.form].findall(text))
    candidates = [one for one in found if one.lower() not in task.question.lower()]
    best = max(candidates, key=lambda one: found[one], default="nothing")
    yield Call("submit", {"answer": best, "citations": codes})
