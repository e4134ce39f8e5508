"""Other right ways to give an answer and its proof."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final

from ludus.environments.search.answers import canonical
from ludus.environments.search.questions import AnswerForm
from ludus.environments.search.reader import code_of
from ludus.environments.search.world.pages import MONTHS
from ludus.protocol import Answer, Call, StepResult, text_of

Policy = Generator[Call | Answer, StepResult, None]
Citing = Callable[[Sequence[str], Sequence[str]], list[str]]
"""Returns citations, given the ids of pages and their titles."""

_CITINGS: Final[Mapping[str, Citing]] = {
    "ids in brackets": lambda codes, titles: [f"[{code}]" for code in codes],
    "titles": lambda codes, titles: list(titles),
    "ids in another order, each twice": lambda codes, titles: [*reversed(codes), *codes],
    "ids with titles": lambda codes, titles: [f"[{code}] {title}" for code, title in zip(codes, titles, strict=True)],
}


def policies(solution: str, form: AnswerForm, evidence: Sequence[Sequence[str]]) -> Mapping[str, Policy]:
    """Return the policies by what is different in them.

    Args:
        solution: the right answer.
        form: what the answer is.
        evidence: for each needed fact, the titles of the pages that state it.
    """
    answers = {
        "a sentence": f"The answer is {solution}.", "bold": f"**{solution}**", "a box": f"\\boxed{{{solution}}}",
        "quotes": f"“{solution}”", **_formatted(solution, form),
    }  # fmt: skip
    titles = [need[0] for need in evidence]
    found = {f"the answer as {name}": _submitted(text, titles, lambda codes, _: list(codes))
             for name, text in answers.items()}  # fmt: skip
    return found | {f"citations as {name}": _submitted(solution, titles, cite) for name, cite in _CITINGS.items()}


def _formatted(solution: str, form: AnswerForm) -> dict[str, str]:
    if form == "number":
        return {"a number with separators": f"{int(solution):,}", "a decimal": f"{solution}.0"}
    if form == "year":
        return {"a year in words": f"in the year {solution}"}
    if form == "date":
        year, month, day = str(canonical(solution, form)).split("-")
        iso = f"{int(year):04d}-{int(month):02d}-{int(day):02d}"
        return {"an ISO date": iso, "a date with the month first": f"{MONTHS[int(month) - 1]} {day}, {year}"}
    return {"a name in lower case": solution.lower()}


def _submitted(answer: str, titles: Sequence[str], cite: Citing) -> Policy:
    """Find and open the proof, and submit an answer with citations."""
    codes = []
    for title in titles:
        result = yield Call("search", {"query": title})
        codes.append(code_of(text_of(result.content), title))
        yield Call("open", {"page": codes[-1]})
    yield Call("submit", {"answer": answer, "citations": cite(codes, titles)[:10]})
