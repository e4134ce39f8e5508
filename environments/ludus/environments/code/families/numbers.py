"""Keep, change and combine the integers of a range or list by number-theoretic rules."""

from __future__ import annotations

import random
from functools import cache
from math import gcd
from typing import Any, Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

HELPERS: Final = {
    "is_prime": "def is_prime(n: int) -> bool:\n    if n < 2:\n        return False\n    d = 2\n    while d * d <= n:\n"
    "        if n % d == 0:\n            return False\n        d += 1\n    return True",
    "digit_sum": "def digit_sum(n: int) -> int:\n    return sum(int(digit) for digit in str(abs(n)))",
    "divisors": "def divisors(n: int) -> list[int]:\n    return [d for d in range(1, n + 1) if n % d == 0]",
    "smallest_factor": "def smallest_factor(n: int) -> int:\n    d = 2\n    while d * d <= n:\n        if n % d == 0:\n"
    "            return d\n        d += 1\n    return n",
    "steps_to_one": "def steps_to_one(n: int) -> int:\n    steps = 0\n    while n != 1:\n"
    "        n = n // 2 if n % 2 == 0 else 3 * n + 1\n        steps += 1\n    return steps",
}  # fmt: skip
NAMES: Final = ("select_numbers", "number_report", "sift", "evaluate_numbers", "pick_and_map", "study_numbers")


def conditions(rng: random.Random) -> list[Rule]:
    """Return conditions of an integer n."""
    m, r = rng.choice((3, 4, 5, 7)), rng.randint(0, 2)
    s, c, o = rng.choice((3, 4, 5)), rng.choice((6, 10, 12, 15, 30)), rng.randint(2, 3)
    return [
        Rule("prime", "n is a prime number", "is_prime(n)"),
        Rule("composite", "n is greater than 1 and not a prime number", "n > 1 and not is_prime(n)"),
        Rule("residue", f"n leaves the remainder {r} when divided by {m}", f"n % {m} == {r}"),
        Rule("digit-sum", f"the sum of the decimal digits of n is divisible by {s}", f"digit_sum(n) % {s} == 0"),
        Rule("palindrome", "n reads the same backward in decimal", "str(n) == str(n)[::-1]"),
        Rule("bits", f"the binary form of n has at least {o} ones", f'bin(n).count("1") >= {o}'),
        Rule("odd-bits", "the binary form of n has an odd number of ones", 'bin(n).count("1") % 2 == 1'),
        Rule("coprime", f"n and {c} have no common divisor except 1", f"gcd(n, {c}) == 1"),
        Rule("harshad", "n is divisible by the sum of its decimal digits", "n % digit_sum(n) == 0"),
        Rule("square-free", "no square of an integer greater than 1 divides n",
             "all(n % (d * d) != 0 for d in range(2, n + 1) if d * d <= n)"),
        Rule("divisor-parity", "n has an even number of positive divisors", "len(divisors(n)) % 2 == 0"),
        Rule("abundant", "the positive divisors of n that are less than n add up to more than n",
             "sum(divisors(n)) - n > n"),
        Rule("increasing", "the decimal digits of n never decrease from left to right",
             'str(n) == "".join(sorted(str(n)))'),
    ]  # fmt: skip


def maps(rng: random.Random) -> list[Rule]:
    """Return functions of an integer n."""
    m, g, p = rng.choice((5, 7, 11)), rng.choice((12, 18, 24, 60)), rng.randint(2, 3)
    return [
        Rule("same", "n itself", "n"),
        Rule("digit-sum", "the sum of the decimal digits of n", "digit_sum(n)"),
        Rule("reverse", "n with its decimal digits reversed (120 gives 21)", "int(str(n)[::-1])"),
        Rule("divisors", "the number of positive divisors of n", "len(divisors(n))"),
        Rule("factor", "the smallest prime that divides n, or 1 if n is 1", "smallest_factor(n)"),
        Rule("collatz", "the number of steps until n becomes 1, where a step halves an even n and replaces an odd n "
             "by 3n + 1", "steps_to_one(n)"),
        Rule("gcd", f"the greatest common divisor of n and {g}", f"gcd(n, {g})"),
        Rule("power", f"n to the power {p}, modulo {m}", f"n ** {p} % {m}"),
        Rule("binary", "the number whose decimal digits are the binary digits of n (5 gives 101)", "int(bin(n)[2:])"),
        Rule("totient", "the number of integers from 1 to n that have no common divisor with n except 1",
             "sum(1 for d in range(1, n + 1) if gcd(d, n) == 1)"),
    ]  # fmt: skip


