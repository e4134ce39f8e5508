"""What a family makes of random choices: one problem with its specification, its reference and its inputs.

All parts follow from the same choices, so they cannot contradict each other. The `key` has the choices that make two
problems different in kind (which rules, in which order), without their constants, names and wording; it decides the
split. So a test problem never differs from a training problem in constants only. Where problems consist mostly of a
text that they share, the options that change few words of it do not decide the split: see `group`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

Kind = Literal["function", "class", "iterator"]
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One programming problem.

    Attributes:
        key: the choices that make it different in kind.
        entry: the name of the function or class to write.
        signature: its first line, and for a class the methods.
        intro: what it is for, in a sentence or two.
        rules: the rules, in order.
        reference: the source of a right program.
        edges: boundary inputs; for a function a tuple of arguments, for others see `inside.perform`.
        sample: draws an input; the second argument is its size: 0 small, 1 ordinary, 2 large.
        kind: what the entry is.
        group: the choices that decide its split, where they are not all of the key.
    """

    key: str
    entry: str
    signature: str
    intro: str
    rules: tuple[str, ...]
    reference: str
    edges: tuple[Any, ...]
    sample: Callable[[random.Random, int], Any]
    kind: Kind = "function"
    group: str = ""

    @property
    def split_key(self) -> str:
        """The choices that decide its split."""
        return self.group or self.key

    @property
    def specification(self) -> str:
        """The text of the task, without examples."""
        rules = "\n".join(f"{number}. {rule}" for number, rule in enumerate(self.rules, 1))
        return f"{self.intro}\n{rules}\n\n{self.signature}"


class Rule(NamedTuple):
    """One rule of a chain.

    Attributes:
        name: its name in the key.
        text: the sentence in the specification.
        code: the lines of the reference, without indentation.
    """

    name: str
    text: str
    code: str


def indent(code: str, levels: int = 1) -> str:
    """Return code indented by four spaces for each level."""
    pad = "    " * levels
    return "\n".join(pad + line if line else "" for line in code.splitlines())


def function_source(signature: str, *parts: str, imports: str = "") -> str:
    """Return the source of a function.

    Args:
        signature: its first line, with the colon.
        parts: the lines of its body, without the indentation of the function.
        imports: lines before it.
    """
    body = "\n".join(indent(part) for part in parts if part)
    return f"{imports}\n\n\n{signature}\n{body}\n".lstrip("\n")


def pick_distinct(rng: random.Random, items: Sequence[ItemT], least: int, most: int) -> list[ItemT]:
    """Return `least` to `most` different items in random order."""
    return rng.sample(list(items), rng.randint(least, most))


def key_of(*parts: object) -> str:
    """Return a key of the names of choices."""
    return "/".join(str(part.name if isinstance(part, Rule) else part) for part in parts)
