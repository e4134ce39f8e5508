"""Search pages by words, ranked by BM25.

Each word has its postings: the pages that it is in, and its weight there, which is computed once. A query adds the
weights up. Words of the title count several times, and a page whose title is the query comes first.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Final, NamedTuple

from ludus.environments.search.world.pages import Page

_SATURATION: Final = 1.2
_LENGTH: Final = 0.6
_TITLE: Final = 4
"""How often a word of the title counts."""
_WORD: Final = re.compile(r"[a-z0-9]{2,}")
_LINK: Final = re.compile(r"\[\[(?:[^\]|]*\|)?([^\]|]*)\]\]")
_SNIPPET: Final = 180

STOP: Final = frozenset(
    "the of in and is was by to at on it an as with for its from that this which who whom what where when did does do "
    "has have had be been or are were into how many much year name same between than there".split()
)
"""Words that queries ignore."""


class Hit(NamedTuple):
    """A page that a search found, with a line from it."""

    page: Page
    snippet: str


class Index:
    """An index of pages."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = pages
        counts = [Counter(words_of(page.text)) for page in pages]
        postings: dict[str, tuple[array[int], array[int]]] = {}
        lengths = [0] * len(pages)
        for number, (page, count) in enumerate(zip(pages, counts, strict=True)):
            lengths[number] = sum(count.values())
            for word in words_of(page.title):
                count[word] += _TITLE
            for word, often in count.items():
                if word not in STOP:
                    found = postings.get(word)
                    if found is None:
                        found = postings[word] = (array("H"), array("H"))
                    found[0].append(number)
                    found[1].append(often)
        mean = sum(lengths) / len(lengths)
        self._norms = [_SATURATION * (1 - _LENGTH + _LENGTH * length / mean) for length in lengths]
        self._postings = postings
        self._titles = {page.title.lower(): page.number for page in pages}

    def search(self, query: str) -> list[Page]:
        """Return the pages that have a word of a query, the best first."""
        scores: dict[int, float] = {}
        for word in query_words(query):
            found = self._postings.get(word)
            if found is None:
                continue
            numbers, often = found
            rarity = log(1 + (len(self._pages) - len(numbers) + 0.5) / (len(numbers) + 0.5))
            for number, times in zip(numbers, often, strict=True):
                weight = rarity * times * (_SATURATION + 1) / (times + self._norms[number])
                scores[number] = scores.get(number, 0.0) + weight
        exact = self._titles.get(query.strip().lower())
        if exact is not None and scores:
            scores[exact] = max(scores.values()) + 1
        # Rounding keeps the order the same on machines whose logarithm differs in the last bit.
        order = sorted(scores, key=lambda number: (-round(scores[number], 6), number))
        return [self._pages[number] for number in order]


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without those of one letter."""
    return _WORD.findall(text.lower())


def query_words(query: str) -> list[str]:
    """Return the words that a query looks for, each once and in order."""
    return list(dict.fromkeys(word for word in words_of(query) if word not in STOP))


def snippet(page: Page, words: Sequence[str]) -> str:
    """Return the sentence or line of a page that has most of some words, cut to a bounded length."""
    best, most = "", -1
    for line in page.text.split("\n"):
        for sentence in [line] if line.startswith("* ") else line.split(". "):
            lower = sentence.lower()
            count = sum(word in lower for word in words)
            if count > most:
                best, most = sentence, count
    plain = _LINK.sub(r"\1", best)
    return plain if len(plain) <= _SNIPPET else f"{plain[:_SNIPPET].rstrip()} …"
