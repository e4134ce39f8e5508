"""A check for right answers that a verifier refuses because they are written a little differently.

The oracle's final answer is played again in usual forms: with a trailing period, in bold, after `Answer:`, boxed, in a
sentence, with thousands separators, as `1.0`, in another case, in another order. Each must earn what the oracle earned.
A prompt may demand a form; forms that break a demand are left out: see `allowed_forms`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Final, Literal

from ludus.protocol.actions import Answer, Call
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Script, prompt_of
from ludus.validation.shortcuts.submission import final_text, takes_text, with_final_text

suite = Suite(scored=True)

LONGEST: Final = 120
"""The most characters of an answer that is written in other forms; longer ones are texts or programs."""

TASKS: Final = 4
"""The number of tasks whose answers are written in other forms."""

REASONING: Final = "I go through it in 2 steps. First I read what is given, then I work it out and check it twice."
"""What stands before an answer, as models write it."""

Freedom = Literal["frame", "mark", "value", "fraction", "case", "order"]
"""What a form changes: the words around the answer, marks on it, the notation of its value, its case, its order."""

_EXACT: Final = re.compile(r"\b(?:exact(?:ly)?|verbatim|precisely|character|byte|literal(?:ly)?|format|regex)\b", re.I)
_ALONE: Final = re.compile(
    r"\b(?:only|just|nothing (?:else|but|more)|no other|without (?:any|other|an)|alone|single|one)\b", re.I
)
_CASE: Final = re.compile(
    r"\b(?:(?:lower|upper)[- ]?case|capital\w*|case[- ]sensitive|small letters|block letters)\b", re.I
)
_ORDER: Final = re.compile(
    r"\b(?:order\w*|sort\w*|rank\w*|sequen\w*|ascending|descending|alphabet\w*|first|last|then|next|path|route|steps?|"
    r"schedule|from .* to|left to right|before|after|permutation|coordinates?|pair)\b", re.I,
)  # fmt: skip
_ANY_ORDER: Final = re.compile(r"\b(?:any order|order does not matter|in whatever order|regardless of order)\b", re.I)
_LABELED: Final = re.compile(r"(?P<label>[A-Za-z][\w ]{0,20}:\s*)(?P<value>\S.*)")
_NO_PROSE: Final = re.compile(r"[{}\[\]<>`|=;\\$]|\w\(")
_FRACTION: Final = re.compile(r"(-?\d{1,6})/(\d{1,6})")
_LOWEST: Final = re.compile(r"\b(?:lowest|simpl\w+|reduced?|irreducible|fraction|p/q)\b", re.I)
_TIME: Final = re.compile(r"(0?)(\d):(\d\d)")
_WHOLE: Final = re.compile(r"-?\d+")
_WORDS: Final = re.compile(r"[A-Za-z]{2,}(?:[ -][A-Za-z]{2,})*|[A-Za-z]")


def allowed_forms(prompt: str) -> frozenset[Freedom]:
    """Return what the answer's form may change without breaking a demand of the prompt."""
    free: set[Freedom] = {"frame", "mark", "value", "case"}
    if not _LOWEST.search(prompt):
        free.add("fraction")
    if _ANY_ORDER.search(prompt) or not _ORDER.search(prompt):
        free.add("order")
    if _ALONE.search(prompt):
        free.discard("frame")
    if _EXACT.search(prompt):
        free -= {"frame", "mark", "value", "fraction", "case"}
    if _CASE.search(prompt):
        free.discard("case")
    return frozenset(free)


