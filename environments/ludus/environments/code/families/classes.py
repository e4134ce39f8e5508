"""Write a class: a store with limited room, or an account book."""

from __future__ import annotations

import random
from typing import Any, Final

from ludus.environments.code.problem import Problem, Rule, key_of
from ludus.server import Difficulty


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    return (_store if rng.random() < 0.6 else _accounts)(rng, difficulty)


_OUT: Final = (
    Rule("oldest", "the key that was added first", "victim = next(iter(self.values))"),
    Rule("newest", "the key that was added last", "victim = list(self.values)[-1]"),
    Rule("unused", "the key whose last `NAME` or `GET` is the longest ago (a `GET` counts only if the key was there)",
         "victim = min(self.values, key=lambda one: self.used[one])"),
    Rule("rare", "the key with the fewest calls of `GET` since it was added (of several, the one that was added first)",
         "victim = min(self.values, key=lambda one: self.counts[one])"),
    Rule("smallest", "the key with the smallest value (of several, the one that was added first)",
         "victim = min(self.values, key=lambda one: self.values[one])"),
    Rule("alphabet", "the key that comes last in alphabetical order", "victim = max(self.values)"),
)  # fmt: skip


def _store(rng: random.Random, difficulty: Difficulty) -> Problem:
    title = rng.choice(("Shelf", "Locker", "Cabinet", "Store", "Rack"))
    put, get = rng.choice((("put", "get"), ("store", "fetch"), ("save", "load")))
    out = rng.choice(_OUT[:2] if difficulty == "easy" else _OUT)
    again = rng.choice((
        Rule("replace", "replaces the value, and the key keeps its place in the order of adding", "pass"),
        Rule("renew", "replaces the value, and counts as adding the key again", "del self.values[key]"),
        Rule("add", "adds the given value to the one that is there, and the key keeps its place in the order of adding",
             "value += self.values[key]"),
        Rule("ignore", "changes nothing and returns None", "return None"),
    ))  # fmt: skip
    missing = rng.choice(
        (
            Rule("none", "returns None", "return None"),
            Rule("error", "raises KeyError", "raise KeyError(key)"),
            Rule("minus", "returns -1", "return -1"),
        )
    )
    returns = rng.choice((
        Rule("nothing", "It returns None.", ""),
        Rule("victim", "It returns the key that had to go, or None if there was none.", "gone"),
        Rule("size", "It returns the number of keys after that.", "len(self.values)"),
    ))  # fmt: skip
    take = rng.random() < 0.5
    extras = rng.sample((
        Rule("keys", "`keys()` returns the list of the keys, in the order of adding.",
             "def keys(self):\n    return list(self.values)"),
        Rule("total", "`total()` returns the sum of all values.",
             "def total(self):\n    return sum(self.values.values())"),
        Rule("drop", "`drop(key)` removes a key and returns whether it was there.",
             "def drop(self, key):\n    if key not in self.values:\n        return False\n    del self.values[key]\n"
             "    return True"),
        Rule("ranked", "`ranked()` returns the list of the keys, the one with the greatest value first; of equal "
             "values, in the order of adding.",
             "def ranked(self):\n    return sorted(self.values, key=lambda key: -self.values[key])"),
        Rule("clear", "`clear()` removes all keys and returns how many there were.",
             "def clear(self):\n    count = len(self.values)\n    self.values = {}\n    return count"),
    ), {"easy": 1, "medium": 2, "hard": 3}[difficulty])  # fmt: skip
    take = take and out.name not in ("unused", "rare")
    changed = ", also if its value only changed" if out.name == "unused" and again.name in ("replace", "add") else ""
    used, counted = out.name == "unused", out.name == "rare"
    lines = [f"class {title}:", "    def __init__(self, room):", "        self.room = room", "        self.values = {}"]
    if used:
        lines += ["        self.clock = 0", "        self.used = {}"]
    if counted:
        lines += ["        self.counts = {}"]
    lines += ["", f"    def {put}(self, key, value):", "        gone = None", "        if key in self.values:",
              f"            {again.code}", "        elif len(self.values) >= self.room:", f"            {out.code}",
              "            del self.values[victim]", "            gone = victim"]  # fmt: skip
    if used:
        lines += ["        self.clock += 1", "        self.used[key] = self.clock"]
    if counted:
        fresh = "        if key not in self.values:\n            self.counts[key] = 0"
        lines += [fresh]
    lines += ["        self.values[key] = value"]
    if returns.code:
        lines += [f"        return {returns.code}"]
    else:
        lines = [line for line in lines if "gone" not in line]
    lines += ["", f"    def {get}(self, key):", "        if key not in self.values:", f"            {missing.code}"]
    if used:
        lines += ["        self.clock += 1", "        self.used[key] = self.clock"]
    if counted:
        lines += ["        self.counts[key] += 1"]
    lines += [f"        return self.values{'.pop(key)' if take else '[key]'}"]
    for extra in extras:
        lines += ["", *(f"    {line}" for line in extra.code.splitlines())]
    if again.name == "pass":
        lines.remove("            pass")

    def sample(rng: random.Random, size: int) -> list[list[Any]]:
        keys = ("ink", "pen", "map", "key", "cup", "hat", "tin")[: rng.randint(4, 7)]
        calls: list[list[Any]] = [[rng.randint(1, 3) + (size == 2)]]
        for _ in range(rng.randint(*((6, 8), (12, 22), (60, 90))[size])):
            method = rng.choice((put, put, put, get, get, *(extra.name for extra in extras)))
            key = rng.choice(keys)
            arguments = [key, rng.randint(1, 9)] if method == put else [key] if method in (get, "drop") else []
            calls.append([method, *arguments])
        return calls

    text = out.text.replace("NAME", put).replace("GET", get)
    rules = (
        f"`{title}(room)` makes an empty store with room for so many keys (at least 1).",
        f"`{put}(key, value)` adds a key (a text) with a value (an integer). If there is no room for a new key, first "
        f"this one is removed: {text}{changed}. {returns.text}",
        f"`{put}` of a key that is there {again.text}"
        + ("." if again.name == "ignore" else ", and nothing is removed; otherwise the same as above holds."),
        f"`{get}(key)` returns the value of a key{', and removes it' * take}. If the key is not there, it {missing.text}.",
        *(extra.text for extra in extras),
    )
    methods = ", ".join([put, get, *(extra.name for extra in extras)])
    fixed = [["ink", 3], ["pen", 1], ["ink", 2], ["map", 9]]
    return Problem(
        key=key_of("classes-store", out, again, missing, returns, take, *sorted(extra.name for extra in extras)),
        group=key_of("classes-store", out, *sorted(extra.name for extra in extras)),
        entry=title, signature=f"class {title}:  # with the methods {methods}",
        intro="Write a class for a store with limited room.", rules=rules, reference="\n".join(lines) + "\n",
        edges=([[1], [get, "ink"]], [[2], *([put, *one] for one in fixed), *([get, one[0]] for one in fixed)]),
        sample=sample, kind="class",
    )  # fmt: skip


