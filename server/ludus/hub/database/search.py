"""Full-text search over packages: FTS5 in SQLite, tsvector in PostgreSQL. Both find the same, but rank differently.

Both get text without punctuation, so that their different rules for words do not matter. Each word of a query is a
prefix, and a package must have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, func, inspect, literal_column, select, table, text
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

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


def latest(
    session: Session, visible: ColumnElement[bool], tags: Sequence[str], offset: int, limit: int
) -> tuple[list[str], int]:
    """Return the summaries of one page of the packages that have all tags, and the number of all.

    The packages that were updated last come first.

    Args:
        session: a transaction.
        visible: the condition for packages that are not left out.
        tags: the tags that packages must have.
        offset: how many packages to skip.
        limit: the most packages.
    """
    source = _with_tags(inspect(Package).selectable, Package.id, tags)
    total = session.execute(select(func.count()).select_from(source).where(visible)).scalar_one()
    chosen = select(Package.id).select_from(source).where(visible)
    chosen = chosen.order_by(Package.updated_at.desc(), Package.id.desc()).limit(limit).offset(offset)
    return _summaries(session, session.scalars(chosen).all()), total


def matching(
    session: Session, hidden: Select[int], wanted: Sequence[str], tags: Sequence[str], offset: int, limit: int
) -> tuple[list[str], int]:
    """Return the summaries of one page of the packages that have all words and all tags, and the number of all.

    The best matches come first.

    Args:
        session: a transaction.
        hidden: the query for the ids of packages that are left out.
        wanted: words, from `query_words`; at least one.
        tags: the tags that packages must have.
        offset: how many packages to skip.
        limit: the most packages.
    """
    if session.get_bind().dialect.name == "sqlite":
        match = " ".join(f'"{word}"*' for word in wanted)
        hits = _Hits("rowid", "package_search MATCH :query", _BM25, {"query": match})
    else:
        match = " & ".join(f"{word}:*" for word in wanted)
        condition = "package_search.document @@ to_tsquery('simple', :query)"
        session.execute(text("SET LOCAL enable_seqscan = off"))  # it would read documents, which are out of line
        hits = _Hits("package_id", condition, _TS_RANK, {"query": match}, True)
    return hits.page(session, hidden, tags, offset, limit)


def query_words(query: str) -> list[str]:
    """Return the words of a query."""
    return words(query, QUERY_WORDS)


_BM25: Final = "bm25(package_search, 8.0, 4.0, 2.0, 1.0)"
_TS_RANK: Final = "ts_rank(package_search.head, to_tsquery('simple', :query)) DESC"
"""The order of matches. In PostgreSQL, ranking by the short `head` took a quarter of the time of the whole document."""


@dataclass(frozen=True)
class _Hits:
    """A query of the search index: its column of packages' ids, its condition, its order, and its parameters."""

    id: str
    condition: str
    order: str
    values: dict[str, Any]
    counts: bool = False
    """Whether the query counts all hits on the way, which is faster in PostgreSQL and slower in SQLite."""

    def page(
        self, session: Session, hidden: Select[int], tags: Sequence[str], offset: int, limit: int
    ) -> tuple[list[str], int]:
        key: ColumnElement[int] = literal_column(f"package_search.{self.id}")
        source = _with_tags(table("package_search"), key, tags)
        shown = text(self.condition), key.not_in(hidden)
        count = select(func.count()).select_from(source).where(*shown)
        total = None if self.counts else int(session.execute(count, self.values).scalar_one())
        total_of_all: ColumnElement[int] = literal_column("count(*) OVER ()" if self.counts else "0")
        chosen = select(key, total_of_all).select_from(source).where(*shown)
        chosen = chosen.order_by(text(self.order), key.desc()).limit(limit).offset(offset)
        hits = session.execute(chosen, self.values).all()
        if total is None:
            total = int(hits[0][1] if hits else session.execute(count, self.values).scalar_one())
        return _summaries(session, [hit[0] for hit in hits]), total


def _with_tags(
    source: FromClause, key: ColumnElement[int] | InstrumentedAttribute[int], tags: Sequence[str]
) -> FromClause:
    for tag in dict.fromkeys(tags):
        tagged = aliased(PackageTag)
        source = source.join(inspect(tagged).selectable, (tagged.package_id == key) & (tagged.tag == tag))
    return source


def _summaries(session: Session, ids: Sequence[int]) -> list[str]:
    """Return the summaries of packages, in the order of their ids here."""
    rows = session.execute(select(Package.id, Package.summary).where(Package.id.in_(ids)))
    found = {row.id: row.summary for row in rows}
    return [found[id_] for id_ in ids if id_ in found]
