"""Paraphrased right answers, and wrong ones, of the environments that grade text: read from data and filled in.

Each file under `tests/environments/paraphrases` has templates, one a line, with slots for the facts of a task. The
templates were written before the graders that they test, and are not changed to please them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from ludus.protocol import Answer, Call, StepResult

FOLDER: Final = Path(__file__).parents[1] / "environments" / "paraphrases"
Policy = Generator[Call | Answer, StepResult, None]


def entries(name: str) -> list[dict[str, Any]]:
    """Return the templates of a file."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


def rewritten(policy: Policy, change: Callable[[Call], Call]) -> Policy:
    """Play a policy with other arguments of its calls."""
    try:
        action = next(policy)
        while True:
            action = policy.send((yield change(action) if isinstance(action, Call) else action))
    except StopIteration:
        return


def filled(text: str, slots: Mapping[str, str]) -> str:
    """Return a template with its slots filled, in one pass; braces that are no slot stay."""
    return re.sub(r"\{(\w+)\}", lambda hit: slots.get(hit[1], hit[0]), text)


# Mails and other texts of employees


def written(entry: Mapping[str, Any], text: str, facts: Sequence[str], slots: Mapping[str, str]) -> str:
    """Return a text that states some facts as a template has it.

    Args:
        entry: the template.
        text: the text of the oracle.
        facts: the facts that the text must state.
        slots: the values of the other slots.
    """
    shapes = [formatted(fact, entry) for fact in facts]
    lines = [
        entry.get("item", "{fact}").replace("{n}", str(place)).replace("{fact}", shape)
        for place, shape in enumerate(shapes, 1)
    ]
    joined = entry.get("join", "\n" if "item" in entry else ", ").join(lines)
    return filled(entry["text"], {**slots, "text": text, "items": joined, "count": str(len(facts))})


def formatted(fact: str, entry: Mapping[str, Any]) -> str:
    """Return a fact with the format that a template has for dates or amounts."""
    if "date" in entry and re.fullmatch(r"\d{4}-\d\d-\d\d", fact):
        return dated(date.fromisoformat(fact), entry["date"])
    return f"{int(fact):,}" if "amount" in entry and fact.isdigit() else fact


def dated(day: date, form: str) -> str:
    """Return a date in a format of `strftime`, with `{th}` for the ending of an ordinal number."""
    ending = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    return day.strftime(form).replace("{th}", ending)


WORDS: Final[Sequence[tuple[str, ...]]] = (
    ("MEETING_HOURS", "DOUBLE_BOOKING", "SALARY_CONFIDENTIAL", "DISCOUNT_LIMIT", "EXPENSE_LIMIT", "RETENTION",
     "EXTERNAL_SHARING", "UNVERIFIED_SENDER", "LEAVE_BALANCE"),
    ("Anchor", "Compass", "Lantern", "Rudder", "Sextant"), ("North", "East", "South", "West"),
    ("standard", "silver", "gold"), ("Aspen", "Cypress", "Hickory", "Linden", "Magnolia", "Sequoia"),
)  # fmt: skip


OTHER_WORD: Final = "something else"
"""What replaces a word that has no others of its kind."""


def other_fact(fact: str, names: Sequence[str] = ()) -> str:
    """Return another fact of the same kind; `names` are those of customers."""
    for words in (*WORDS, names):
        if fact in words:
            return words[(words.index(fact) + 1) % len(words)]
    if re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", fact) and names:
        return names[0]
    if re.fullmatch(r"\d{4}-\d\d-\d\d", fact):
        return (date.fromisoformat(fact) + timedelta(days=1)).isoformat()
    if re.fullmatch(r"\d\d:\d\d", fact):
        return f"{(int(fact[:2]) + 1) % 24:02d}{fact[2:]}"
    if numbers := list(re.finditer(r"\d+", fact)):
        last = numbers[-1]
        return f"{fact[: last.start()]}{int(last[0]) + 7:0{len(last[0])}d}{fact[last.end() :]}"
    return OTHER_WORD