def finishes(rng: random.Random) -> list[Rule]:
    """Return what becomes of the pairs of kept numbers and their values, in lists `kept` and `values`."""
    k, m, q = rng.randint(2, 4), rng.choice((2, 3, 4)), rng.choice((97, 101, 1009))
    return [
        Rule("list[int]:values", "Return the list of their values, in order.", "return values"),
        Rule("int:sum", "Return the sum of their values.", "return sum(values)"),
        Rule("list[int]:last", f"Return the last {k} of their values, in order (all of them if there are fewer).",
             f"return values[-{k}:]"),
        Rule("list[int]:largest", f"Return the {k} numbers with the greatest values, greatest value first; of equal "
             "values, the smaller number first.",
             f"order = sorted(zip(kept, values), key=lambda pair: (-pair[1], pair[0]))\n"
             f"return [n for n, value in order[:{k}]]"),
        Rule("dict[int, list[int]]:groups", f"Return a dictionary: for each remainder of a value modulo {m} that "
             "occurs, the list of the numbers with such values, in order.",
             f"groups = {{}}\nfor n, value in zip(kept, values):\n    groups.setdefault(value % {m}, []).append(n)\n"
             "return groups"),
        Rule("int:alternating", "Return the alternating sum of their values: the first minus the second plus the "
             "third, and so on; 0 if there are none.",
             "return sum(value if place % 2 == 0 else -value for place, value in enumerate(values))"),
        Rule("list[int]:running", "Return the list of running totals of their values.",
             "total, totals = 0, []\nfor value in values:\n    total += value\n    totals.append(total)\n"
             "return totals"),
        Rule("list[list[int]]:pairs", "Return a list of pairs [number, value] in order of the value, and of the number "
             "for equal values.",
             "return [list(pair) for pair in sorted(zip(kept, values), key=lambda pair: (pair[1], pair[0]))]"),
        Rule("int:horner", f"Begin with 0, and for each value in order replace the result by (result × {k} + value) "
             f"modulo {q}. Return the result.",
             f"result = 0\nfor value in values:\n    result = (result * {k} + value) % {q}\nreturn result"),
    ]  # fmt: skip


@cache
def _values(code: str) -> tuple[Any, ...]:
    """Return the value of an expression for each n from 1 to 120."""
    namespace: dict[str, Any] = {"gcd": gcd}
    exec("\n\n".join(HELPERS.values()), namespace)
    exec(f"values = tuple([{code} for n in range(1, 121)])", namespace)
    values: tuple[Any, ...] = namespace["values"]
    return values


def _condition(rng: random.Random, difficulty: Difficulty) -> tuple[str, str, str, list[bool]]:
    """Return the key, text and code of a condition, and whether it holds for each n from 1 to 120."""
    count = {"easy": 1, "medium": 2, "hard": rng.randint(2, 3)}[difficulty]
    first, *others = pick_distinct(rng, conditions(rng), count, count)
    key, text, code, holds = first.name, first.text, first.code, [bool(value) for value in _values(first.code)]
    for number, rule in enumerate(others):
        joiner = rng.choice(("and", "or") if difficulty == "medium" else ("and not", "or", "and"))
        if number:
            text, code = f"({text})", f"({code})"
        also = _values(rule.code)
        if joiner == "or":
            holds = [hold or bool(other) for hold, other in zip(holds, also, strict=True)]
        else:
            holds = [hold and bool(other) == (joiner == "and") for hold, other in zip(holds, also, strict=True)]
        word = joiner.replace("not", "it is not true that")
        text, code = f"{text}, {word} {rule.text}", f"{code} {joiner} {_atom(rule.code)}"
        key = f"{key} {joiner} {rule.name}"
    return key, text, code, holds


def _atom(code: str) -> str:
    return f"({code})" if " and " in code or " > " in code or "%" in code or "==" in code else code


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    in_range = rng.random() < 0.5
    while True:
        condition, text, code, holds = _condition(rng, difficulty)
        mapped = rng.choice(maps(rng)[: 4 if difficulty == "easy" else 10])
        values = [value for value, kept in zip(_values(mapped.code), holds, strict=True) if kept]
        if 12 <= len(values) <= 110 and len(set(values)) >= 4:  # otherwise, most inputs have the same result
            break
    finish = rng.choice(finishes(rng)[: 3 if difficulty == "easy" else 9])
    kind = finish.name.partition(":")[0]
    name = rng.choice(NAMES)
    parameters = "low: int, high: int" if in_range else "numbers: list[int]"
    signature = f"def {name}({parameters}) -> {kind}:"
    numbers = "range(low, high + 1)" if in_range else "numbers"
    whole = code + mapped.code
    helpers = [source for helper, source in HELPERS.items() if helper in whole]
    imports = "\n\n\n".join([*(["from math import gcd"] if "gcd(" in whole else []), *helpers])
    start = "the integers n from low to high, both included, in increasing order" if in_range else (
        "the numbers n of the list, all of which are positive, in their order"
    )  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[object, ...]:
        if in_range:
            low = rng.randint(1, 60)
            return (low, low + rng.randint(*((12, 20), (15, 60), (80, 110))[size]))
        return ([rng.randint(1, 150) for _ in range(rng.randint(*((5, 7), (8, 20), (60, 90))[size]))],)

    return Problem(
        key=key_of("numbers", condition, mapped, finish),
        entry=name,
        signature=signature,
        intro="Work with positive integers:",
        rules=(f"Go through {start}. Keep n if this is true: {text}.",
               f"The value of a kept number n is {mapped.text}.", f"{finish.text}"),
        reference=function_source(
            signature, f"kept = [n for n in {numbers} if {code}]",
            f"values = [{mapped.code} for n in kept]", finish.code, imports=imports,
        ),
        edges=((5, 4), (1, 1), (7, 7)) if in_range else (([],), ([1],), ([2, 2],)),
        sample=sample,
    )  # fmt: skip
