"""A chain of rules on the words of a text."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.families.inputs import count_of, words
from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

SEPARATORS: Final = (("spaces", " "), ("commas", ","), ("hyphens", "-"), ("slashes", "/"), ("vertical bars", "|"))
NAMES: Final = ("rewrite", "tidy_words", "convert_text", "process_line", "transform_words", "clean_up")


def rules(rng: random.Random) -> list[Rule]:
    """Return all rules of words, with random constants."""
    k, n, turn = rng.randint(2, 4), rng.randint(4, 6), rng.randint(1, 2)
    mark, letters = rng.choice("*#_+"), "".join(rng.sample("aeiou", 3))
    shift = rng.randint(1, 12)
    return [
        Rule("reverse-long", f"Reverse each word that has more than {n} characters.",
             f"words = [word[::-1] if len(word) > {n} else word for word in words]"),
        Rule("drop-short", f"Remove the words that have fewer than {k} characters.",
             f"words = [word for word in words if len(word) >= {k}]"),
        Rule("drop-vowel", "Remove the words that begin with a vowel (a, e, i, o, u; upper or lower case).",
             'words = [word for word in words if word[0].lower() not in "aeiou"]'),
        Rule("upper-even", "Change the words at positions 0, 2, 4, … to upper case.",
             "words = [word.upper() if place % 2 == 0 else word for place, word in enumerate(words)]"),
        Rule("rotate", f"In each word, move the first {turn} character{'s' * (turn > 1)} to the end.",
             f"words = [word[{turn}:] + word[:{turn}] for word in words]"),
        Rule("mask", f'In each word, replace each of the letters {", ".join(letters)} (lower case only) by "{mark}".',
             f'words = ["".join("{mark}" if letter in "{letters}" else letter for letter in word) for word in words]'),
        Rule("sort-length", "Sort the words by length, the shortest first; words of equal length keep their order.",
             "words = sorted(words, key=len)"),
        Rule("sort-alphabet", "Sort the words alphabetically, ignoring case; words that are equal then keep their order.",
             "words = sorted(words, key=str.lower)"),
        Rule("unique-first", "Of words that are equal when case is ignored, keep only the first.",
             "kept, seen = [], set()\nfor word in words:\n    if word.lower() not in seen:\n"
             "        kept.append(word)\n    seen.add(word.lower())\nwords = kept"),
        Rule("unique-last", "Of words that are equal when case is ignored, keep only the last.",
             "last = {word.lower(): place for place, word in enumerate(words)}\n"
             "words = [word for place, word in enumerate(words) if last[word.lower()] == place]"),
        Rule("swap-ends", "Exchange the first and the last word, if there are at least two words.",
             "if len(words) >= 2:\n    words[0], words[-1] = words[-1], words[0]"),
        Rule("collapse", "In each word, replace each run of the same character by one of them.",
             'words = ["".join(letter for place, letter in enumerate(word) if place == 0 or word[place - 1] != letter)\n'
             "         for word in words]"),
        Rule("append-length", "Append its length to each word, so that `abc` becomes `abc3`.",
             "words = [word + str(len(word)) for word in words]"),
        Rule("caesar", f"Shift each lower-case letter from a to z by {shift} places in the alphabet; after z comes a.",
             f'words = ["".join(chr((ord(letter) - 97 + {shift}) % 26 + 97) if "a" <= letter <= "z" else letter\n'
             "                 for letter in word) for word in words]"),
        Rule("every", f"Keep only every {k}{'nd' if k == 2 else 'rd' if k == 3 else 'th'} word, beginning with the first.",
             f"words = words[::{k}]"),
        Rule("swap-case", "Exchange upper and lower case in each word that contains a digit.",
             "words = [word.swapcase() if any(letter.isdigit() for letter in word) else word for word in words]"),
        Rule("digits-last", "Move the words that contain a digit to the end; otherwise the order stays the same.",
             "words = sorted(words, key=lambda word: any(letter.isdigit() for letter in word))"),
        Rule("digit-sum", "Replace each word that contains digits by the sum of its digits (`a12` becomes `3`).",
             "words = [str(sum(int(letter) for letter in word if letter.isdigit()))\n"
             "         if any(letter.isdigit() for letter in word) else word for word in words]"),
        Rule("join-pairs", f'Join neighbors in pairs with "{mark}": the first word and the second, the third and the '
             "fourth, and so on. An odd last word stays alone.",
             f'words = ["{mark}".join(words[place:place + 2]) for place in range(0, len(words), 2)]'),
        Rule("palindromes", "Change each word that reads the same backward, ignoring case, to upper case.",
             "words = [word.upper() if word.lower() == word.lower()[::-1] else word for word in words]"),
    ]  # fmt: skip


def finishes(rng: random.Random) -> list[Rule]:
    """Return the forms of the result: the rule's name begins with its type."""
    _, separator = rng.choice(SEPARATORS)
    return [
        Rule("str:join", f'Return the words in one text, joined by "{separator}" (an empty text if there are none).',
             f'return "{separator}".join(words)'),
        Rule("list[str]:list", "Return the list of the words.", "return words"),
        Rule("str:longest", "Return the longest word, the first of them if there are several; an empty text if there "
             "are no words.", 'return max(words, key=len, default="")'),
        Rule("dict[str, int]:counts", "Return a dictionary that says how often each word occurs.",
             "counts = {}\nfor word in words:\n    counts[word] = counts.get(word, 0) + 1\nreturn counts"),
        Rule("list[int]:lengths", "Return the list of the lengths of the words.",
             "return [len(word) for word in words]"),
        Rule("str:initials", "Return a text of the last characters of all words, in order.",
             'return "".join(word[-1] for word in words)'),
    ]  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    plural, separator = rng.choice(SEPARATORS)
    count = {"easy": (1, 2), "medium": (3, 3), "hard": (4, 6)}[difficulty]
    chosen = pick_distinct(rng, rules(rng), *count)
    if {"digit-sum", "drop-short"} <= {rule.name for rule in chosen}:  # together they may leave nothing
        chosen = [rule for rule in chosen if rule.name != "drop-short"]
    finish = rng.choice(finishes(rng)[: 2 if difficulty == "easy" else 6])
    signature = f"def {rng.choice(NAMES)}(text: str) -> {finish.name.partition(':')[0]}:"
    split = Rule("split", f"Split the text at {plural}, and ignore empty words.",
                 f'words = [word for word in text.split("{separator}") if word]')  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[str]:
        found = words(rng, count_of(rng, size))
        extra = separator * rng.randint(1, 2)
        return (separator.join(found[:-1]) + extra + found[-1],)

    return Problem(
        key=key_of("strings", *chosen, finish),
        entry=signature[4:].partition("(")[0],
        signature=signature,
        intro="Transform the words of a text. Follow these rules in order:",
        rules=(split.text, *(rule.text for rule in chosen), finish.text),
        reference=function_source(signature, split.code, *(rule.code for rule in chosen), finish.code),
        edges=(("",), (separator * 3,), ("Level",), (separator.join(("aa1", "AA1", "b")),)),
        sample=sample,
    )
