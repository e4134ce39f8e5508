"""A chain of rules on the bits of integers of a fixed width."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

NAMES: Final = ("scramble", "mix_bits", "encode_words", "process_bits", "twiddle", "convert_codes")


def rules(rng: random.Random, width: int) -> list[Rule]:
    """Return rules that change an integer n of `width` bits."""
    full, half = 2**width - 1, width // 2
    k = rng.randint(1, half - 1)
    back = k % (half - 1) + 1
    mask, place = rng.randint(1, full - 1), rng.randrange(width)
    return [
        Rule("rotate-left", f"Rotate the bits by {k} to the left: those that leave on the left come in on the right.",
             f"n = (n << {k} | n >> {width - k}) & {full}"),
        Rule("rotate-right", f"Rotate the bits by {back} to the right: those that leave on the right come in on the left.",
             f"n = (n >> {back} | n << {width - back}) & {full}"),
        Rule("xor-shift", f"Replace n by n XOR (n shifted to the right by {k}).", f"n = n ^ n >> {k}"),
        Rule("xor-mask", f"Replace n by n XOR {mask}.", f"n = n ^ {mask}"),
        Rule("reverse", f"Reverse the order of the {width} bits.", f'n = int(f"{{n:0{width}b}}"[::-1], 2)'),
        Rule("swap-halves", f"Exchange the upper and the lower {half} bits.",
             f"n = n >> {half} | (n & {2**half - 1}) << {half}"),
        Rule("invert", "Invert all bits.", f"n = n ^ {full}"),
        Rule("set-bit", f"If the number of ones in n is odd, set the bit with the value {2**place} to 1, otherwise to 0.",
             f'if bin(n).count("1") % 2 == 1:\n    n = n | {2**place}\nelse:\n    n = n & {full ^ 2**place}'),
        Rule("clear-lowest", "Set the lowest bit that is 1 to 0 (0 stays 0).", "n = n & (n - 1) if n else 0"),
        Rule("fill", "Set the lowest bit that is 0 to 1 (if all bits are 1, n stays as it is).",
             f"n = (n | n + 1) & {full}"),
        Rule("even-swap", "Exchange the bits in pairs: the lowest bit and the one above it, the next two, and so on.",
             f"n = (n & {sum(2**i for i in range(0, width, 2))}) << 1 | (n & {sum(2**i for i in range(1, width, 2))}) >> 1"),
        Rule("gray", "Replace n by its Gray code, n XOR (n shifted to the right by 1).", "n = n ^ n >> 1"),
        Rule("multiply", f"Multiply n by {2 * k + 1} and keep the lowest {width} bits.", f"n = n * {2 * k + 1} & {full}"),
        Rule("add-ones", f"Add the number of ones in n to n, and keep the lowest {width} bits.",
             f'n = n + bin(n).count("1") & {full}'),
        Rule("sort", "Move all ones to the lower end: as many of the lowest bits are 1 as there were ones.",
             'n = 2 ** bin(n).count("1") - 1'),
    ]  # fmt: skip


def finishes(rng: random.Random, width: int) -> list[Rule]:
    """Return the forms of the result, made from the list `results`."""
    m = rng.choice((7, 13, 31))
    return [
        Rule("list[int]:values", "Return the list of the results.", "return results"),
        Rule("list[str]:binary", f"Return the list of the results as texts of {width} binary digits.",
             f'return [f"{{n:0{width}b}}" for n in results]'),
        Rule("int:xor", "Return the XOR of all results (0 if there are none).",
             "total = 0\nfor n in results:\n    total ^= n\nreturn total"),
        Rule("list[int]:ones", "Return the list of the numbers of ones in the results.",
             'return [bin(n).count("1") for n in results]'),
        Rule("list[int]:distances", "Return the list of the numbers of bits in which each result differs from the next "
             "one.", 'return [bin(one ^ other).count("1") for one, other in zip(results, results[1:])]'),
        Rule("str:hex", f"Return the results as one text, each with {(width + 3) // 4} lower-case hexadecimal digits.",
             f'return "".join(f"{{n:0{(width + 3) // 4}x}}" for n in results)'),
        Rule("list[list[int]]:places", "Return for each result the list of the positions of its ones, in increasing "
             "order, where the lowest bit has the position 0.",
             f"return [[place for place in range({width}) if n >> place & 1] for n in results]"),
        Rule("dict[int, int]:groups", "Return a dictionary from each number of ones that occurs to the number of "
             "results with so many ones.",
             'counts = {}\nfor n in results:\n    ones = bin(n).count("1")\n'
             "    counts[ones] = counts.get(ones, 0) + 1\nreturn counts"),
        Rule("int:check", f"Begin with 1, and for each result in order, replace the sum by (sum × {m} + result) modulo "
             f"{2**width}. Return the sum.",
             f"total = 1\nfor n in results:\n    total = (total * {m} + n) % {2**width}\nreturn total"),
    ]  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    width = rng.choice((6, 8, 10, 12))
    counts = {"easy": (1, 2), "medium": (2, 3), "hard": (4, 5)}[difficulty]
    chosen = pick_distinct(rng, rules(rng, width), *counts)
    if "sort" in [rule.name for rule in chosen[:-1]]:  # it forgets the order of the bits, so it comes last
        chosen = [*(rule for rule in chosen if rule.name != "sort"), *(rule for rule in chosen if rule.name == "sort")]
    chained = difficulty != "easy" and rng.random() < 0.5
    finish = rng.choice(finishes(rng, width)[: 3 if difficulty == "easy" else 9])
    name = rng.choice(NAMES)
    signature = f"def {name}(numbers: list[int]) -> {finish.name.partition(':')[0]}:"
    start = Rule("chain", "Before the rules, each number but the first is replaced by the XOR of itself and the result "
                 "of the number before it.", "n = n ^ results[-1] if results else n")  # fmt: skip
    body = "results = []\nfor n in numbers:\n"
    for rule in (*([start] if chained else []), *chosen):
        body += "".join(f"    {line}\n" for line in rule.code.splitlines())
    body += "    results.append(n)"

    def sample(rng: random.Random, size: int) -> tuple[list[int]]:
        return ([rng.randrange(2**width) for _ in range(rng.randint(*((2, 3), (3, 7), (30, 50))[size]))],)

    rule_lines = [rule.text for rule in (*([start] if chained else []), *chosen)]
    return Problem(
        key=key_of("bits", *chosen, "chained" if chained else "single", finish),
        entry=name, signature=signature,
        intro=f"Each number n of a list has {width} bits (0 <= n < {2**width}). Change the numbers one after the other. "
        f"For each of them, follow these rules in order; its result has {width} bits, too:",
        rules=(*rule_lines, finish.text),
        reference=function_source(signature, body, finish.code),
        edges=(([],), ([0],), ([2**width - 1],), ([1, 2, 3],)), sample=sample,
    )  # fmt: skip
