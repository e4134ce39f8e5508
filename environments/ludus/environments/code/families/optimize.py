"""Find best choices or count possibilities: problems for dynamic programming."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.families.inputs import integers
from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

_STEPS: Final = {
    "right": ("one cell to the right", (0, 1)), "down": ("one cell down", (1, 0)),
    "diagonal": ("one cell down and one to the right", (1, 1)), "jump": ("two cells to the right", (0, 2)),
    "drop": ("two cells down", (2, 0)), "knight": ("one cell down and two to the right", (1, 2)),
}  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    return rng.choice((_grid, _subsequence, _coins, _cooldown, _edits, _pieces))(rng, difficulty)


def _grid(rng: random.Random, difficulty: Difficulty) -> Problem:
    extra = {"easy": 0, "medium": 1, "hard": 2}[difficulty]
    steps = ["right", "down", *rng.sample(("diagonal", "jump", "drop", "knight"), extra)]
    goal = rng.choice(("least", "greatest", "count"))
    blocked = rng.choice((
        Rule("negative", "Cells with negative numbers cannot be entered.", "cost < 0"),
        Rule("zero", "Cells with the number 0 cannot be entered.", "cost == 0"),
        Rule("seven", "Cells with a number that is divisible by 7 cannot be entered.", "cost % 7 == 0"),
        Rule("open", "All cells can be entered.", ""),
    ))  # fmt: skip
    toll = rng.choice((
        Rule("plain", "A way costs the sum of the numbers of its cells, the first and the last one included.", "cost"),
        Rule("even", "A way costs the sum of the numbers of its cells (the first and the last one included), where the "
             "cells in rows 0, 2, 4, … count twice.", "(2 * cost if y % 2 == 0 else cost)"),
        Rule("absolute", "A way costs the sum of the differences, without sign, between the numbers of its cells and 5 "
             "(the first and the last one included).", "abs(cost - 5)"),
    ))  # fmt: skip
    name = rng.choice(("cross_grid", "walk", "plan_way", "traverse"))
    signature = f"def {name}(grid: list[list[int]]) -> int:"
    moves = ", ".join(f"({_STEPS[step][1][0]}, {_STEPS[step][1][1]})" for step in steps)
    count = goal == "count"
    block = f"            if {blocked.code}:\n                continue\n" if blocked.code else ""
    value = "ways" if count else "options"
    gather = "sum" if count else {"least": "min", "greatest": "max"}[goal]
    body = (
        f"best = {{}}\nfor y, row in enumerate(grid):\n        for x, cost in enumerate(row):\n{block}"
        f"            {value} = [best[y - down, x - right] for down, right in [{moves}]\n"
        "                       if (y - down, x - right) in best]\n"
        "            if (y, x) == (0, 0):\n"
        f"                {value} = [{1 if count else 0}]\n"
        f"            if {value}:\n                best[y, x] = {gather}({value}){'' if count else f' + {toll.code}'}\n"
    ).replace("\n    ", "\n")
    last = "len(grid) - 1, len(grid[0]) - 1"
    missing = "0" if count else "-1000"
    body += f"return best.get(({last}), {missing})"
    asked = (
        "Return the number of different ways, where two ways differ if one has a step that the other does not have at "
        "the same place (0 if there is none)." if count else f"Return the {goal} cost of a way, or -1000 if there is no way."
    )  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[list[list[int]]]:
        low, high = ((2, 3), (3, 5), (9, 12))[size]
        height, width = rng.randint(low, high), rng.randint(low, high)
        numbers = [one for one in range(-3, 22) if not blocked.code or one > 0 and one % 7]
        bad = {"negative": -1, "zero": 0, "seven": 14, "open": 3}[blocked.name]
        grid = [[rng.choice(numbers) for _ in range(width)] for _ in range(height)]
        for _ in range(height * width // 6):
            grid[rng.randrange(height)][rng.randrange(width)] = bad
        grid[0][0], grid[-1][-1] = rng.choice(numbers), rng.choice(numbers)
        return (grid,)

    rules = [
        "A way leads from the first cell of the first row to the last cell of the last row. A step goes "
        + " or ".join(_STEPS[step][0] for step in steps) + ".",
        blocked.text + " This also holds for the first and the last cell." * bool(blocked.code),
        *([] if count else [toll.text]), asked,
    ]  # fmt: skip
    return Problem(
        key=key_of("optimize-grid", *sorted(steps), goal, blocked, "" if count else toll),
        group=key_of("optimize-grid", len(steps), count),
        entry=name, signature=signature,
        intro="A grid is a list of rows of integers, all of the same length; it has at least one cell.",
        rules=tuple(rules), reference=function_source(signature, body),
        edges=(([[5]],), ([[1, 2], [3, 4]],), ([[2, -7, 3, 0, 1]],), ([[1, 2], [14, 3]],)), sample=sample,
    )  # fmt: skip


def _subsequence(rng: random.Random, difficulty: Difficulty) -> Problem:
    d, m, gap = rng.randint(2, 4), rng.randint(2, 4), rng.randint(2, 3)
    relations = [
        Rule("greater", "each one is greater than the one before it", "numbers[j] < numbers[i]"),
        Rule("not-less", "none is less than the one before it", "numbers[j] <= numbers[i]"),
        Rule("close", f"neighbors differ by at most {d}", f"abs(numbers[i] - numbers[j]) <= {d}"),
        Rule("far", f"neighbors differ by at least {d}", f"abs(numbers[i] - numbers[j]) >= {d}"),
        Rule("parity", "of two neighbors, one is even and one is odd", "(numbers[i] - numbers[j]) % 2 == 1"),
        Rule("sum", f"the sum of two neighbors is divisible by {m}", f"(numbers[i] + numbers[j]) % {m} == 0"),
        Rule("less-double", "each one is less than twice the one before it",
             "numbers[i] < 2 * numbers[j]"),
        Rule("residue", f"each one leaves a greater or equal remainder modulo {m + 1} than the one before it",
             f"numbers[j] % {m + 1} <= numbers[i] % {m + 1}"),
    ]  # fmt: skip
    count = {"easy": 1, "medium": 1, "hard": 2}[difficulty]
    chosen = pick_distinct(rng, relations, count, count)
    place = Rule("any", "", "") if difficulty == "easy" else rng.choice((
        Rule("any", "", ""),
        Rule("near", f" Neighbors of the choice are at most {gap} places apart in the list.", f"i - j <= {gap}"),
        Rule("apart", " Neighbors of the choice are not next to each other in the list.", "i - j >= 2"),
        Rule("odd-step", " Neighbors of the choice are an odd number of places apart in the list.",
             "(i - j) % 2 == 1"),
    ))  # fmt: skip
    goal = rng.choice((
        Rule("length", "Return how many numbers the longest such choice has (0 for an empty list).", "1"),
        Rule("sum", "Return the greatest sum of such a choice of at least one number (0 for an empty list).",
             "numbers[i]"),
        Rule("weight", "The choice earns for each number its remainder modulo 10 plus 1. Return the most that such a "
             "choice can earn (0 for an empty list).", "numbers[i] % 10 + 1"),
        Rule("count", "Return the number of such choices of at least one number, where choices of equal numbers at "
             "different places differ.", ""),
        Rule("ends", "Return a list: for each place of the list, how many numbers the longest such choice has that "
             "ends with the number at this place.", "1"),
    ))  # fmt: skip
    kind = "list[int]" if goal.name == "ends" else "int"
    name = rng.choice(("best_choice", "pick_sequence", "select_chain", "choose"))
    signature = f"def {name}(numbers: list[int]) -> {kind}:"
    condition = " and ".join(rule.code for rule in (*chosen, place) if rule.code)
    if goal.name == "count":
        step = f"best.append(1 + sum(best[j] for j in range(i) if {condition}))"
        end = "return sum(best)"
    else:
        floor = ", default=0)" if goal.name in ("length", "ends", "weight") else ", default=0)"
        positive = "max(0, value)" if goal.name == "sum" else "value"
        step = (
            f"value = max((best[j] for j in range(i) if {condition}){floor}\n    best.append({goal.code} + {positive})"
        )
        end = "return best" if goal.name == "ends" else "return max(best, default=0)"
    body = f"best = []\nfor i in range(len(numbers)):\n    {step}\n{end}"

    def sample(rng: random.Random, size: int) -> tuple[list[int]]:
        return (integers(rng, rng.randint(*((4, 6), (7, 12), (50, 70) if goal.name != "count" else (16, 20))[size])),)

    return Problem(
        key=key_of("optimize-choice", *sorted(rule.name for rule in chosen), place, goal),
        group=key_of("optimize-choice", count, place, goal),
        entry=name, signature=signature,
        intro="Choose numbers from a list, in the order of the list. A choice is allowed if this holds for all "
        "neighbors in it: " + ", and ".join(rule.text for rule in chosen) + "." + place.text,
        rules=("A choice of a single number is always allowed.", goal.text),
        reference=function_source(signature, body),
        edges=(([],), ([4],), ([3, 3, 3],), ([9, 7, 5, 2],)), sample=sample,
    )  # fmt: skip


def _coins(rng: random.Random, difficulty: Difficulty) -> Problem:
    use = rng.choice((
        Rule("often", "Each coin may be used as often as you like.", "often"),
        Rule("once", "Each coin in the list may be used at most once; equal coins in the list are different coins.",
             "once"),
    ))  # fmt: skip
    twice = difficulty == "hard" and rng.random() < 0.5
    goals = [
        Rule("fewest", "Return the least number of coins whose sum is the amount, or -1 if it is not possible.", ""),
        Rule("ways", "Return in how many ways coins can have the amount as their sum; the order of the coins does not "
             "matter.", ""),
        Rule("most", "Return the greatest number of coins whose sum is the amount, or -1 if it is not possible.", ""),
        Rule("reach", "Return in a list, in increasing order, all sums from 1 to the amount that are possible.", ""),
        Rule("closest", "Return the greatest sum that is possible and not greater than the amount (0 without coins).",
             ""),
        Rule("cheapest", "A coin costs the remainder of its value modulo 4, plus 1. Return the least cost of coins "
             "whose sum is the amount, or -1 if it is not possible.", ""),
    ]  # fmt: skip
    if use.name == "often":  # then nearly all amounts can be reached exactly
        goals = [one for one in goals if one.name != "closest"]
    goal = rng.choice(goals[:2] if difficulty == "easy" else goals)
    name = rng.choice(("pay", "make_change", "fill_amount", "combine_coins"))
    kind = "list[int]" if goal.name == "reach" else "int"
    signature = f"def {name}(coins: list[int], amount: int) -> {kind}:"
    order = "range(coin, amount + 1)" if use.name == "often" else "range(amount, coin - 1, -1)"
    skip = (
        Rule("no-multiples", "Coins that are divisible by 3 are not accepted.",
             "coins = [coin for coin in coins if coin % 3 != 0]") if twice else
        Rule("all", "", "")
    )  # fmt: skip
    if use.name == "often":
        skip = Rule(skip.name, skip.text, (skip.code + "\n" if skip.code else "") + "coins = sorted(set(coins))")
    if goal.name in ("fewest", "most", "cheapest"):
        pick = "max" if goal.name == "most" else "min"
        plus = "coin % 4 + 1" if goal.name == "cheapest" else "1"
        body = (
            "best = {0: 0}\nfor coin in coins:\n"
            f"    for total in {order}:\n        if total - coin in best:\n"
            f"            found = best[total - coin] + {plus}\n"
            f"            best[total] = {pick}(found, best.get(total, found))\nreturn best.get(amount, -1)"
        )
    elif goal.name == "ways":
        body = (
            "ways = [1] + [0] * amount\nfor coin in coins:\n"
            f"    for total in {order}:\n        ways[total] += ways[total - coin]\nreturn ways[amount]"
        )
    else:
        end = "max(possible)" if goal.name == "closest" else "sorted(possible - {0})"
        body = (
            "possible = {0}\nfor coin in coins:\n"
            f"    for total in {order}:\n        if total - coin in possible:\n            possible.add(total)\n"
            f"return {end}"
        )
    equal = " Equal coins in the list count as one kind of coin." if use.name == "often" else ""

    def sample(rng: random.Random, size: int) -> tuple[list[int], int]:
        count = rng.randint(*((3, 4), (4, 8), (12, 16))[size])
        coins = [rng.randint(2, (9, 15, 30)[size]) for _ in range(count)]
        return (coins, rng.randint(6, (20, 45, 150)[size]))

    return Problem(
        key=key_of("optimize-coins", use, skip, goal),
        entry=name, signature=signature, intro="Pay an amount with coins, all of which have positive integer values.",
        rules=tuple(one for one in (use.text + equal, skip.text, goal.text) if one),
        reference=function_source(signature, skip.code, body),
        edges=(([], 3), ([5], 5), ([4, 6], 7), ([2, 2, 2, 7], 6)), sample=sample,
    )  # fmt: skip


def _cooldown(rng: random.Random, difficulty: Difficulty) -> Problem:
    rest, most = rng.randint(1, 3), rng.randint(2, 4)
    gain = rng.choice((
        Rule("value", "Working on a day earns its number", "values[day]"),
        Rule("place", "Working on a day earns its number, on the days 0, 3, 6, … twice of it",
             "(values[day] * 2 if day % 3 == 0 else values[day])"),
        Rule("drop", "Working on a day earns its number, but at most 12", "min(values[day], 12)"),
        Rule("idle", "Working on a day earns its number; a day without work costs 1", "values[day]"),
    ))  # fmt: skip
    limit = rng.choice((
        Rule("rest", f"After a day of work, at least {rest} days without work must follow before the next one.", ""),
        Rule("run", f"At most {most} days in a row may be days of work.", ""),
        Rule("budget", f"At most {most} days may be days of work, and two days of work are never next to each other.",
             ""),
        Rule("total", f"At most {most + 1} days may be days of work.", ""),
    ))  # fmt: skip
    result = rng.choice(("most", "daily")) if difficulty != "easy" else "most"
    idle = " - 1" if gain.name == "idle" else ""
    name = rng.choice(("plan_work", "best_days", "schedule_jobs", "choose_days"))
    signature = f"def {name}(values: list[int]) -> {'int' if result == 'most' else 'list[int]'}:"
    state, start, work, keep = {
        "rest": ("wait", "{0: 0}", f"if wait == 0:\n            offers.append(({rest}, total + {gain.code}))",
                 "max(wait - 1, 0)"),
        "run": ("run", "{0: 0}", f"if run < {most}:\n            offers.append((run + 1, total + {gain.code}))", "0"),
        "budget": ("used", "{(0, False): 0}",
                   f"if used[0] < {most} and not used[1]:\n"
                   f"            offers.append(((used[0] + 1, True), total + {gain.code}))", "(used[0], False)"),
        "total": ("used", "{0: 0}",
                  f"if used < {most + 1}:\n            offers.append((used + 1, total + {gain.code}))", "used"),
    }[limit.name]  # fmt: skip
    body = (
        f"best = {start}\nhistory = []\nfor day in range(len(values)):\n    following = {{}}\n"
        f"    for {state}, total in best.items():\n        offers = [({keep}, total{idle})]\n        {work}\n"
        "        for after, earned in offers:\n"
        "            following[after] = max(earned, following.get(after, earned))\n"
        "    best = following\n    history.append(max(best.values()))\n"
        + ("return max(best.values())" if result == "most" else "return history")
    )
    if result == "most":
        body = body.replace("history = []\n", "").replace("    history.append(max(best.values()))\n", "")

    def sample(rng: random.Random, size: int) -> tuple[list[int]]:
        return (integers(rng, rng.randint(*((4, 6), (6, 12), (60, 80))[size]), least=-6, most=25),)

    asked = (
        "Return the most that can be earned in all (0 for an empty list)." if result == "most" else
        "Return a list: for each day, the most that can have been earned after it, if only the days up to it count."
    )  # fmt: skip
    return Problem(
        key=key_of("optimize-days", gain, limit, result),
        group=key_of("optimize-days", limit, result),
        entry=name, signature=signature,
        intro="Each number of a list belongs to a day, beginning with day 0. Choose the days of work.",
        rules=(gain.text + "; numbers may be negative.", limit.text, asked),
        reference=function_source(signature, body),
        edges=(([],), ([7],), ([-3, -1],), ([5, 5, 5, 5, 5],)), sample=sample,
    )  # fmt: skip


def _edits(rng: random.Random, difficulty: Difficulty) -> Problem:
    insert, remove, change = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4)
    same = rng.choice((
        Rule("exact", "Equal characters stay as they are, which costs nothing.", "first[i - 1] == second[j - 1]"),
        Rule("case", "Characters that are equal when case is ignored stay as they are, which costs nothing.",
             "first[i - 1].lower() == second[j - 1].lower()"),
        Rule("vowels", "Equal characters stay as they are, and so may each vowel (a, e, i, o, u) where a vowel is "
             "needed; this costs nothing.",
             'first[i - 1] == second[j - 1] or first[i - 1] in "aeiou" and second[j - 1] in "aeiou"'),
    ))  # fmt: skip
    swap = difficulty == "hard" or difficulty == "medium" and rng.random() < 0.5
    allowed = rng.choice(("all", "no-change")) if difficulty != "easy" else "all"
    result = rng.choice(("cost", "prefixes")) if difficulty != "easy" else "cost"
    name = rng.choice(("edit_cost", "distance", "rewrite_cost", "compare_texts"))
    signature = f"def {name}(first: str, second: str) -> {'int' if result == 'cost' else 'list[int]'}:"
    body = f"""\