def _account_extras() -> list[Rule]:
    """Return further methods."""
    return [
        Rule("history", "`history(name)` returns the list of all changes of the account, as integers in order (a change "
             "by 0 is one, too).", "def history(self, name):\n    self.check(name)\n    return list(self.changes.get(name, []))"),
        Rule("undo", "`undo()` takes back the last change of any account that has not been taken back, without a trace, "
             "and returns the name of the account, or None if there is none.",
             "def undo(self):\n    if not self.log:\n        return None\n    name, change = self.log.pop()\n"
             "    self.balances[name] -= change\n    self.changes[name].pop()\n    return name"),
        Rule("richest", "`richest()` returns the name of the account with the most (of several, the first in "
             "alphabetical order), or None without accounts.",
             "def richest(self):\n    return min(self.balances, key=lambda name: (-self.balances[name], name), default=None)"),
        Rule("total", "`total()` returns the sum of all accounts.",
             "def total(self):\n    return sum(self.balances.values())"),
        Rule("report", '`report()` returns a list of texts "name: amount", in alphabetical order of the names.',
             'def report(self):\n    return [f"{name}: {self.balances[name]}" for name in sorted(self.balances)]'),
        Rule("interest", "`interest()` adds to each account a tenth of what is there, rounded down, if that is more "
             "than 0; it counts as a change, in alphabetical order of the names. It returns the sum that was added.",
             "def interest(self):\n    total = 0\n    for name in sorted(self.balances):\n"
             "        plus = self.balances[name] // 10\n        if plus > 0:\n            self.book(name, plus)\n"
             "            total += plus\n    return total"),
    ]  # fmt: skip


def _account_source(title: str, bonus: int, floor: int, enough: Rule, unknown: Rule, charge: Rule) -> str:
    """Return the class without further methods; a bonus of 0 is none."""
    return f"""\
class {title}:
    def __init__(self):
        self.balances = {{}}
        self.changes = {{}}
        self.log = []

    def book(self, name, change):
        self.balances[name] += change
        self.changes.setdefault(name, []).append(change)
        self.log.append((name, change))

    def check(self, name):
        if name not in self.balances:
            {unknown.code}

    def deposit(self, name, amount):
        if name not in self.balances:
            self.balances[name] = 0
        self.book(name, amount{f" + {bonus} * (amount >= 50)" if bonus else ""})
        return self.balances[name]

    def withdraw(self, name, amount):
        self.check(name)
        cost = amount + {charge.code}
        if self.balances[name] - cost < {floor}:
{_lines(enough.code.replace("FLOOR", str(floor)).replace(chr(10) + "    ", chr(10)), 3)}
        self.book(name, -cost)
        return True

    def balance(self, name):
        self.check(name)
        return self.balances[name]
"""


