"""Hooks of mkdocs.yml: pages from outside docs/, links between all pages, and diagrams drawn while building.

MkDocs reads only docs/. The specification, the READMEs of the packages, the changelog and a few others become pages
too, at the places that OUTSIDE gives them. Links keep the form that works in a checkout (`../spec/README.md`), and are
rewritten to the page of that file. A linked file or folder that is no page of its own, such as a source file, gets a
page under source/. Mermaid blocks become SVG here, so that readers need no script from a CDN.
"""

from __future__ import annotations

import ast
import functools
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]

OUTSIDE: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
    "examples/README.md": "examples.md",
    "tests/README.md": "tests.md",
    "spec/README.md": "spec/index.md",
    "spec/reference/README.md": "spec/reference.md",
    "protocol/README.md": "packages/protocol.md",
    "server/README.md": "packages/server.md",
    "client_sdk/README.md": "packages/client_sdk.md",
    "environments/README.md": "packages/environments.md",
    "trainer/README.md": "packages/trainer.md",
}
"""Which page of the site shows a file of the repository; README.md is represented by docs/index.md."""

LINK: Final = re.compile(r"(?<=\]\()(?P<target>[^)#:\s]+)(?=(#[^)\s]*)?\))")
TITLED_FENCE: Final = re.compile(r"^(```\w+) (\w+)$", re.MULTILINE)
MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".conf": "nginx"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and a page for every other file that a page links to."""
    for origin, place in places().items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / origin)))
    for target in sorted(linked_sources()):
        page = File.generated(config, source_page(target), content=source_text(target))
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the page's links to the site's pages, and draw its diagrams."""
    origin = origins().get(page.file.src_uri)
    if origin is None:
        return markdown

    def rewrite(match: re.Match[str]) -> str:
        target = resolve(origin, match["target"])
        place = places().get(target) or (source_page(target) if target in linked_sources() else None)
        if place is None:
            return match["target"]
        return posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")

    drawn = MERMAID.sub(lambda match: f'<div class="diagram">{draw(match[1])}</div>', markdown)
    return LINK.sub(rewrite, TITLED_FENCE.sub(r'\1 title="\2"', drawn))


@functools.cache
def places() -> dict[str, str]:
    """Return the site's page for each file of the repository that is a page."""
    spec = [ROOT / "spec" / "versioning.md"]
    for part in ("core", "modules", "transcripts"):
        spec += sorted((ROOT / "spec" / part).glob("*.md"))
    chapters = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).as_posix() for path in spec}
    present = {origin: place for origin, place in OUTSIDE.items() if (ROOT / origin).exists()}
    inside = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
    return {**chapters, **present, **{origin: origin.removeprefix("docs/") for origin in inside}}


@functools.cache
def origins() -> dict[str, str]:
    """Return the file of the repository behind each page of the site."""
    return {place: origin for origin, place in places().items() if origin != "README.md"}


@functools.cache
def linked_sources() -> frozenset[str]:
    """Return the files and folders that pages link to and that are not pages."""
    return frozenset(
        target
        for origin in origins().values()
        for target in links_of(origin)
        if target not in places() and (ROOT / target).exists() and not target.startswith("docs/")
    )


def links_of(origin: str) -> Iterator[str]:
    """Yield the files of the repository that a page links to."""
    for match in LINK.finditer((ROOT / origin).read_text(encoding="utf-8")):
        yield resolve(origin, match["target"])


def resolve(origin: str, target: str) -> str:
    """Return the link `target` of the file `origin`, relative to the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def source_page(target: str) -> str:
    """Return the place of the page that shows a file or folder which is not a page."""
    return f"source/{target}.md"


def source_text(target: str) -> str:
    """Return the page that shows a file, or lists a folder."""
    path = ROOT / target
    head = f"---\nsearch:\n  exclude: true\n---\n# `{target}`\n\n"
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if entry.name != "__pycache__" and entry.name[0] != ".")
        return head + "".join(f"* `{entry.name}{'/' * entry.is_dir()}` {summary(entry)}\n" for entry in entries)
    text = path.read_text(encoding="utf-8")
    fence = "`" * max(4, 1 + max(map(len, re.findall("`+", text)), default=0))  # longer than any in the text
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"


def summary(path: Path) -> str:
    """Return the first line of a module's or a package's docstring."""
    module = path / "__init__.py" if path.is_dir() else path
    if module.suffix != ".py" or not module.exists():
        return ""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


@functools.cache
def draw(diagram: str) -> str:
    """Return a Mermaid diagram as one line of SVG, with an id that no other diagram of a page has."""
    svg = str(mermaidx.render(diagram).svg())
    name = f"diagram-{len(diagram)}-{sum(map(ord, diagram)) % 10_000}"
    first = re.search(r'<svg[^>]*\bid="([^"]+)"', svg)
    if first is not None:
        svg = svg.replace(first[1], name)
    return re.sub(r">\s+<", "><", svg).replace(os.linesep, " ")
