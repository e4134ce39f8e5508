"""The pages of what is in the versions of a package: their files, and what changed from one version to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, urlencode

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.registry.wheel_contents import FileText, WheelContents, WheelFile, wheel_contents
from ludus.hub.site.differences import Change, changes
from ludus.hub.site.line_differences import Comparison, Row, compare, in_pages, is_too_long, numbered
from ludus.hub.site.site import Site, sentence, short_text, whole_number
from ludus.protocol.errors import NotFound
from ludus.registry.types.errors import BlobMissing, WheelRefused
from ludus.registry.types.packages import VersionSummary

TEXT_BYTES: Final = 30_000
"""The most bytes of lines on a page."""

CARD_BYTES: Final = 6_000
"""The most bytes of the differences of a card on the page of all changes."""

LIST_BYTES: Final = 12_000
"""The most bytes of a list of files on a page."""

CHOICES: Final = 60
"""The most versions to choose from."""

_LONGEST_PATH: Final = 400
_ROW_BYTES: Final = 170
"""The bytes of a row of a list without the paths in it."""


@dataclass(frozen=True)
class Compared:
    """Two versions of a package.

    Attributes:
        record: the later one, of which the page is.
        before: the other one.
        versions: the versions to choose from.
    """

    record: VersionRecord
    before: VersionRecord
    versions: list[str]

    @property
    def address(self) -> str:
        """The path of the page of all changes, without its query."""
        return f"/{self.record.id}/versions/{self.record.version}/diff"


@dataclass(frozen=True)
class FileChange:
    """One file that differs.

    Attributes:
        kind: what happened to it.
        path: its path.
        before, after: its sizes; None where it does not exist.
        query: the part of the query that names it.
    """

    kind: Literal["added", "removed", "changed"]
    path: str
    before: int | None
    after: int | None
    query: str


class CodePages:
    """The pages of files and of changes."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def difference(self, request: Request) -> Response:
        """Return what changed from one version to another: in the manifest, in the card, and which files."""
        two = self._compared(request)
        files, problem = self._changed_files(two)
        sizes = [len(escape(file.path)) + len(file.query) + _ROW_BYTES for file in files]
        pages = in_pages(files, sizes, LIST_BYTES)
        number = _page(request, len(pages))
        counts = {kind: sum(file.kind == kind for file in files) for kind in ("added", "removed", "changed")}
        return self._site.page(
            request, "difference.html", two=two, files=pages[number - 1], counts=counts, page=number,
            pages=len(pages), problem=problem, query=_query(**{"from": two.before.version}),
            facts=_facts(two) if number == 1 else None,
        )  # fmt: skip

    def card(self, request: Request) -> Response:
        """Return what changed in the card."""
        two = self._compared(request)
        return self._texts(request, two, "Card", FileText(two.before.card), FileText(two.record.card))

    def file(self, request: Request) -> Response:
        """Return what changed in one file."""
        two, path = self._compared(request), _path(request)
        with self._contents(two.before) as before, self._contents(two.record) as after:
            files = before.files.get(path), after.files.get(path)
            if files == (None, None):
                after.file(path)
            old, new = before.text(path), after.text(path)
        return self._texts(request, two, path, old, new, files, _query(path=path))

    def files(self, request: Request) -> Response:
        """Return the list of the files of a version."""
        record = self._record(request)
        with self._contents(record) as contents:
            files = list(contents.files.values())
        named = [(file, _query(path=file.path)) for file in files]
        sizes = [len(escape(one.path)) + len(query) + len(record.id) + _ROW_BYTES for one, query in named]
        pages = in_pages(named, sizes, TEXT_BYTES)
        number = _page(request, len(pages))
        return self._site.page(
            request, "files.html", record=record, files=pages[number - 1], count=len(files),
            size=sum(file.size for file in files), page=number, pages=len(pages),
            download=self._site.hub.file_url(request, record.sha256, record.filename),
        )  # fmt: skip

    def text(self, request: Request) -> Response:
        """Return the text of one file of a version."""
        record, path = self._record(request), _path(request)
        with self._contents(record) as contents:
            file, content = contents.file(path), _bounded(contents.text(path))
        rows = numbered(content.text) if content.text is not None else []
        pages = in_pages(rows, [row.size for row in rows], TEXT_BYTES)
        number = _page(request, len(pages))
        return self._site.page(
            request, "file.html", record=record, file=file, problem=content.problem, rows=pages[number - 1],
            page=number, pages=len(pages), query=_query(path=path),
        )  # fmt: skip

    def _texts(
        self, request: Request, two: Compared, title: str, old: FileText, new: FileText,
        files: tuple[WheelFile | None, WheelFile | None] = (None, None), query: str = "",
    ) -> Response:  # fmt: skip
        """Return the differences between two texts: of a file that `query` names, or of the cards."""
        compared = _compared_texts(old, new)
        rows: list[Row] = compared.rows if compared else []
        pages = in_pages(rows, [row.size for row in rows], TEXT_BYTES)
        number, common = _page(request, len(pages)), _query(**{"from": two.before.version})
        here = f"{two.address}/file?{common}&{query}" if query else f"{two.address}/card?{common}"
        return self._site.page(
            request, "file_difference.html", two=two, title=title, compared=compared, old_file=files[0],
            new_file=files[1], problem=_bounded(old).problem or _bounded(new).problem, rows=pages[number - 1],
            page=number, pages=len(pages), query=query, common=common, here=here,
        )  # fmt: skip

    def _record(self, request: Request) -> VersionRecord:
        parts = request.path_params
        return self._site.catalog(request).version(parts["owner"], parts["name"], parts["version"])

    def _compared(self, request: Request) -> Compared:
        owner, name = request.path_params["owner"], request.path_params["name"]
        catalog = self._site.catalog(request)
        record = catalog.version(owner, name, request.path_params["version"])
        versions = catalog.versions(owner, name)
        wanted = short_text(request, "from", 60) or previous(versions, record.version) or record.version
        before = catalog.version(owner, name, wanted)
        names = [version.version for version in versions[:CHOICES]]
        return Compared(record, before, names if before.version in names else [*names, before.version])

    def _changed_files(self, two: Compared) -> tuple[list[FileChange], str]:
        """Return the files that differ, and why they cannot be compared; empty if they can."""
        if two.before.sha256 == two.record.sha256:
            return [], ""
        try:
            with self._contents(two.before) as before, self._contents(two.record) as after:
                return list(_file_changes(before.files, after.files)), ""
        except (BlobMissing, WheelRefused) as error:
            return [], sentence(error.message)

    @contextmanager
    def _contents(self, record: VersionRecord) -> Iterator[WheelContents]:
        with self._site.hub.blobs.local(record.sha256) as path, wheel_contents(path) as contents:
            yield contents


