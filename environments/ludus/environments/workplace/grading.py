"""Compares the changes of an episode with those that a goal wants: a checklist, void after anything unexpected.

Each wanted change is some items of the checklist: that the row exists, and each of its columns; of a free text, each
fact. Mails report the work, so they count only once all other changes are there. The final answer and the keeping of
the rules are items, too, but those of `done`, of refusals and of rules count only once all wanted changes are there,
and those of rules in a task without changes only with the right answer. A
change that is not wanted, a broken rule, and a text without any of its facts or stuffed with others void the whole
checklist, so that trying everything is worth nothing. A stray fact costs the items of its own text only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from ludus.environments.workplace.facts import LISTS, facts_of
from ludus.environments.workplace.goals import DONE, AnyOf, Delete, Expected, Facts, Goal, Insert, Update, Want
from ludus.environments.workplace.violations import broken_rules
from ludus.environments.workplace.world.store import Change, Row, Store
from ludus.server import stated_answers

_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "mails": {"cc": "", "forward_of": ""},
    "deals": {"stage": "lead", "discount": 0},
    "expenses": {"status": "pending"},
    "leaves": {"status": "pending"},
}
"""The columns of new rows that must have these values unless the goal says otherwise."""
_STRAYS: Final = 3
"""The facts of a kind, besides those wanted, up to which a text is only wrong; with more, it is stuffed."""
_LIST_STRAYS: Final = 1
"""The same for codes, products and other words of short lists."""
_ALL_STRAYS: Final = 12
"""The same for facts of all kinds together."""


@dataclass(slots=True)
class Item:
    """An item of the checklist."""

    name: str
    met: bool


@dataclass(slots=True)
class Outcome:
    """The checklist of an episode.

    Attributes:
        changes: the items of the wanted changes.
        answer: whether the final answer counts.
        rules: for each rule that the task tests, whether it was kept and the wanted changes are there.
        unexpected: what voids the checklist, in words.
        answer_weight: how many items the answer is worth.
    """

    changes: list[Item] = field(default_factory=list)
    answer: bool = False
    rules: list[Item] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    answer_weight: int = 1

    @property
    def items(self) -> int:
        """The number of items, each weighted."""
        return len(self.changes) + self.answer_weight + len(self.rules)

    @property
    def met(self) -> int:
        """The number of items that are met; none if there was anything unexpected."""
        if self.unexpected:
            return 0
        return sum(one.met for one in (*self.changes, *self.rules)) + self.answer_weight * self.answer


@dataclass(slots=True)
class _Grader:
    goal: Goal
    store: Store
    outcome: Outcome
    names: frozenset[str]
    today: str

    def insert(self, number: int, wanted: Insert, rows: list[Row]) -> None:
        fits = [row for row in rows if all(self.value(row.get(name), want) for name, want in wanted.key.items())]
        scored = [(self.columns(number, wanted, row), row) for row in fits]
        if not scored:
            names = [f"{number} {wanted.table}", *self.item_names(number, wanted)]
            self.outcome.changes += [Item(name, False) for name in names]
            return
        items, row = max(scored, key=lambda one: sum(item.met for item in one[0]))
        rows.remove(row)
        free = {**wanted.key, **wanted.wants}
        for name, value in _DEFAULTS.get(wanted.table, {}).items():
            if name not in free and row[name] != value:
                self.outcome.unexpected.append(f"{wanted.table}.{name} of {row['id']}")
        texts = {name: want for name, want in wanted.wants.items() if isinstance(want, Facts)}
        empty = any(not any(self.stated(str(row.get(name, "")), want)) for name, want in texts.items())
        if empty:
            self.outcome.unexpected.append(f"{wanted.table} {row['id']} without the facts")
        lacking = any(not any(one.met for one in items if f".{name}#" in one.name) for name in texts)
        items = [Item(item.name, item.met and not lacking) for item in items]
        self.outcome.changes += [Item(f"{number} {wanted.table}", not lacking), *items]

    def item_names(self, number: int, wanted: Insert | Update) -> list[str]:
        names = []
        for name, want in wanted.wants.items():
            facts = range(1, len(want.needs) + 1) if isinstance(want, Facts) else ()
            names += [f"{number} {wanted.table}.{name}#{fact}" for fact in facts] or [f"{number} {wanted.table}.{name}"]
        return names

    def columns(self, number: int, wanted: Insert | Update, row: Row) -> list[Item]:
        met: list[bool] = []
        answered = self.store.get("mails", row["reply_to"]) if row.get("reply_to") else None
        origin = f"{answered['subject']} {answered['body']}" if answered else ""
        origin += " ".join(str(value) for name, value in row.items() if name not in wanted.wants)
        for name, want in wanted.wants.items():
            if isinstance(want, Facts):
                met += self.facts(str(row.get(name, "")), want, row["id"], origin)
            else:
                met.append(self.value(row.get(name), want))
        return [Item(name, one) for name, one in zip(self.item_names(number, wanted), met, strict=True)]

    def update(self, number: int, wanted: Update, changes: dict[tuple[str, str], Change]) -> None:
        change = changes.pop((wanted.table, wanted.id), None)
        if change is None or change.before is None or change.after is None:
            self.outcome.changes += [Item(name, False) for name in self.item_names(number, wanted)]
            if change is not None:
                self.outcome.unexpected.append(f"{wanted.table} {wanted.id} is deleted")
            return
        before, after = change.before, change.after
        for name in after:
            if before[name] != after[name] and name not in wanted.wants:
                self.outcome.unexpected.append(f"{wanted.table}.{name} of {wanted.id}")
        items = self.columns(number, wanted, after)
        if wanted.strict and not all(one.met for one in items):
            self.outcome.unexpected.append(f"a wrong decision on {wanted.id}")
        self.outcome.changes += items

    def value(self, found: object, want: Want) -> bool:
        if isinstance(want, AnyOf):
            return any(self.value(found, one) for one in want.values)
        if isinstance(want, Facts):
            return all(self.facts(str(found), want, ""))
        return _plain(str(found)) == _plain(str(want))

    def facts(self, text: str, want: Facts, id: str, origin: str = "") -> list[bool]:
        """Return which facts a text has; none with stray facts of the same kind. Many of them void the checklist.

        Facts of the request, of the mail that a reply answers, of the other columns of the row, and about the employee
        are no strays.
        """
        me = self.goal.me
        known = f"{self.goal.request} {self.goal.context} {origin} {me.id} {me.email} {me.phone} {self.today}"
        known += f" {self.today[:4]}"
        found, allowed = self.kinds(text), self.kinds(known)
        if any(
            fact in found.get(kind, ())
            for avoid in want.avoids
            for kind, facts in self.kinds(avoid).items()
            for fact in facts
        ):
            self.outcome.unexpected.append(f"a fact that must not be in {id}")
            return [False] * len(want.needs)
        needed = [self.kinds(need) for need in want.needs]
        stray = False
        expected = {fact for kinds in (allowed, *needed) for facts in kinds.values() for fact in facts}
        if len({fact for facts in found.values() for fact in facts} - expected) > _ALL_STRAYS:
            self.outcome.unexpected.append(f"{id} is stuffed with facts")
        for kind in {kind for one in needed for kind in one}:
            wanted = {fact for one in needed for fact in one.get(kind, ())}
            extra = found.get(kind, set()) - wanted - allowed.get(kind, set())
            stray = stray or bool(extra)
            if len(extra) > (_LIST_STRAYS if kind in LISTS else _STRAYS):
                self.outcome.unexpected.append(f"{id} is stuffed with facts")
        return [False] * len(want.needs) if stray else self.stated(text, want)

    def stated(self, text: str, want: Facts) -> list[bool]:
        """Return which facts a text has, whatever else it has."""
        found, plain = self.kinds(text), _plain(text)
        needed = [self.kinds(need) for need in want.needs]
        return [
            all(facts <= found.get(kind, set()) for kind, facts in kinds.items()) if kinds else _has(plain, need)
            for need, kinds in zip(want.needs, needed, strict=True)
        ]

    def kinds(self, text: str) -> dict[str, set[str]]:
        """Return the facts in a text by their kinds."""
        return facts_of(text, self.names)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _has(plain: str, need: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(_plain(need))}(?!\w)", plain) is not None


def evaluate(goal: Goal, store: Store, answer: str, today: date, domain: str) -> Outcome:
    """Return the checklist of an episode.

    Args:
        goal: the task.
        store: the state at the end.
        answer: the final message.
        today: the date.
        domain: the domain of the company's addresses.
    """
    outcome = Outcome(answer_weight=1 if goal.answer == DONE or goal.answer.startswith("refused ") else 2)
    changes = _graded(store, store.changes())
    grader = _Grader(goal, store, outcome, frozenset(_names(store, goal)), today.isoformat())
    added: dict[str, list[Row]] = {}
    others: dict[tuple[str, str], Change] = {}
    for change in changes:
        if change.before is None and change.after is not None:
            added.setdefault(change.table, []).append(change.after)
        else:
            others[change.table, change.id] = change
    for number, wanted in enumerate(goal.changes, 1):
        _match(grader, number, wanted, added, others)
    _gate_mails(goal, outcome)
    outcome.unexpected += [f"new {table} {row['id']}" for table, rows in added.items() for row in rows]
    outcome.unexpected += [f"{table} {id}" for table, id in others]
    outcome.unexpected += [f"broken rule {code}" for code in broken_rules(store, changes, goal.me.id, today, domain)]
    complete = all(one.met for one in outcome.changes)
    said = read_answer(answer)
    gated = goal.changes and outcome.answer_weight == 1
    outcome.answer = said is not None and same_answer(said, goal.answer) and (complete or not gated)
    kept = complete and not outcome.unexpected and (bool(goal.changes) or outcome.answer)
    outcome.rules = [Item(code, kept) for code in goal.rules]
    return outcome


def _gate_mails(goal: Goal, outcome: Outcome) -> None:
    """Leave mails out as long as other changes lack something: they report work that is not there."""
    numbers = {str(number) for number, change in enumerate(goal.changes, 1) if change.table == "mails"}
    mails = [item for item in outcome.changes if item.name.split()[0] in numbers]
    if not all(item.met for item in outcome.changes if item not in mails):
        for item in mails:
            item.met = False


def _match(
    grader: _Grader, number: int, wanted: Expected, added: dict[str, list[Row]], others: dict[tuple[str, str], Change]
) -> None:
    if isinstance(wanted, Insert):
        grader.insert(number, wanted, added.get(wanted.table, []))
    elif isinstance(wanted, Update):
        grader.update(number, wanted, others)
    else:
        _delete(grader, number, wanted, others)


def _delete(grader: _Grader, number: int, wanted: Delete, others: dict[tuple[str, str], Change]) -> None:
    change = others.get((wanted.table, wanted.id))
    met = change is not None and change.after is None
    if met:
        del others[wanted.table, wanted.id]
    grader.outcome.changes.append(Item(f"{number} {wanted.table} deleted", met))


def _graded(store: Store, changes: Sequence[Change]) -> list[Change]:
    """Return the changes without those that follow from others: copies in mailboxes, invitations, the audit log."""
    new = {one.id for one in changes if one.before is None}
    found = []
    for change in changes:
        row = change.after or change.before
        assert row is not None
        if change.table == "audit" and change.before is None and change.after is not None:
            continue
        if (
            change.table == "mailboxes"
            and change.before is None
            and row["mail"] in new
            and row["folder"] in ("inbox", "sent")
        ):
            continue
        if change.table == "attendees" and change.before is None and row["event"] in new:
            continue
        if change.table == "events" and change.before is None and change.after is not None:
            people = store.rows("SELECT employee FROM attendees WHERE event = ? ORDER BY employee", change.id)
            change = change._replace(
                after={**change.after, "people": ", ".join(person["employee"] for person in people)}
            )
        found.append(change)
    return found


def _names(store: Store, goal: Goal) -> list[str]:
    """Return the names of all customers if the goal wants one of them in a text; else none."""
    needs = [
        need for change in goal.changes if not isinstance(change, Delete)
        for want in change.wants.values() if isinstance(want, Facts) for need in want.needs
    ]  # fmt: skip
    if not any(" " in need and need[0].isalpha() for need in needs):
        return []
    return [row["name"] for row in store.rows("SELECT name FROM customers")]


def read_answer(message: str) -> str | None:
    """Return what the last line of the form `Answer: …` says; None if there is none, or if several differ."""
    answers = {_plain(stated) for stated in stated_answers(message)}
    return answers.pop() if len(answers) == 1 else None


def same_answer(said: str, wanted: str) -> bool:
    """Return whether an answer is the wanted one: values in any order, numbers with or without separators and units.

    A refusal may have other words, but only the wanted code and facts.
    """
    if wanted.startswith("refused "):
        return said.startswith("refused") and facts_of(said) == facts_of(wanted)
    parts = [_normal(one) for one in re.sub(r"(?<=\d),(?=\d{3}\b)", "", said).split(",")]
    return sorted(parts) == sorted(_normal(one) for one in wanted.split(","))


def _normal(text: str) -> str:
    plain = _plain(text).strip(" .\"'“”")
    number = re.fullmatch(r"(?:€\s?|eur\s)?(\d+)(?:\.0+)?(?:\s?(?:€|eur|euros?))?", plain)
    return number[1].lstrip("0") or "0" if number else plain