def other_forms(answer: str) -> Iterator[tuple[Freedom, str, str]]:
    """Yield usual ways to write an answer: what the form changes, its name, and the text.

    Only the last line is written differently, and behind a label (`Answer: 42`) only the value.
    """
    if len(answer) <= LONGEST and not answer.lstrip().startswith(("{", "[", "```")):
        yield "frame", "after reasoning", f"{REASONING}\n\n{answer}"
    *before, line = answer.rstrip().split("\n")
    labeled = _LABELED.fullmatch(line.strip())
    label, value = (labeled["label"], labeled["value"]) if labeled else ("", line.strip())
    if not value or len(value) > LONGEST or _NO_PROSE.search(value):
        return

    def whole(text: str) -> str:
        return "\n".join([*before, text])

    if not value.endswith((".", "!", "?")):
        yield "mark", "with a period", whole(f"{label}{value}.")
    yield "mark", "in bold", whole(f"**{label}{value}**" if label else f"**{value}**")
    yield "mark", "between blank lines", f"\n\n{answer.strip()}\n\n"
    if not label and not before:
        yield "frame", "after `Answer:`", f"Answer: {value}"
        yield "frame", "in a sentence", f"The answer is {value}."
        if _WHOLE.fullmatch(value):
            yield "frame", "boxed", f"The answer is \\boxed{{{value}}}."
    if fraction := _FRACTION.fullmatch(value):
        top, bottom = int(fraction[1]), int(fraction[2])
        yield "fraction", "not in lowest terms", whole(f"{label}{3 * top}/{3 * bottom}")
        if bottom and 10**6 * top % bottom == 0:
            yield "fraction", "as a decimal", whole(f"{label}{top / bottom:.10g}")
    if _WHOLE.fullmatch(value):
        yield "value", "as `1.0`", whole(f"{label}{value}.0")
        if abs(int(value)) >= 1000 and not value.lstrip("-").startswith("0"):
            yield "value", "with thousands separators", whole(f"{label}{int(value):,}")
    elif _WORDS.fullmatch(value):
        for fromkey in dict.fromkeys((value.lower(), value.upper(), value.capitalize())):
            if fromkey != value:
                yield "case", f"as {fromkey!r}", whole(label + fromkey)
    if time := _TIME.fullmatch(value):
        yield "value", "with another zero before the hour", whole(f"{label}{'' if time[1] else '0'}{time[2]}:{time[3]}")
    items = [item.strip() for item in value.split(",")]
    if len(items) > 1 and all(items) and not all(map(_WHOLE.fullmatch, items[1:])):
        yield "order", "in another order", whole(label + ", ".join(reversed(items)))


@suite.check("reformatting", "The right answer earns the same in other usual forms", "semantic.oracle_max")
async def reformatting(target: ValidationTarget) -> AsyncIterator[Problem]:
    worse: defaultdict[Freedom, dict[str, Evidence]] = defaultdict(dict)
    tried = 0
    for play in [play for play in await target.played("oracle") if play.failure is None and play.value is not None][
        :TASKS
    ]:
        script = target.script(play)
        text = final_text(script.actions)
        if text is None or not takes_text(script.actions[-1]) or (play.value or 0.0) <= target.random_baseline:
            continue
        message = isinstance(script.actions[-1], Answer)
        if not message and (_is_made_often(script) or "\n" in text.strip()):
            continue  # a move, a program or a document, and no short answer
        for kind, name, form in other_forms(text):
            # An argument of a tool is a value, without words around it.
            if kind not in allowed_forms(prompt_of(play)) or (not message and kind in ("frame", "mark")):
                continue
            ending = (*script.actions[:-1], with_final_text(script.actions[-1], form))
            changed = Script(script.split, script.task, script.seed, ending, "reformatting")
            value = await target.reward(changed)
            tried += value is not None
            if value is not None and value < (play.value or 0.0) - target.tolerance:
                worse[kind].setdefault(name, evidence_of(changed, f"{name} ({short(form, 60)!r}): earned {value:g}"))
    if not tried:
        raise NotApplicable("the oracle ends with no short answer that can be written in another form")
    for kind, examples in worse.items():
        tell = warning if kind in ("case", "order") else error
        yield tell(
            "the right answer earns less in another usual form: read it as a person would, or let the prompt say "
            "exactly which form counts",
            examples.values(),
        )


def _is_made_often(script: Script) -> bool:
    final = script.actions[-1]
    return (
        sum(
            isinstance(action, Call) and isinstance(final, Call) and action.tool == final.tool
            for action in script.actions
        )
        > 1
    )