def _accounts(rng: random.Random, difficulty: Difficulty) -> Problem:
    title = rng.choice(("Ledger", "Bank", "Treasury", "Points"))
    fee, floor, bonus = rng.randint(1, 3), rng.choice((0, 0, -20)), rng.randint(3, 5)
    enough = rng.choice((
        Rule("error", "raises ValueError and changes nothing", 'raise ValueError("not enough")'),
        Rule("false", "returns False and changes nothing", "return False"),
        Rule("part", "takes only as much as is there and returns False",
             "self.book(name, FLOOR - self.balances[name])\n    return False"),
    ))  # fmt: skip
    unknown = rng.choice(
        (
            Rule("error", "raises KeyError", "raise KeyError(name)"),
            Rule("open", "opens the account with 0 first", "self.balances[name] = 0"),
        )
    )
    pool = _account_extras()
    extras = rng.sample(pool, {"easy": 1, "medium": 2, "hard": 3}[difficulty])
    charge = Rule("free", "", "0") if difficulty == "easy" else rng.choice((
        Rule("free", "", "0"),
        Rule("fee", f" Each withdrawal costs {fee} more, which also must be there.", str(fee)),
        Rule("large", f" A withdrawal of more than {10 * bonus} costs {fee} more, which also must be there.",
             f"{fee} * (amount > {10 * bonus})"),
    ))  # fmt: skip
    gift = rng.random() < 0.4 and difficulty != "easy"
    bound = f"A withdrawal must leave at least {floor} in the account." if floor else "An account cannot fall below 0."
    lines = _account_source(title, bonus * gift, floor, enough, unknown, charge)
    for extra in extras:
        lines += "\n" + _lines(extra.code, 1) + "\n"
    names = {extra.name for extra in extras}
    if not names & {"history", "undo"}:
        lines = lines.replace("        self.changes = {}\n", "").replace(
            "        self.changes.setdefault(name, []).append(change)\n", ""
        )
    if "undo" not in names:
        lines = lines.replace("        self.log = []\n", "").replace("        self.log.append((name, change))\n", "")

    def sample(rng: random.Random, size: int) -> list[list[Any]]:
        people = ("ada", "ben", "cleo", "dan")[: rng.randint(2, 4)]
        calls: list[list[Any]] = [[]]
        for _ in range(rng.randint(*((6, 8), (12, 22), (60, 90))[size])):
            method = rng.choice(
                ("deposit", "deposit", "withdraw", "withdraw", "balance", *sorted(names), *sorted(names))
            )
            name = rng.choice(people)
            amount = (
                [rng.choice((rng.randint(1, 30), rng.randint(40, 90)))] if method in ("deposit", "withdraw") else []
            )
            calls.append(
                [method, *([] if method in ("undo", "richest", "total", "report", "interest") else [name]), *amount]
            )
        return calls

    rules = (
        f"`{title}()` has no accounts at first.",
        "`deposit(name, amount)` adds an amount to an account, which is opened with 0 if there is none with this name, "
        "and returns what is there then." + f" Deposits of at least 50 earn {bonus} more." * gift,
        f"`withdraw(name, amount)` takes an amount from an account and returns True.{charge.text} {bound} If there is "
        f"not enough, it {enough.text}" + (
            f" (what is taken leaves {floor}; nothing is added for the withdrawal)." if enough.name == "part" else "."),
        "`balance(name)` returns what is in an account.",
        f"If there is no account with the name, any method but `deposit` that takes a name {unknown.text}.",
        *(extra.text for extra in extras),
    )  # fmt: skip
    start = [["deposit", "ada", 30], ["withdraw", "ada", 29], ["balance", "ada"]]
    methods = ", ".join(["deposit", "withdraw", "balance", *(extra.name for extra in extras)])
    return Problem(
        key=key_of("classes-accounts", enough, unknown, charge, gift, floor < 0, *sorted(names)),
        group=key_of("classes-accounts", *sorted(names)),
        entry=title, signature=f"class {title}:  # with the methods {methods}",
        intro="Write a class for accounts with integer amounts.", rules=rules, reference=lines,
        edges=([[], *start], [[], ["balance", "ben"], ["deposit", "ben", 50], ["withdraw", "ben", 60], ["balance", "ben"]]),
        sample=sample, kind="class",
    )  # fmt: skip


def _lines(code: str, levels: int) -> str:
    return "\n".join("    " * levels + line if line else "" for line in code.splitlines())
