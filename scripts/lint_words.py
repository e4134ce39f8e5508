"""Find words that the project's language rules exclude: `python scripts/lint_words.py`, part of `make check`.

Checks docstrings and comments of all Python files, names of tests, and all pages. Prints `file:line: word → what to
write` for each hit and exits 1 when there is one. Of strings, it checks those of the packages, except in the files
of KEPT.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAMS: Final = (
    *(f"{folder}/ludus/**/*.py" for folder in ("protocol", "server", "client_sdk", "environments", "trainer")),
    "environments/library/**/*.py",
    *(f"{folder}/**/*.py" for folder in ("tests", "scripts", "benchmarks", "docs", "examples")),
)
MESSAGES: Final = (
    *(f"{folder}/ludus/**/*.py" for folder in ("protocol", "server", "client_sdk", "environments", "trainer")),
    "environments/library/*/ludus_*/**/*.py",
)
KEPT: Final = frozenset({"protocol/ludus/protocol/notices.py", "server/ludus/server/runtime/scoring.py"})
"""Files whose strings are observations, which agents see over the wire and which stay as they are."""
PAGES: Final = (
    "*.md",
    "*/README.md",
    "docs/**/*.md",
    "spec/*.md",
    "spec/core/*.md",
    "spec/modules/*.md",
    "spec/reference/*.ts",
    "Makefile",
    "mkdocs.yml",
    ".ci/run",
)

WORDS: Final = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"but for": "except",
    r"for ever": "forever, or say until when",
    r"whoever": "the agent, the trainer, the caller",
    r"nobody|no one": "nothing, no client",
    r"somebody|someone": "a client, a user",
    r"told": "shown, reported, known",
    r"tells": "shows, says, reports",
    r"kin": "variants, related",
    r"beside": "next to, besides",
    r"at hand": "available, current",
    r"had better": "should",
    r"came of": "outcome",
    r"is over": "has ended",
    r"stands in": "appears in",
    r"is paid": "earns a reward",
    r"of ours": "our own",
    r"of its own make": "its own",
    r"at start": "at startup",
    r"behaviour|colour|normalise|summarise|recognise": "the American spelling",
}
"""What each excluded word is replaced by, as a pattern of whole words."""

PATTERN: Final = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def texts_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each line of a docstring, and of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            assert node.end_lineno is not None
            for number in range(node.lineno, node.end_lineno + 1):
                yield number, lines[number - 1]


def messages_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each string with a space."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def names_of_tests(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the words of each test's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")


def texts() -> Iterator[tuple[Path, int, str]]:
    """Yield the file, the line number and the text of everything that is checked."""
    with_messages = set(files_of(MESSAGES))
    for path in files_of(PROGRAMS):
        source = path.read_text(encoding="utf-8")
        if PATTERN.search(source.replace("_", " ")) is None:
            continue  # most files, without the time to tokenize them
        messages = (
            messages_of_python(source) if path in with_messages and str(path.relative_to(ROOT)) not in KEPT else ()
        )
        for number, text in dict.fromkeys((*texts_of_python(source), *names_of_tests(source), *messages)):
            yield path, number, text
    for path in files_of(PAGES):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            yield path, number, text


def files_of(patterns: Sequence[str]) -> list[Path]:
    """Return the files that match any of the patterns."""
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


def without_code(text: str) -> str:
    """Return the text without code spans."""
    return re.sub(r"`[^`]*`", "", text)


def replacement(word: str) -> str:
    """Return what to write for a word that was found."""
    return next(better for pattern, better in WORDS.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def main() -> None:
    """Print every hit; exit 1 when there is one."""
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]!r} → {replacement(found[0])}"
        for path, number, text in texts()
        for found in PATTERN.finditer(without_code(text))
    ]
    sys.stdout.writelines(f"{hit}\n" for hit in hits)
    if hits:
        sys.exit(f"{len(hits)} excluded words")


if __name__ == "__main__":
    main()