@dataclass(frozen=True)
class Facts:
    """What changed besides the files.

    Attributes:
        changes: the first fields of the manifest that differ.
        total: the number of all of them.
        card: what changed in the card; None if it is too long to compare.
        rows: the first rows of that.
        is_cut: whether there are more rows.
    """

    changes: list[Change]
    total: int
    card: Comparison | None
    rows: list[Row]
    is_cut: bool


def _facts(two: Compared) -> Facts:
    found, total = changes(two.before.manifest, two.record.manifest)
    card = _compared_texts(FileText(two.before.card), FileText(two.record.card))
    start = in_pages(card.rows, [row.size for row in card.rows], CARD_BYTES) if card else [[]]
    return Facts(found, total, card, start[0], len(start) > 1)


def previous(versions: list[VersionSummary], version: str) -> str:
    """Return the version before another one; empty if there is none."""
    names = [one.version for one in versions]
    place = names.index(version) + 1 if version in names else len(names)
    return names[place] if place < len(names) else ""


def _file_changes(before: dict[str, WheelFile], after: dict[str, WheelFile]) -> Iterator[FileChange]:
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        query = _query(path=path)
        if old is None or new is None:
            kind: Literal["added", "removed"] = "added" if old is None else "removed"
            yield FileChange(kind, path, old.size if old else None, new.size if new else None, query)
        elif old.digest != new.digest:
            yield FileChange("changed", path, old.size, new.size, query)


def _compared_texts(old: FileText, new: FileText) -> Comparison | None:
    """Return the differences between two texts; None if one of them cannot be shown."""
    old, new = _bounded(old), _bounded(new)
    return compare(old.text, new.text) if old.text is not None and new.text is not None else None


def _bounded(content: FileText) -> FileText:
    if content.text is not None and is_too_long(content.text):
        return FileText(None, "it has too many lines")
    return content


def _path(request: Request) -> str:
    """Return the path of a file from the query. Nothing is stripped, because names of files may hold anything."""
    path = request.query_params.get("path", "")
    if not path or len(path) > _LONGEST_PATH:
        raise NotFound("this version has no such file")
    return path


def _page(request: Request, pages: int) -> int:
    return min(whole_number(request, "page", 1), pages)


def _query(**values: str) -> str:
    return urlencode(values, quote_via=quote)
