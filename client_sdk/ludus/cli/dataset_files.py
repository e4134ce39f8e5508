"""Files of datasets: JSON lines, and Parquet whose columns have the same type in every file of a form."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import typer

__all__ = ["FileKind", "whole_file"]


FileKind = Literal["jsonl", "parquet"]
"""The kinds of files."""

CONVERSATIONS: Final = frozenset({"messages", "chosen", "rejected"})
"""The columns that hold messages with calls."""


def table_of(arrow: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a table of pyarrow.

    A seed is an integer also if no row has one, and messages have the fields of calls also if none is made: otherwise
    columns would have other types from file to file, and files could not be joined.

    Raises:
        BadParameter: values of one column have types that do not fit together, such as a text and a list.
    """
    columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        try:
            kind = _conversation(arrow) if name in CONVERSATIONS else arrow.array(values).type
            if name == "seed" or name.endswith("_seed"):
                kind = arrow.int64()
            elif name == "ludus":
                seed = arrow.field("seed", arrow.int64())
                kind = arrow.struct([seed if field.name == "seed" else field for field in kind])
            columns[name] = arrow.array(values, kind)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
            raise typer.BadParameter(
                f"the column {name} has values of several types, which Parquet cannot hold ({error}); say --to jsonl"
            ) from None
    return arrow.table(columns)


def _conversation(arrow: Any) -> Any:
    """Return the type of a list of messages as OpenAI's Chat Completions API has them."""
    function = arrow.struct([("name", arrow.string()), ("arguments", arrow.string())])
    call = arrow.struct([("id", arrow.string()), ("type", arrow.string()), ("function", function)])
    message = [("role", arrow.string()), ("content", arrow.string()), ("tool_call_id", arrow.string())]
    return arrow.list_(arrow.struct([*message, ("tool_calls", arrow.list_(call))]))


@contextmanager
def whole_file(out: Path, kind: FileKind) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes a row. The file replaces `out` at the end, unless an exception leaves the block.

    JSON lines are written as they come; the rows of a Parquet file are kept until the end.

    Raises:
        BadParameter: the file cannot be written, or pyarrow is missing.
    """
    part = out.with_name(f"{out.name}.part")
    parquet = _pyarrow() if kind == "parquet" else None
    try:
        file = part.open("w", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {out}: {error.strerror}") from None
    try:
        with file:
            rows: list[dict[str, Any]] = []
            if parquet is None:
                yield lambda row: print(json.dumps(row, ensure_ascii=False), file=file)
            else:
                yield lambda row: rows.append(_flat(row))
        if parquet is not None:
            arrow, writer = parquet
            writer.write_table(table_of(arrow, rows), part)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet, which only this option needs."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise typer.BadParameter("Parquet needs pyarrow: pip install pyarrow, or say --to jsonl") from None


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose tools are JSON text, because Parquet would give all schemas all fields."""
    varying = {"tools", "responses_create_params", "completions"}
    return {name: json.dumps(value) if name in varying else value for name, value in row.items()}
