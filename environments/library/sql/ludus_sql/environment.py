"""Answer questions about databases with SQL, graded on databases that the policy does not see."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Final

from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult
from ludus.server import Difficulty, ProceduralEnvironment, TaskDraw, ToolError, tool
from ludus_sql.data import VISIBLE, image
from ludus_sql.engine import Database, check_query
from ludus_sql.exploits import messages, right_messages
from ludus_sql.grading import Verdict, judge, read_query
from ludus_sql.schema import Schema, Table, schema_of
from ludus_sql.tasks import HELD_OUT, SqlTask, series_of

SHOWN_ROWS: Final = 20
"""The most rows that `query` shows."""

SHOWN_CHARS: Final = 60
"""The most characters of a value that tools show."""

SAMPLE: Final = 3
"""How many rows `describe` shows."""

RULES: Final = """\
- Return exactly the columns that the question names, in that order. Names of columns do not matter.
- The order of rows matters only if the question says how to sort. Keep duplicates unless it asks for different values.
- Missing means NULL. A condition on a missing value does not hold, unless the question mentions missing values. \
Aggregates skip missing values, and those of no values are missing, except counts.
- Do not round unless the question says so. Dates are texts of the form YYYY-MM-DD. Texts are compared exactly.
- Your query must be one SELECT, which may begin with WITH. It is run on other databases with the same tables and \
other rows, so constants from this database do not help."""


class Sql(ProceduralEnvironment[SqlTask]):
    """Write one SQL query that answers a question about a database with several tables."""

    version = "0.2.0"
    counts = {"validation": HELD_OUT, "test": HELD_OUT}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)
    forkable = True
    blocking = False

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> SqlTask:
        """Draw a question."""
        plan = series_of(draw.split, draw.difficulty, draw.secret).plan(draw.place)
        return SqlTask(
            id=draw.id, question=plan.question, domain=plan.schema.domain, variant=plan.schema.variant,
            difficulty=draw.difficulty, solution=plan.solution,
        )  # fmt: skip

    @property
    def _schema(self) -> Schema:
        return schema_of(self.task.domain, self.task.variant)

    def prompt(self) -> str:
        """Return the schema, the question and the rules."""
        tables = ";\n".join(self._schema.statements)
        return (
            "You are given an SQLite database with these tables:\n\n"
            f"```sql\n{tables};\n```\n\n"
            f"Question: {self.task.question}\n\n"
            f"Rules:\n{RULES}\n\n"
            "You may look at the database first: `describe` shows a table and `query` runs a query. Your final message "
            "is your answer. Put the query into it, in this form:\n```sql\nSELECT ...\n```"
        )

    @tool(inline=True)
    def describe(self, table: str) -> str:
        """Show the columns of a table, its number of rows and its first rows.

        Args:
            table: the name of a table.
        """
        schema = self._schema
        named = table.strip().strip('"`[]').lower()
        found = next((one for one in schema.tables.values() if one.name.lower() == named), None)
        if found is None:
            names = ", ".join(one.name for one in schema.tables.values())
            raise ToolError(f"There is no table {table[:40]!r}. Tables: {names}.")
        return _described(schema, found)

    @tool(inline=False)
    def query(self, sql: str) -> str:
        """Run a query on the database that you can see, and show its first 20 rows.

        Args:
            sql: one SELECT statement in SQLite's dialect, which may begin with WITH.
        """
        schema = self._schema
        checked = check_query(sql)
        database = _visible(schema)
        try:
            database.lock()
            names, rows = database.query(checked, SHOWN_ROWS + 1)
        finally:
            database.close()
        lines = [" | ".join(map(_shown, names)), *(" | ".join(map(_shown, row)) for row in rows[:SHOWN_ROWS])]
        count = (
            f"more than {SHOWN_ROWS} rows, the first {SHOWN_ROWS} are shown"
            if len(rows) > SHOWN_ROWS
            else _rows(len(rows))
        )
        return "\n".join([*lines, f"({count})"])

    async def grade(self, answer: str) -> Reward:
        """Compare the query of the final message with the reference on all hidden databases."""
        verdict: Verdict = await asyncio.to_thread(judge, read_query(answer), self.task.solution, self._schema)
        return Reward.of(
            float(verdict.correct),
            {
                "correct": Component(value=float(verdict.correct)),
                "runs": Component(value=float(verdict.runs), weight=0.0),
            },
        )

    @classmethod
    def oracle(cls, task: SqlTask) -> Generator[Call | Answer, StepResult, None]:
        """Give the reference query."""
        yield Answer(f"```sql\n{task.solution}\n```")

    @classmethod
    def exploits(cls, task: SqlTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the messages of `exploits.py`, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        return {name: say(message) for name, message in messages(task.domain, task.variant, task.solution).items()}

    @classmethod
    def equivalents(cls, task: SqlTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the reference in other ways, and an answer after a look at the database."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        def look_first() -> Generator[Call | Answer, StepResult, None]:
            yield Call("describe", {"table": schema_of(task.domain, task.variant).asked[0].name})
            yield Call("query", {"sql": task.solution})
            yield Answer(f"```sql\n{task.solution}\n```")

        found = {name: say(message) for name, message in right_messages(task.solution).items()}
        return {**found, "a look at the database first": look_first()}


def _visible(schema: Schema) -> Database:
    names = [table.name for table in schema.tables.values()]
    return Database(image(schema.domain, schema.variant, VISIBLE), names)


def _described(schema: Schema, table: Table) -> str:
    database = _visible(schema)
    try:
        [(count,)] = database.trusted(f"SELECT COUNT(*) FROM {table.name}")
        rows = database.trusted(f"SELECT * FROM {table.name} LIMIT {SAMPLE}")
    finally:
        database.close()
    head = " | ".join(column.name for column in table.columns)
    lines = [" | ".join(map(_shown, row)) for row in rows]
    return "\n".join([schema.create(table), f"{_rows(int(str(count)))}, of which these are some:", head, *lines])


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    text = " ".join(f"{value:.10g}".split()) if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