def spoiled(
    flaw: str, text: str, facts: Sequence[str], names: Sequence[str], rng: random.Random
) -> tuple[str, list[str]]:
    """Return the oracle's text and its facts with a flaw."""
    place = rng.randrange(len(facts))
    fact, other = facts[place], other_fact(facts[place], names)
    if flaw == "left out" or (other == OTHER_WORD and flaw in ("either", "guesses")):
        kept = [*facts[:place], *facts[place + 1 :]]
        return text.replace(fact, "it"), kept or ["no details"]
    guesses = [other, other_fact(other, names), other_fact(other_fact(other, names), names)]
    new = {"changed": other, "either": f"{fact} or {other}", "guesses": ", ".join([fact, *guesses])}.get(flaw, fact)
    return text.replace(fact, new), [*facts[:place], new, *facts[place + 1 :]]


TEXTS: Final = {
    "mail_send": "body", "mail_reply": "body", "mail_forward": "note", "files_create": "body",
    "ticket_create": "description", "ticket_comment": "body", "crm_log_activity": "note",
}  # fmt: skip
"""The parameter of each tool that takes a free text."""


def office_text(
    entry: Mapping[str, Any], goal: Any, slots: Mapping[str, str], names: Sequence[str], rng: random.Random
) -> Callable[[Call], Call]:
    """Return what replaces the oracle's texts for a goal of `workplace`: those with facts, by a template.

    Args:
        entry: the template.
        goal: the goal.
        slots: the values of its slots, besides those about facts.
        names: the names of customers, for wrong facts.
        rng: draws the fact that is wrong.
    """
    wanted = [
        tuple(want.needs) for change in goal.changes for want in getattr(change, "wants", {}).values()
        if hasattr(want, "needs")
    ]  # fmt: skip

    def change(call: Call) -> Call:
        parameter = TEXTS.get(call.tool)
        text = str(call.arguments.get(parameter, "")) if parameter else ""
        facts = next((needs for needs in wanted if all(need.lower() in text.lower() for need in needs)), None)
        if not text or facts is None or parameter is None:
            return call
        new_text, new_facts = (
            spoiled(entry["flaw"], text, facts, names, rng) if "flaw" in entry else (text, list(facts))
        )
        own = {**slots, "to": _first_name(call.arguments.get("to"))}
        return Call(call.tool, {**call.arguments, parameter: written(entry, new_text, new_facts, own)})

    return change


def _first_name(addresses: Any) -> str:
    return str(addresses[0]).split(".")[0].capitalize() if addresses else "there"


# Messages to the user of a help desk


class Clerk:
    """The oracle of `support_desk` in other words.

    Args:
        rng: chooses the words.
        wrong: an entry of the wrong answers, which replaces a part of the words; None for right ones.
    """

    def __init__(self, rng: random.Random, wrong: Mapping[str, Any] | None = None) -> None:
        self._rng, self._wrong = rng, wrong
        self._texts: dict[str, list[str]] = {}
        for entry in entries("support_desk"):
            self._texts.setdefault(entry["role"], []).extend(entry.get("texts", ()))
        self._style = rng.choice(next(one["styles"] for one in entries("support_desk") if "styles" in one))

    def text(self, role: str, **slots: str) -> str:
        """Return a message of a role."""
        return filled(self._rng.choice(self._texts[role]), slots)

    def _instead(self, part: str, **slots: str) -> str | None:
        """Return what is said instead in a part that the wrong answers are about."""
        if self._wrong is None or self._wrong["part"] != part:
            return None
        return filled(self._rng.choice(self._wrong["texts"]), slots)

    @property
    def asks_again(self) -> bool:
        """Whether the clerk asks once more for what is missing of the identity."""
        return self._wrong is None or self._wrong["part"] != "identity"

    def identity(self) -> str:
        """Return the message that asks for the identity."""
        return self._instead("identity") or self.text("identity")

    def again(self, name: str) -> str:
        """Return the message that asks for a part of the identity once more."""
        return self.text(f"again {name}")

    def questions(self, slots: Sequence[str]) -> str:
        """Return a message with questions about one or two slots."""
        if (instead := self._instead("questions")) is not None:
            return instead
        asked = [self.text(f"ask {slot}") for slot in slots]
        return self.text("join", a=asked[0], b=asked[1]) if len(asked) == 2 else self.text("single", a=asked[0])

    def proposal(self, do: str, id: str, values: Mapping[str, Any]) -> str:
        """Return a message that asks for consent to a change."""
        named = {name.replace("_", " "): self.shape(value) for name, value in values.items()}
        details = ", ".join(f"{name}: {value}" for name, value in named.items())
        other = ", ".join(f"{name}: {self._other(value)}" for name, value in values.items())
        slots = {
            "do": do, "id": id, "details": details, "other": other,
            "lines": "\n".join(f"- {name.capitalize()}: {value}" for name, value in named.items()),
            "rows": "\n".join(f"| {name} | {value} |" for name, value in named.items()),
        }  # fmt: skip
        return self._instead("proposal", **slots) or self.text("proposal", **slots)

    def announcement(self, outcome: str, team: str, figures: Sequence[Any]) -> str:
        """Return the message with what the user must learn."""
        slots = {
            "figures": " and ".join(self.shape(one) for one in figures), "team": team,
            "other": " and ".join(self._other(one) for one in figures),
        }  # fmt: skip
        return self._instead("announcement", **slots) or self.text(outcome, **slots)

    def shape(self, value: Any) -> str:
        """Return a value in this clerk's format."""
        text = str(value)
        if self._style == "long date" and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return dated(date.fromisoformat(text), "%B %-d, %Y")
        if self._style == "money" and text.isdigit() and int(text) > 15:
            return f"{int(text):,}"
        words = "zero one two three four five six seven eight nine ten eleven twelve".split()
        return words[int(text)] if self._style == "word" and text.isdigit() and int(text) < len(words) else text

    @staticmethod
    def _other(value: Any) -> str:
        return str(value + 1) if isinstance(value, int) else other_fact(str(value))


