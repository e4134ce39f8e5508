"""Find the program in an answer, and compare what a program printed with what it had to print."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Final, Literal

from ludus.server.rewards.structure import FencedBlock, fenced_blocks

Comparison = Literal["lines", "tokens", "numbers"]

_TAGS: Final = {
    "python": frozenset(("python", "python3", "py", "py3")),
    "pypy": frozenset(("python", "python3", "py", "py3")),
    "node": frozenset(("javascript", "js", "node", "mjs", "cjs")),
    "bash": frozenset(("bash", "sh", "shell", "zsh")),
    "sh": frozenset(("bash", "sh", "shell", "zsh")),
}
"""The words after a fence that name the language of an interpreter."""

_USAGE: Final = frozenset(
    "bash sh shell zsh console terminal shell-session sh-session powershell ps1 cmd bat text txt plaintext plain "
    "output stdout input stdin none log diff json yaml toml xml html csv markdown md".split()
)
"""The words after a fence that show a command, its input or its output, and not a program."""

_NUMBER: Final = re.compile(r"[+-]?(?P<whole>\d+)(?P<fraction>\.\d*)?(?P<exponent>[eE][+-]?\d{1,3})?", re.ASCII)
_NUMBER_CHARS: Final = 400


def find_program(text: str, *, interpreter: str = "python3", function: str | None = None) -> str:
    """Return the program in an answer, or the whole answer if it has no fenced block.

    Of several blocks, the last one in the interpreter's language counts, then the last one without a language, then the
    last one in another language. A block that shows how to use the program (`bash`, `text`, `json`) counts only if
    there is nothing else.

    Args:
        text: the answer.
        interpreter: the command that runs the program; its name shows the language.
        function: the function that the program must define. A block that only calls it is an example of its use, and
            the block before it counts.
    """
    blocks = fenced_blocks(text)
    if not blocks:
        return text
    rank = _rank_blocks(interpreter)
    best = min(map(rank, blocks))
    candidates = [block for block in blocks if rank(block) == best]
    if function is not None:
        name = re.escape(function)
        defines = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b|^{name}[ \t]*[:=]", re.M)
        uses = re.compile(rf"\b{name}\b")
        for block in reversed(candidates):
            if defines.search(block.text):
                return block.text
            if not uses.search(block.text):
                break
    return candidates[-1].text


def _rank_blocks(interpreter: str) -> Callable[[FencedBlock], int]:
    name = PurePosixPath(interpreter).name.rstrip("0123456789.")
    tags = _TAGS.get(name)

    def rank(block: FencedBlock) -> int:
        if block.language in (tags or ()):
            return 0
        if not block.language:
            return 1
        if block.language in _USAGE:
            return 3
        return 2 if tags is not None else 0

    return rank


def outputs_equal(
    printed: str, expected: str, compare: Comparison, *, relative: float = 1e-5, absolute: float = 1e-8
) -> bool:
    """Return whether a program printed what it had to print.

    Args:
        printed: the output.
        expected: what the output has to be.
        compare: `lines` ignores white space at the ends of lines and of the whole output; `tokens` ignores all white
            space. `numbers` compares lines word by word: words are equal as text, or as decimal numbers of which at
            least one has a point or an exponent. Digits alone are text, so 011 is not 11.
        relative: for `numbers`, the relative tolerance where the expected number has a point or an exponent.
        absolute: the same, absolute; the greater one counts.
    """
    if compare == "tokens":
        return printed.split() == expected.split()
    lines, expected_lines = _lines(printed), _lines(expected)
    if compare == "lines" or lines == expected_lines:
        return lines == expected_lines
    return len(lines) == len(expected_lines) and all(
        _words_equal(line.split(), expected_line.split(), relative, absolute)
        for line, expected_line in zip(lines, expected_lines, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _words_equal(words: Sequence[str], expected: Sequence[str], relative: float, absolute: float) -> bool:
    return len(words) == len(expected) and all(
        word == expected_word or _numbers_equal(word, expected_word, relative, absolute)
        for word, expected_word in zip(words, expected, strict=True)
    )


def _numbers_equal(word: str, expected: str, relative: float, absolute: float) -> bool:
    if len(word) > _NUMBER_CHARS or len(expected) > _NUMBER_CHARS:
        return False
    matches = [_NUMBER.fullmatch(word), _NUMBER.fullmatch(expected)]
    fractional = [match is not None and (match["fraction"] or match["exponent"]) for match in matches]
    if not any(fractional) or any(match is None or re.match("0[0-9]", match["whole"]) for match in matches):
        return False
    number, target = Decimal(word), Decimal(expected)
    if not fractional[1]:
        return number == target
    return abs(number - target) <= max(Decimal(relative) * abs(target), Decimal(absolute))
