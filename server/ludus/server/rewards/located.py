"""JSON and TOML readers that record the line of each value, so that errors in a file can be located."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_DEPTH: Final = 50
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_AT_LINE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_TOML_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_TOML_KEY: Final = re.compile(r"""\s*("[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)\s*(?:\.[^=]*)?=""")


class SyntaxProblem(ValueError):
    """The text is not JSON or TOML."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Located:
    """A value, and the lines (from 1) on which its parts begin."""

    value: Any
    lines: Mapping[Place, int]

    def line(self, path: Place) -> int:
        """Return the line of a part, or of the nearest known part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def locate_json(text: str) -> Located:
    """Read JSON.

    Raises:
        SyntaxProblem: the text is not JSON, or repeats a key.
    """
    reader = _Json(text)
    value = reader.value((), 0)
    reader.space()
    if reader.at < len(text):
        raise reader.problem("something follows after the end")
    return Located(value, reader.lines)


def locate_toml(text: str) -> Located:
    """Read TOML. Tables and their keys have lines; parts of inline values have the line of their key.

    Raises:
        SyntaxProblem: the text is not TOML.
    """
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT_LINE.search(str(error))
        line = int(match[1]) if match and match[1] else text.rstrip().count("\n") + 1
        raise SyntaxProblem(line, _AT_LINE.sub("", str(error))) from None
    except RecursionError:
        raise SyntaxProblem(1, "it is nested too deeply") from None
    return Located(value, _toml_lines(text))


class _Json:
    """A recursive-descent parser with bounded depth."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Place, int] = {}
        self._counted = (0, 1)

    def line(self) -> int:
        """Return the line of the current position."""
        before, line = self._counted
        line += self.text.count("\n", before, self.at)
        self._counted = (self.at, line)
        return line

    def problem(self, message: str) -> SyntaxProblem:
        return SyntaxProblem(self.line(), message)

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def value(self, path: Place, depth: int) -> Any:
        self.space()
        self.lines[path] = self.line()
        if depth > _DEPTH:
            raise self.problem("it is nested too deeply")
        char = self.text[self.at : self.at + 1]
        if char == "{":
            return self._object(path, depth)
        if char == "[":
            return self._array(path, depth)
        if char == '"':
            return self._string()
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        number = _NUMBER.match(self.text, self.at)
        if number is None:
            raise self.problem(f"a value is expected, not {char!r}" if char else "the text breaks off")
        try:
            value = json.loads(number[0])
        except ValueError as error:
            raise self.problem(str(error)) from None
        self.at = number.end()
        return value

    def _object(self, path: Place, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        self.at += 1
        while not self._take("}"):
            if fields:
                self._expect(",")
            self.space()
            if self.text[self.at : self.at + 1] != '"':
                raise self.problem("a key in double quotes is expected")
            key = self._string()
            if key in fields:
                raise self.problem(f"the key {key!r} stands here a second time")
            line = self.line()
            self._expect(":")
            fields[key] = self.value((*path, key), depth + 1)
            self.lines[*path, key] = line
        return fields

    def _array(self, path: Place, depth: int) -> list[Any]:
        elements: list[Any] = []
        self.at += 1
        while not self._take("]"):
            if elements:
                self._expect(",")
            elements.append(self.value((*path, len(elements)), depth + 1))
        return elements

    def _string(self) -> str:
        try:
            text, self.at = json.decoder.scanstring(self.text, self.at + 1, True)  # type: ignore[attr-defined]
        except ValueError as error:
            raise self.problem(str(error).partition(":")[0]) from None
        return str(text)

    def _take(self, char: str) -> bool:
        self.space()
        if self.text[self.at : self.at + 1] != char:
            return False
        self.at += 1
        return True

    def _expect(self, char: str) -> None:
        if not self._take(char):
            raise self.problem(f"{char!r} is expected")


def _toml_lines(text: str) -> dict[Place, int]:
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    inside = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not inside:
            if header := _TOML_HEADER.match(line):
                table = _toml_table(header[2], counts, array=header[1] == "[[")
                lines.setdefault(table, number)
            elif key := _TOML_KEY.match(line):
                lines.setdefault((*table, key[1].strip("\"'")), number)
        inside = _open_string(line, inside)
    return lines


def _toml_table(name: str, counts: dict[Place, int], *, array: bool) -> Place:
    path: Place = ()
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    for position, part in enumerate(parts):
        path = (*path, part)
        if array and position == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _open_string(line: str, inside: str) -> str:
    """Return the delimiter of the multi-line string that is open after a line; empty if none is."""
    at = 0
    while at < len(line):
        if inside:
            if line[at] == "\\" and inside == '"""':
                at += 2
            elif line.startswith(inside, at):
                at += 3
                inside = ""
            else:
                at += 1
        elif line[at] == "#":
            return ""
        elif line.startswith(('"""', "'''"), at):
            inside = line[at : at + 3]
            at += 3
        elif line[at] in "\"'":
            quote = line[at]
            at += 1
            while at < len(line) and line[at] != quote:
                at += 2 if line[at] == "\\" and quote == '"' else 1
            at += 1
        else:
            at += 1
    return inside
