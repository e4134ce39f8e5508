"""Full-text search over packages: FTS5 in SQLite, tsvector in PostgreSQL, with the same results.

Both get text without punctuation, so that their different rules for words do not matter. Each word of a query is a
prefix, and a package must have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

QUERY_WORDS: Final = 12
"""The most words of a query; the others are ignored."""

BODY_WORDS: Final = 5_000
"""The most words of a card that are indexed."""

_WORD: Final = re.compile(r"[^\W_]+")


def words(value: str, most: int = BODY_WORDS) -> list[str]:
    """Return the words of a text in lower case, of at most 40 characters each."""
    return [match.group()[:40].lower() for _, match in zip(range(most), _WORD.finditer(value), strict=False)]


def index_package(
    session: Session, package_id: int, name: str, tags: Sequence[str], description: str, body: str
) -> None:
    """Put a package into the search index in place of what it had there."""
    parts = {
        "id": package_id,
        "name": " ".join(words(name)),
        "tags": " ".join(words(" ".join(tags))),
        "description": " ".join(words(description)),
        "body": " ".join(words(body)),
    }
    if session.get_bind().dialect.name == "sqlite":
        session.execute(text("DELETE FROM package_search WHERE rowid = :id"), {"id": package_id})
        session.execute(
            text(
                "INSERT INTO package_search (rowid, name, tags, description, body) "
                "VALUES (:id, :name, :tags, :description, :body)"
            ),
            parts,
        )
        return
    weighted = " || ".join(
        f"setweight(to_tsvector('simple', CAST(:{field} AS TEXT)), '{weight}')"
        for field, weight in (("name", "A"), ("tags", "B"), ("description", "C"), ("body", "D"))
    )
    session.execute(
        text(
            f"INSERT INTO package_search (package_id, document) VALUES (:id, {weighted}) "
            "ON CONFLICT (package_id) DO UPDATE SET document = excluded.document"
        ),
        parts,
    )


def matching(session: Session, query: str, tags: Sequence[str], offset: int, limit: int) -> tuple[list[str], int]:
    """Return the summaries of one page of the packages that match a query and have all tags, and the number of all.

    Without words in the query, the packages that were updated last come first; otherwise the best matches.
    """
    sqlite = session.get_bind().dialect.name == "sqlite"
    wanted = words(query, QUERY_WORDS)
    tables, conditions, order = ["packages"], ["packages.latest <> ''"], "packages.updated_at DESC, packages.id DESC"
    values: dict[str, object] = {"offset": offset, "limit": limit}
    if wanted and sqlite:
        tables.append("JOIN package_search ON package_search.rowid = packages.id")
        conditions.append("package_search MATCH :query")
        order = "bm25(package_search, 8.0, 4.0, 2.0, 1.0), packages.id"
        values["query"] = " ".join(f'"{word}"*' for word in wanted)
    elif wanted:
        tables.append("JOIN package_search ON package_search.package_id = packages.id")
        conditions.append("package_search.document @@ to_tsquery('simple', :query)")
        order = "ts_rank(package_search.document, to_tsquery('simple', :query)) DESC, packages.id"
        values["query"] = " & ".join(f"{word}:*" for word in wanted)
    for number, tag in enumerate(dict.fromkeys(tags)):
        alias = f"tag{number}"
        tables.append(f"JOIN package_tags {alias} ON {alias}.package_id = packages.id AND {alias}.tag = :{alias}")
        values[alias] = tag
    source = f"FROM {' '.join(tables)} WHERE {' AND '.join(conditions)}"
    total = session.execute(text(f"SELECT count(*) {source}"), values).scalar_one()
    if offset >= total:
        return [], total
    rows = session.execute(
        text(f"SELECT packages.summary {source} ORDER BY {order} LIMIT :limit OFFSET :offset"), values
    ).scalars()
    return list(rows), total
