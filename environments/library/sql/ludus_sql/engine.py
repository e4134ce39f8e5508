"""Run a policy's query on a database in memory, so that it can do nothing but read the tables.

How this works: each run opens a new connection and loads the image of a database into it, so that nothing outlives a
query. A query is read as tokens first: one statement that begins with SELECT or WITH. SQLite's authorizer then permits
only SELECT, reading the tables of the schema, and the functions in `FUNCTIONS`; that excludes other statements, PRAGMA,
ATTACH, the schema tables, recursive CTEs, and functions whose results depend on the clock, on chance or on the version.
Functions of dates run through a guard, since `date('now')` is the clock, however the argument is made.

Limits: the length of the query and of values, the depth of expressions, the virtual machine's steps (counted by the
progress handler, which also reads the thread's processor time), and the rows that are read. A query runs in a thread,
so even one that reaches its limits blocks no other episode.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import Any, Final

from ludus.server import ToolError
from ludus_sql.data import Row

LONGEST: Final = 4000
"""The most characters of a query."""

STEPS: Final = 1_000_000
"""The most steps of SQLite's virtual machine."""

SECONDS: Final = 2.0
"""The most processor time of a query, in seconds. The limit on steps comes first, unless single steps are slow."""

_STEPS_AT_ONCE: Final = 500
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * LONGEST,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 12,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 20_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_MOST_REFERENCES: Final = 300
_MOST_CTES: Final = 50
_MOST_CHECKS: Final = 3000
"""The most calls of the authorizer, which grow with the nesting of CTEs that refer to each other."""

_DATES: Final = frozenset({"date", "time", "datetime", "julianday", "strftime"})
FUNCTIONS: Final = _DATES | frozenset(
    "abs avg ceil ceiling coalesce count cume_dist dense_rank first_value floor glob group_concat ifnull iif instr lag "
    "last_value lead length like lower ltrim max min mod nth_value ntile nullif percent_rank power rank replace round "
    "row_number rtrim sign sqrt string_agg substr substring sum total trim upper".split()
)
"""The functions that a query may call."""

_TOKEN: Final = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?(?:\*/|\Z) | (?P<text>'(?:[^']|'')*') | (?P<name>"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])
    | (?P<word>[^\W\d]\w*) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_CLOCK: Final = frozenset({"current_date", "current_time", "current_timestamp"})


class QueryError(ToolError):
    """The query was refused or failed; the message says why."""


def check_query(sql: str) -> str:
    """Return the query without what surrounds it.

    Raises:
        QueryError: it is empty, too long, more than one statement, or no SELECT.
    """
    if len(sql) > LONGEST:
        raise QueryError(f"The query has {len(sql)} characters; at most {LONGEST} are allowed.")
    if "\x00" in sql or any("\ud800" <= char <= "\udfff" for char in sql):
        raise QueryError("The query contains a character that no text may have.")
    tokens = [match for match in _TOKEN.finditer(sql) if match.lastgroup]
    while tokens and tokens[-1].group() == ";":
        sql = sql[: tokens.pop().start()]
    if not tokens:
        raise QueryError("The query is empty; write one SELECT statement.")
    if any(token.group() == ";" for token in tokens):
        raise QueryError("Write one statement only; there is a ';' before its end.")
    first = tokens[0].group().lower()
    if first not in ("select", "with"):
        raise QueryError(f"Only SELECT is allowed, also after WITH; the query begins with {first[:30]!r}.")
    words = [_plain(token) for token in tokens]
    for token, word in zip(tokens, words, strict=True):
        if token.lastgroup == "word" and word in _CLOCK:
            raise QueryError(f"{token.group()} is not allowed: results must not depend on the time of the query.")
    if _expanded(words) > _MOST_REFERENCES:
        raise QueryError("The query is too complex; its CTEs refer to each other too often.")
    return sql


def _plain(token: re.Match[str]) -> str:
    """Return a token as SQLite compares names: without quotes, in lower case."""
    text = token.group()
    return text[1:-1].lower() if token.lastgroup == "name" else text.lower()


def _expanded(words: Sequence[str]) -> int:
    """Return how many tables a query reads after SQLite has replaced each reference to a CTE by its text, at most.

    A reference to a CTE that refers twice to another one, and so on, doubles with each of them, and SQLite replaces
    them all before its first step, where no limit but `_MOST_CHECKS` counts.
    """
    uses: dict[str, list[str]] = {}
    opened: list[tuple[str, int]] = []
    depth = 0
    for index, word in enumerate(words):
        if word == "(":
            depth += 1
            if name := _defined(words, index):
                opened.append((name, depth))
                uses.setdefault(name, [])
        elif word == ")":
            if opened and opened[-1][1] == depth:
                opened.pop()
            depth -= 1
        else:
            uses.setdefault(opened[-1][0] if opened else "", []).append(word)
    names = {name for name in uses if name}
    weights: dict[str, int] = {}

    def weight(name: str, path: tuple[str, ...]) -> int:
        if name in path or len(path) > _MOST_CTES:
            return _MOST_REFERENCES + 1
        if name not in weights:
            refers = [word for word in uses.get(name, ()) if word in names and word != name]
            weights[name] = 1 + sum(
                weight(word, (*path, name)) for word in dict.fromkeys(refers) for _ in refers if _ == word
            )
        return weights[name]

    return weight("", ())