cost = {{}}
for i in range(len(first) + 1):
    for j in range(len(second) + 1):
        options = [] if i or j else [0]
        if i:
            options.append(cost[i - 1, j] + {remove})
        if j:
            options.append(cost[i, j - 1] + {insert})
        if i and j and ({same.code}):
            options.append(cost[i - 1, j - 1])
"""
    rules = [same.text, f"Inserting a character costs {insert}, and removing one costs {remove}."]
    if allowed == "all":
        body += f"        if i and j:\n            options.append(cost[i - 1, j - 1] + {change})\n"
        rules.append(f"Replacing a character by another one costs {change}.")
    if swap:
        body += (
            "        if i > 1 and j > 1 and first[i - 1] == second[j - 2] and first[i - 2] == second[j - 1]:\n"
            "            options.append(cost[i - 2, j - 2] + 1)\n"
        )
        rules.append("Exchanging two neighboring characters of the first text costs 1; they are not changed otherwise, "
                     "and nothing is inserted between them or removed there.")  # fmt: skip
    body += "        cost[i, j] = min(options)\n"
    if result == "cost":
        body += "return cost[len(first), len(second)]"
        rules.append("Return the least total cost of turning the first text into the second.")
    else:
        body += "return [cost[i, len(second)] for i in range(len(first) + 1)]"
        rules.append("Return a list: for each length from 0 to that of the first text, the least total cost of turning "
                     "the first characters of the first text, as many as this length, into the second text.")  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[str, str]:
        count = rng.randint(*((3, 5), (5, 9), (16, 22))[size])
        first = [rng.choice("abceioAB") for _ in range(count)]
        second = list(first)
        for _ in range(rng.randint(1, count)):
            at = rng.randrange(len(second) + 1)
            second[at : at + rng.randint(0, 2)] = rng.choice(([], [rng.choice("abceioAB")], second[at : at + 2][::-1]))
        return ("".join(first), "".join(second))

    return Problem(
        key=key_of("optimize-edits", same, swap, allowed, result),
        group=key_of("optimize-edits", swap, result), entry=name, signature=signature,
        intro="Turn one text into another as cheaply as possible.", rules=tuple(rules),
        reference=function_source(signature, body),
        edges=(("", ""), ("abc", ""), ("", "ab"), ("ab", "ba"), ("Abe", "abi")), sample=sample,
    )  # fmt: skip


def _pieces(rng: random.Random, difficulty: Difficulty) -> Problem:
    longest = rng.randint(3, 4)
    fits = [
        Rule("palindrome", "reads the same backward", "piece == piece[::-1]"),
        Rule("short", f"has at most {longest} characters", f"len(piece) <= {longest}"),
        Rule("distinct", "has no character twice", "len(set(piece)) == len(piece)"),
        Rule("ends", "begins and ends with the same character", "piece[0] == piece[-1]"),
        Rule("no-a-start", "does not begin with the letter a", 'piece[0] != "a"'),
        Rule("odd", "has an odd length", "len(piece) % 2 == 1"),
        Rule("few", "has at most two different characters", "len(set(piece)) <= 2"),
        Rule("word", "is one of the texts a, b, c, ab, bc, abc and ca", 'piece in ("a", "b", "c", "ab", "bc", "abc", "ca")'),
    ]  # fmt: skip
    count = 1 if difficulty == "easy" else 2
    chosen = pick_distinct(rng, fits, count, count)
    joiner = rng.choice(("and", "or")) if count == 2 else "and"
    goal = rng.choice((
        Rule("fewest", "Return a list: for each length from 1 to that of the text, the least number of pieces into "
             "which as many first characters of the text can be cut, or -1 if it is not possible.", "min"),
        Rule("most", "Return a list: for each length from 1 to that of the text, the greatest number of pieces into "
             "which as many first characters of the text can be cut, or -1 if it is not possible.", "max"),
        Rule("ways", "Return the number of ways to cut the text; an empty text has one way.", "sum"),
        Rule("squares", "A piece of n characters costs n × n. Return a list: for each length from 1 to that of the "
             "text, the least total cost of cutting as many first characters of the text, or -1 if it is not "
             "possible.", "min"),
        Rule("prefixes", "Return in a list, in increasing order, the lengths of all beginnings of the text (of at least "
             "one character) that can be cut in this way.", ""),
    ))  # fmt: skip
    name = rng.choice(("cut_text", "split_pieces", "partition_text", "slice_up"))
    signature = f"def {name}(text: str) -> {'int' if goal.name == 'ways' else 'list[int]'}:"
    condition = f" {joiner} ".join(rule.code if count == 1 else f"({rule.code})" for rule in chosen)
    plus = {"ways": "", "squares": " + len(piece) ** 2"}.get(goal.name, " + 1")
    body = f"""\