# Answers and citations of `search`

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def answers_of(form: str, solution: str, other: str, name: str = "search") -> list[str]:
    """Return the answers of a file for a solution of a form."""
    texts = [text for entry in entries(name) if entry["form"] in ("any", form) for text in entry.get("texts", ())]
    slots = {"a": solution, "other": other, "half": solution[: len(solution) // 2] or "0", "upper": solution.upper(),
             "lower": solution.lower()}  # fmt: skip
    if form == "number":
        number = int(solution)
        grouped = f"{number:,}"
        words = "zero one two three four five six seven eight nine ten eleven twelve".split()
        slots |= {"comma": grouped, "space": grouped.replace(",", " "), "thin": grouped.replace(",", "\u202f"),
                  "underscore": grouped.replace(",", "_"),
                  "word": words[number] if number < len(words) else solution}  # fmt: skip
    if form == "date":
        day, month, year = solution.split()
        found = date(int(year), MONTHS.index(month) + 1, int(day))
        slots |= {
            "day": day, "dd": f"{found.day:02d}", "month": month, "MONTH": month.upper(), "mon": month[:3],
            "year": year, "iso": found.isoformat(), "iso_slash": f"{found:%Y/%m/%d}", "weekday": f"{found:%A}",
            "th": dated(found, "{th}"),
        }  # fmt: skip
    return [filled(text, slots) for text in texts]


def citations_of(style: str, rng: random.Random, codes: Sequence[str], titles: Sequence[str]) -> list[str]:
    """Return the citations of some pages in a style."""
    pairs = list(zip(codes, titles, strict=True))
    return {
        "codes": list(codes), "titles": list(titles), "reversed": list(reversed(codes)),
        "bracketed codes": [f"[{code}]" for code in codes], "upper codes": [code.upper() for code in codes],
        "spaced codes": [f" {code} " for code in codes], "doubled": [*codes, *codes][:10],
        "titles in brackets": [f"[[{title}]]" for title in titles],
        "mixed": [pair[place % 2] for place, pair in enumerate(pairs)],
        "shuffled": rng.sample(list(codes), len(codes)), "quoted titles": [f'"{title}"' for title in titles],
        "codes with titles": [f"[{code}] {title}" for code, title in pairs],
    }[style]  # fmt: skip


def chosen(texts: Iterable[str], count: int, rng: random.Random) -> list[str]:
    """Return some of some texts, at most all of them."""
    known = list(texts)
    return rng.sample(known, min(count, len(known)))