def _defined(words: Sequence[str], place: int) -> str:
    """Return the name of the CTE whose text begins with a parenthesis; empty if it is none."""
    before = place - 1
    while before > 0 and words[before] in ("materialized", "not"):
        before -= 1
    if before < 1 or words[before] != "as":
        return ""
    before -= 1
    if words[before] == ")":  # the names of its columns
        while before > 0 and words[before] != "(":
            before -= 1
        before -= 1
    return words[before] if before >= 0 else ""


class Database:
    """A database for one task, in memory.

    Args:
        content: its image.
        updates: statements of our own that change it first.
        tables: the names of the tables that queries may read.
    """

    def __init__(self, content: bytes, tables: Collection[str], updates: Sequence[str] = ()) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.deserialize(content)
        for update in updates:
            self._connection.execute(update)
        self._dates: sqlite3.Connection | None = None
        self._tables = frozenset(name.lower() for name in tables)
        self._why = ""

    def close(self) -> None:
        """Free the database."""
        self._connection.close()
        if self._dates is not None:
            self._dates.close()

    def trusted(self, sql: str) -> list[Row]:
        """Return the rows of a query of our own."""
        return self._connection.execute(sql).fetchall()

    def lock(self, reverse: bool = False) -> None:
        """Restrict the connection to what a policy's query may do. This is final.

        Args:
            reverse: whether rows without an order come the other way around.
        """
        connection = self._connection
        if reverse:
            connection.execute("PRAGMA reverse_unordered_selects = 1")
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA temp_store = MEMORY")
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)

    def query(self, sql: str, most: int) -> tuple[list[str], list[Row]]:
        """Return the names of the columns and the first rows of a policy's query, after `lock`.

        Args:
            sql: a query that `check_query` returned.
            most: the most rows to read.

        Raises:
            QueryError: the query is not allowed, is wrong, or exceeds a limit.
        """
        connection = self._connection
        if re.search(r"(?i)\b(?:date|time|datetime|julianday|strftime)\b", sql):
            self._guard_dates()
        connection.set_authorizer(self._authorizer())
        connection.set_progress_handler(self._counter(), _STEPS_AT_ONCE)
        self._why = ""
        try:
            with closing(connection.execute(sql)) as cursor:
                names = [str(column[0]) for column in cursor.description or ()]
                return names, cursor.fetchmany(most)
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
            raise QueryError(self._why or _message(error)) from None
        finally:
            connection.set_progress_handler(None, 0)
            connection.set_authorizer(None)

    def _authorizer(self) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
        calls = 0

        def decide(action: int, first: str | None, second: str | None, _: str | None, __: str | None) -> int:
            nonlocal calls
            calls += 1
            if calls > _MOST_CHECKS:
                self._why = "The query is too complex; use fewer and smaller subqueries."
            elif action == sqlite3.SQLITE_RECURSIVE:
                self._why = "Recursive queries are not allowed."
            elif action not in _ALLOWED:
                self._why = "Only reading the tables with SELECT is allowed."
            elif action == sqlite3.SQLITE_READ and first and not self._readable(first.lower(), second or ""):
                self._why = f"The table {first[:60]!r} must not be read; use the tables of the schema."
            elif action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in FUNCTIONS:
                self._why = f"The function {(second or '')[:60]!r} is not allowed."
            else:
                return sqlite3.SQLITE_OK
            return sqlite3.SQLITE_DENY

        return decide

    def _readable(self, table: str, column: str) -> bool:
        """Return whether a query may read a column.

        Without a column, as in COUNT(*), SQLite also asks for the names of CTEs.
        """
        return table in self._tables or (not column and not table.startswith(("sqlite_", "pragma_")))

    def _counter(self) -> Callable[[], bool]:
        steps = 0
        end = time.thread_time() + SECONDS

        def count() -> bool:
            nonlocal steps
            steps += _STEPS_AT_ONCE
            if steps > STEPS or time.thread_time() > end:
                self._why = "The query takes too many steps; join on keys and read fewer rows."
                return True
            return False

        return count

    def _guard_dates(self) -> None:
        """Replace the functions of dates by their own results, except where these depend on the clock or the zone."""
        if self._dates is not None:
            return
        connection = self._connection
        plain = self._dates = sqlite3.connect(":memory:", check_same_thread=False)

        def guarded(name: str) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                texts = [argument.strip().lower() for argument in arguments if isinstance(argument, str)]
                needed = 2 if name == "strftime" else 1
                if len(arguments) < needed or not {"now", "localtime", "utc"}.isdisjoint(texts):
                    self._why = f"{name}() must be given a date: results must not depend on the time of the query."
                    raise ValueError(self._why)
                marks = ", ".join("?" * len(arguments))
                return plain.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]

            return call

        for name in sorted(_DATES):
            connection.create_function(name, -1, guarded(name), deterministic=True)


def _message(error: Exception) -> str:
    """Return a database's message as an observation."""
    text = " ".join(str(error).split())[:200]
    if "too big" in text:
        text += f"; values have at most {_LIMITS[sqlite3.SQLITE_LIMIT_LENGTH]} bytes"
    return f"The database reports an error: {text}."
