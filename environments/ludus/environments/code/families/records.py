"""Filter, group and summarize a list of dictionaries."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from ludus.environments.code.families.inputs import CITIES, NAMES
from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty


class _Domain(NamedTuple):
    word: str
    text: str
    names: tuple[str, tuple[str, ...]]
    groups: tuple[str, tuple[str, ...]]
    first: str
    second: str


DOMAINS: Final = (
    _Domain("orders", "orders", ("customer", NAMES), ("city", CITIES), "price", "count"),
    _Domain("employees", "employees", ("name", NAMES), ("team", ("red", "blue", "green", "ops")), "salary", "age"),
    _Domain("matches", "matches of players", ("player", NAMES), ("game", ("chess", "go", "darts")), "score", "minutes"),
    _Domain("parcels", "parcels", ("sender", NAMES), ("target", CITIES), "weight", "distance"),
    _Domain("books", "books", ("author", NAMES), ("genre", ("crime", "poetry", "travel", "art")), "pages", "copies"),
    _Domain("readings", "readings of sensors", ("sensor", ("s1", "s2", "s3", "s4")), ("site", CITIES), "level", "noise"),
)  # fmt: skip


def filters(rng: random.Random, d: _Domain) -> list[Rule]:
    """Return rules that keep or change rows."""
    low, high, m = rng.randint(8, 18), rng.randint(25, 40), rng.randint(2, 3)
    one = rng.choice(d.groups[1])
    name, group, a, b = d.names[0], d.groups[0], d.first, d.second
    return [
        Rule("at-least", f"Keep the rows whose {a} is at least {low}.",
             f'rows = [row for row in rows if row["{a}"] >= {low}]'),
        Rule("at-most", f"Keep the rows whose {b} is at most {high}.",
             f'rows = [row for row in rows if row["{b}"] <= {high}]'),
        Rule("not-group", f'Remove the rows whose {group} is "{one}".',
             f'rows = [row for row in rows if row["{group}"] != "{one}"]'),
        Rule("unique", f"Of rows with the same {name} and {group}, keep only the first.",
             f'kept = {{}}\nfor row in rows:\n    kept.setdefault((row["{name}"], row["{group}"]), row)\n'
             "rows = list(kept.values())"),
        Rule("latest", f"Of rows with the same {name}, keep only the last, at its own place.",
             f'last = {{row["{name}"]: place for place, row in enumerate(rows)}}\n'
             f'rows = [row for place, row in enumerate(rows) if last[row["{name}"]] == place]'),
        Rule("product", f"The {a} of each row becomes its {a} times its {b}.",
             f'rows = [{{**row, "{a}": row["{a}"] * row["{b}"]}} for row in rows]'),
        Rule("difference", f"The {a} of each row becomes its {a} minus its {b}.",
             f'rows = [{{**row, "{a}": row["{a}"] - row["{b}"]}} for row in rows]'),
        Rule("cap", f"If the {b} of a row is greater than {high}, it becomes {high}.",
             f'rows = [{{**row, "{b}": min(row["{b}"], {high})}} for row in rows]'),
        Rule("above-average", f"Keep the rows whose {a} is greater than the average {a} of all rows at this point.",
             f'total = sum(row["{a}"] for row in rows)\n'
             f'rows = [row for row in rows if row["{a}"] * len(rows) > total]'),
        Rule("common", f"Keep the rows whose {group} occurs in at least {m} rows at this point.",
             f'groups = [row["{group}"] for row in rows]\n'
             f'rows = [row for row in rows if groups.count(row["{group}"]) >= {m}]'),
        Rule("top", f"Keep the {m + 3} rows with the greatest {b} (of equal ones, those that come first), in the order "
             "that they had.",
             f'best = sorted(range(len(rows)), key=lambda place: -rows[place]["{b}"])[:{m + 3}]\n'
             "rows = [rows[place] for place in sorted(best)]"),
    ]  # fmt: skip


def aggregates(rng: random.Random, d: _Domain) -> list[Rule]:
    """Return values of a group: the list `group` holds its rows."""
    a, b, name = d.first, d.second, d.names[0]
    return [
        Rule("sum", f"the sum of {a}", f'sum(row["{a}"] for row in group)'),
        Rule("count", "the number of rows", "len(group)"),
        Rule("max", f"the greatest {b}", f'max(row["{b}"] for row in group)'),
        Rule("spread", f"the greatest {a} minus the smallest {a}",
             f'max(row["{a}"] for row in group) - min(row["{a}"] for row in group)'),
        Rule("average", f"the average {b}, rounded down to an integer",
             f'sum(row["{b}"] for row in group) // len(group)'),
        Rule("distinct", f"the number of different values of {name}", f'len({{row["{name}"] for row in group}})'),
        Rule("names", f"the list of the different values of {name}, sorted alphabetically",
             f'sorted({{row["{name}"] for row in group}})'),
        Rule("best", f"the {name} of the row with the greatest {a} (the first of several)",
             f'max(group, key=lambda row: row["{a}"])["{name}"]'),
        Rule("ends", f"the {a} of the first row plus the {b} of the last row",
             f'group[0]["{a}"] + group[-1]["{b}"]'),
    ]  # fmt: skip


def plain(rng: random.Random, d: _Domain) -> list[Rule]:
    """Return results without groups."""
    a, b, name, group = d.first, d.second, d.names[0], d.groups[0]
    k = rng.randint(2, 4)
    return [
        Rule("list[str]:names", f"Return the list of {name} of the rows, sorted by {a}, the greatest first; rows with "
             f"equal {a} keep their order.",
             f'return [row["{name}"] for row in sorted(rows, key=lambda row: -row["{a}"])]'),
        Rule("list[list]:pairs", f"Return a list of pairs [{name}, {b}], sorted by {name} and then by {b}.",
             f'return sorted([row["{name}"], row["{b}"]] for row in rows)'),
        Rule("list[dict]:rows", f"Return the rows, sorted by {group} alphabetically; rows with equal {group} by {b}, "
             "the smallest first, and then in the order that they had.",
             f'return sorted(rows, key=lambda row: (row["{group}"], row["{b}"]))'),
        Rule("int:total", f"Return the sum of {a} over all rows, plus the number of rows times {k}.",
             f'return sum(row["{a}"] for row in rows) + {k} * len(rows)'),
        Rule("list[int]:running", f"Return the list of running totals of {a}, in the order of the rows.",
             f'total, totals = 0, []\nfor row in rows:\n    total += row["{a}"]\n    totals.append(total)\n'
             "return totals"),
        Rule("dict[str, int]:index", f"Return a dictionary from each {name} to the greatest {b} of its rows.",
             f'result = {{}}\nfor row in rows:\n    key = row["{name}"]\n'
             f'    result[key] = max(result.get(key, row["{b}"]), row["{b}"])\nreturn result'),
    ]  # fmt: skip


def _grouped(rng: random.Random, d: _Domain, difficulty: Difficulty, unique: bool) -> tuple[list[str], str, Rule]:
    """Return the rules, the code and the finish of a grouped result."""
    by = rng.choice((d.groups[0], d.groups[0], d.names[0]))
    count = 2 if difficulty == "hard" else 1
    values = pick_distinct(rng, [aggregate for aggregate in aggregates(rng, d) if by != d.names[0] or "names" not in aggregate.name
                                 and aggregate.name not in ("distinct", "best")], count, count)  # fmt: skip
    text = values[0].text if count == 1 else f"a list of two values: {values[0].text}, and {values[1].text}"
    code = values[0].code if count == 1 else f"[{values[0].code}, {values[1].code}]"
    build = (
        f'groups = {{}}\nfor row in rows:\n    groups.setdefault(row["{by}"], []).append(row)\n'
        f"values = {{key: {code} for key, group in groups.items()}}"
    )
    least, k = 2, rng.randint(1, 3)
    finishes = [
        Rule("dict[str, object]:dict", f"Return a dictionary from each {by} to its value.", "return values"),
        Rule("list[list]:sorted", f"Return a list of pairs [{by}, value], sorted by {by} alphabetically.",
             "return [[key, values[key]] for key in sorted(values)]"),
        Rule("dict[str, object]:large", f"Return a dictionary from each {by} that has at least {least} rows to its "
             "value.",
             f"return {{key: value for key, value in values.items() if len(groups[key]) >= {least}}}"),
    ]  # fmt: skip
    if values[0].name not in ("names", "best") and count == 1:
        finishes.append(
            Rule("list[str]:ranked", f"Return the list of the {k + 1} {by}s with the greatest values, the greatest "
                 "first; of equal values, in alphabetical order.",
                 f"return sorted(values, key=lambda key: (-values[key], key))[:{k + 1}]"))  # fmt: skip
    if unique:  # then each group of names has one row
        finishes = [one for one in finishes if not one.name.endswith("large")]
    finish = rng.choice(finishes)
    rules = [f"Group the rows by {by}. The value of a group is {text}.", finish.text]
    names = "+".join(value.name for value in values)
    return rules, build, Rule(f"{finish.name}:{by == d.names[0]}:{names}", finish.text, finish.code)


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    d = rng.choice(DOMAINS)
    counts = {"easy": (0, 1), "medium": (1, 2), "hard": (2, 4)}[difficulty]
    chosen = pick_distinct(rng, filters(rng, d), *counts)
    if rng.random() < 0.6:
        rules, build, finish = _grouped(rng, d, difficulty, any(rule.name == "latest" for rule in chosen))
    else:
        finish = rng.choice(plain(rng, d))
        rules, build = [finish.text], ""
    name = f"{rng.choice(('report', 'summarize', 'digest', 'analyze'))}_{d.word}"
    signature = f"def {name}(rows: list[dict[str, object]]) -> {finish.name.split(':')[0]}:"

    def row(rng: random.Random) -> dict[str, Any]:
        return {
            d.names[0]: rng.choice(d.names[1][:7]), d.groups[0]: rng.choice(d.groups[1][:5]),
            d.first: rng.randint(1, 50), d.second: rng.randint(1, 50),
        }  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[list[dict[str, Any]]]:
        rows = [row(rng) for _ in range(rng.randint(*((4, 5), (7, 12), (30, 50))[size]))]
        if size and rng.random() < 0.5:
            rows.append({**rng.choice(rows), d.first: rng.randint(1, 50)})
        return (rows,)

    fixed = random.Random(name)
    return Problem(
        key=key_of("records", *chosen, finish, *([] if build else ["plain"])),
        entry=name, signature=signature,
        intro=f'The rows are {d.text}: dictionaries with the keys "{d.names[0]}" and "{d.groups[0]}", which have '
        f'texts, and "{d.first}" and "{d.second}", which have integers. Follow these rules in order:',
        rules=(*(rule.text for rule in chosen), *rules),
        reference=function_source(signature, *(rule.code for rule in chosen), build, finish.code),
        edges=(([],), ([row(fixed)],), ([row(fixed) for _ in range(3)] * 2,)), sample=sample,
    )  # fmt: skip
