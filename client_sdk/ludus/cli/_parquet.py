"""Tables for Parquet whose columns have the same type in every file of a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer


def table_of(arrow: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a table of pyarrow.

    A seed is an integer also if no row has one: otherwise its column would have no type, and files with and without
    seeds could not be joined.

    Raises:
        BadParameter: values of one column have types that do not fit together, such as a text and a list.
    """
    columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        try:
            kind = arrow.array(values).type
            if name == "ludus":
                seed = arrow.field("seed", arrow.int64())
                kind = arrow.struct([seed if field.name == "seed" else field for field in kind])
            columns[name] = arrow.array(values, kind)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
            raise typer.BadParameter(
                f"the column {name} has values of several types, which Parquet cannot hold ({error}); say --to jsonl"
            ) from None
    return arrow.table(columns)
