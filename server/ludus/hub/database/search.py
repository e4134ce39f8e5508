"""Full-text search over packages: FTS5 in SQLite, tsvector in PostgreSQL, with the same results.

Both get text without punctuation, so that their different rules for words do not matter. Each word of a query is a
prefix, and a package must have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, func, inspect, literal_column, select, table, text
from sqlalchemy.orm import Session, aliased

from ludus.hub.database.tables import Package, PackageTag

QUERY_WORDS: Final = 12
"""The most words of a query; the others are ignored."""

BODY_WORDS: Final = 5_000
"""The most words of a card that are indexed."""

_WORD: Final = re.compile(r"[^\W_]+")


def words(value: str, most: int = BODY_WORDS) -> list[str]:
    """Return the words of a text in lower case, of at most 40 characters each."""
    return [match.group()[:40].lower() for _, match in zip(range(most), _WORD.finditer(value), strict=False)]


def owner_tag(owner: str) -> str:
    """Return the tag that all packages of an owner have."""
    return f"owner:{owner}"


def durability_tag(kind: str) -> str:
    """Return the tag of packages with an environment of this durability."""
    return f"durability:{kind}"


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
    head = " || ".join(
        f"setweight(to_tsvector('simple', CAST(:{field} AS TEXT)), '{weight}')"
        for field, weight in (("name", "A"), ("tags", "B"), ("description", "C"))
    )
    body = "setweight(to_tsvector('simple', CAST(:body AS TEXT)), 'D')"
    session.execute(
        text(
            f"INSERT INTO package_search (package_id, head, document) VALUES (:id, {head}, {head} || {body}) "
            "ON CONFLICT (package_id) DO UPDATE SET head = excluded.head, document = excluded.document"
        ),
        parts,
    )


def matching(
    session: Session, hidden: Select[int], query: str, tags: Sequence[str], offset: int, limit: int
) -> tuple[list[str], int]:
    """Return the summaries of one page of the packages that match a query and have all tags, and the number of all.

    Without words in the query, the packages that were updated last come first; otherwise the best matches.

    Args:
        session: a transaction.
        hidden: the query for the ids of packages that are left out.
        query: words.
        tags: the tags that packages must have.
        offset: how many packages to skip.
        limit: the most packages.
    """
    wanted = words(query, QUERY_WORDS)
    if not wanted:
        hits = _Hits("packages", "packages.id", "packages.id > 0", "packages.updated_at DESC", {})
    elif session.get_bind().dialect.name == "sqlite":
        match = " ".join(f'"{word}"*' for word in wanted)
        hits = _Hits("package_search", "package_search.rowid", "package_search MATCH :query", _BM25, {"query": match})
    else:
        match = " & ".join(f"{word}:*" for word in wanted)
        condition = "package_search.document @@ to_tsquery('simple', :query)"
        session.execute(text("SET LOCAL enable_seqscan = off"))  # it would read documents, which are out of line
        hits = _Hits("package_search", "package_search.package_id", condition, _TS_RANK, {"query": match}, True)
    return hits.page(session, hidden, tags, offset, limit)


_BM25: Final = "bm25(package_search, 8.0, 4.0, 2.0, 1.0)"
_TS_RANK: Final = "ts_rank(package_search.head, to_tsquery('simple', :query)) DESC"
"""The order of matches. In PostgreSQL, ranking by the short `head` took a quarter of the time of the whole document."""


@dataclass(frozen=True)
class _Hits:
    """A query for ids of packages: its table, its column of ids, its condition, its order, and its parameters."""

    table: str
    id: str
    condition: str
    order: str
    values: dict[str, Any]
    counts: bool = False
    """Whether the query counts all hits on the way, which is faster in PostgreSQL and slower in SQLite."""

    def page(
        self, session: Session, hidden: Select[int], tags: Sequence[str], offset: int, limit: int
    ) -> tuple[list[str], int]:
        key: ColumnElement[int] = literal_column(self.id)
        source: FromClause = table(self.table)
        for tag in dict.fromkeys(tags):
            tagged = aliased(PackageTag)
            source = source.join(inspect(tagged).selectable, (tagged.package_id == key) & (tagged.tag == tag))
        shown = text(self.condition), key.not_in(hidden)
        count = select(func.count()).select_from(source).where(*shown)
        if self.table == "packages":  # far fewer are hidden than shown, and an index has them
            every = select(func.count()).select_from(source).where(text(self.condition))
            left_out = every.where(key.in_(hidden))
            count = select(every.scalar_subquery() - left_out.scalar_subquery())
        total = None if self.counts else int(session.execute(count, self.values).scalar_one())
        total_of_all: ColumnElement[int] = literal_column("count(*) OVER ()" if self.counts else "0")
        chosen = select(key, total_of_all).select_from(source).where(*shown)
        chosen = chosen.order_by(text(self.order), key.desc()).limit(limit).offset(offset)
        hits = session.execute(chosen, self.values).all()
        if total is None:
            total = int(hits[0][1] if hits else session.execute(count, self.values).scalar_one())
        ids = [hit[0] for hit in hits]
        rows = session.execute(select(Package.id, Package.summary).where(Package.id.in_(ids)))
        summaries = {row.id: row.summary for row in rows}
        return [summaries[one] for one in ids if one in summaries], total