best = {{0: {1 if goal.name == "ways" else 0}}}
for end in range(1, len(text) + 1):
    options = []
    for start in range(end):
        piece = text[start:end]
        if start in best and ({condition}):
            options.append(best[start]{plus})
    if options:
        best[end] = {goal.code or "min"}(options)
"""
    body += {"ways": "return best.get(len(text), 0)", "prefixes": "return sorted(end for end in best if end > 0)"}.get(
        goal.name, "return [best.get(end, -1) for end in range(1, len(text) + 1)]"
    )

    def sample(rng: random.Random, size: int) -> tuple[str]:
        letters = rng.choice(("abc", "aabbc", "abcd"))
        return ("".join(rng.choice(letters) for _ in range(rng.randint(*((4, 6), (6, 12), (24, 30))[size]))),)

    return Problem(
        key=key_of("optimize-pieces", *sorted(rule.name for rule in chosen), joiner if count == 2 else "", goal),
        group=key_of("optimize-pieces", count, goal),
        entry=name, signature=signature,
        intro="Cut a text of lower-case letters into pieces that follow each other without a gap. A piece is allowed if "
        f"it {f' {joiner} it '.join(rule.text for rule in chosen)}.",
        rules=("All pieces must be allowed, and no piece is empty.", goal.text),
        reference=function_source(signature, body),
        edges=(("",), ("a",), ("abba",), ("cab",)), sample=sample,
    )  # fmt: skip
