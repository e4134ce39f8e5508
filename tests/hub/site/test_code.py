"""Files of versions and the changes between them: complete, bounded, and safe to look at, whatever is in the wheels."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hub_sites import Page, SiteHub, as_page
from hubs import WheelParts, new_name, published, release
from hypothesis import example, given
from hypothesis import strategies as st

from ludus.hub.registry.wheel_contents import MOST_TEXT, wheel_contents
from ludus.hub.site.badges import KEPT_SECONDS
from ludus.hub.site.line_differences import MOST_PIECES, NO_NEWLINE, compare, in_pages, numbered, visible
from ludus.protocol.errors import NotFound
from ludus.registry.types.errors import WheelRefused

LARGEST_PAGE = 60_000
STATIC = 17_500
"""About the bytes of the files that every page loads; `test_pages.py` weighs them exactly."""


def uploaded(site: SiteHub, package: str, version: str, more: dict[str, bytes], card: str = "# Coin\n") -> None:
    parts = WheelParts(package.replace("/", "-"), version, more=more)
    with httpx.Client(base_url=site.url, timeout=60) as client:
        published(client, release(package, version, parts=parts, card=card))


def small(answer: httpx.Response, status: int = 200) -> Page:
    """Return an answer as a page, which must be small and whose lines cannot be anything but text."""
    page = as_page(answer, status)
    assert len(answer.content) + STATIC <= LARGEST_PAGE
    assert len(list(page.all("script"))) == 2
    assert not {"img", "iframe", "svg", "style"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") or name == "style" for _, one in page.elements for name in one)
    return page


def marked(answer: httpx.Response, tag: str) -> list[str]:
    """Return the lines that are marked as added (`ins`) or as removed (`del`)."""
    return [Page(one).text for one in re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)]


# ── texts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXTS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12).map("\n".join)


def longest_common(old: list[str], new: list[str]) -> int:
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for x, one in enumerate(old):
        for y, other in enumerate(new):
            table[x + 1][y + 1] = table[x][y] + 1 if one == other else max(table[x][y + 1], table[x + 1][y])
    return table[-1][-1]


def pieces(text: str) -> list[str]:
    lines = text.split("\n")
    return [*lines, NO_NEWLINE] if lines[-1] else lines[:-1]


@given(TEXTS, TEXTS)
@example("a\nb\nc\n", "a\nc\n")
@example("x", "x\n")
def test_an_edit_is_the_shortest_one_and_says_what_was_removed_and_added(before: str, after: str) -> None:
    old, new, found = pieces(before), pieces(after), compare(before, after)
    common = longest_common(old, new)
    assert (found.removed, found.added) == (len(old) - common, len(new) - common)
    assert bool(found.rows) is (before != after)


def test_rows_hold_each_change_with_its_neighbors_and_its_place() -> None:
    before = "".join(f"line {number}\n" for number in range(1, 41))
    after = before.replace("line 5\n", "line five\n").replace("line 30\n", "").replace("line 40\n", "line 40")
    rows = [(row.kind, Page(str(row.html)).text) for row in compare(before, after).rows]
    assert rows[:9] == [
        ("place", "Line 2"), ("same", "  line 2"), ("same", "  line 3"), ("same", "  line 4"), ("removed", "- line 5"),
        ("added", "+ line five"), ("same", "  line 6"), ("same", "  line 7"), ("same", "  line 8"),
    ]  # fmt: skip
    assert ("removed", "- line 30") in rows
    assert ("place", "Line 37 (before: 38)") in rows
    assert rows[-1] == ("added", "+ (no newline at the end)")
    assert [text for kind, text in rows if kind in ("removed", "added")] == [
        "- line 5", "+ line five", "- line 30", "+ (no newline at the end)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\n" * 9_000 + "b\n" * 9_000, "b\n" * 9_000 + "a\n" * 9_000),
        ("".join(f"{number}\n" for number in range(9_000)), "".join(f"{-number}\n" for number in range(1, 9_000))),
        ("ab\nba\n" * 5_000, "ba\nab\nab\n" * 5_000),
    ],
)
def test_texts_without_a_short_edit_are_removed_and_added_as_a_whole(before: str, after: str) -> None:
    found = compare(before, after)
    assert found.is_coarse
    assert [row.kind for row in found.rows if row.kind in ("removed", "added")] == (
        ["removed"] * found.removed + ["added"] * found.added
    )


def test_scattered_changes_of_a_long_text_are_lined_up() -> None:
    before = "".join(f"{number}\n" for number in range(5_000))
    found = compare(before, re.sub(r"(?m)^(\d+50)$", r"-\1", before))
    assert (found.removed, found.added, found.is_coarse) == (49, 49, False)


def test_a_change_far_inside_a_long_line_is_shown() -> None:
    before = "x = '" + "a" * 100_000 + "'\n"
    found = compare(before, before.replace("aaa'", "aab'"))
    changed = [Page(str(row.html)).text for row in found.rows if row.kind in ("removed", "added")]
    assert [text[-3:] for text in changed] == ["aa'", "ab'"]
    assert max(map(len, changed)) < 500


@pytest.mark.parametrize(
    "text", ["\u202e", "\u200b", "\u2066", "\x1b[31m", "\r", "\x00", "\ufeff", "\u00a0", "\U000e0041"]
)
def test_what_cannot_be_seen_is_shown_as_its_escape(text: str) -> None:
    shown = visible(f"a{text}<b>é😀\t")
    assert shown == f"a<mark>{ascii(text[0])[1:-1]}</mark>{text[1:]}&lt;b&gt;é😀\t"


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_visible_text_is_text_alone(text: str) -> None:
    page = Page(str(visible(text)))
    assert {tag for tag, _ in page.elements} <= {"mark"}
    assert all(char.isprintable() or char == "\t" for char in page.text)


def test_a_text_is_numbered_and_its_pages_hold_every_line_once() -> None:
    rows = numbered("".join(f"{number} <\n" for number in range(1, 2_001)))
    assert [str(rows[place].html) for place in (0, 999, 1999)] == [
        "   1  1 &lt;", "1000  1000 &lt;", "2000  2000 &lt;",
    ]  # fmt: skip
    pages = in_pages(rows, [row.size for row in rows], 5_000)
    assert [row for page in pages for row in page] == rows
    assert all(sum(row.size for row in page) <= 5_000 for page in pages)
    assert in_pages([], [], 10) == [[]]
    assert in_pages(["huge", "small"], [99, 1], 10) == [["huge"], ["small"]]


# ── wheels ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def archive(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "a.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return path


def test_a_file_that_unpacks_to_much_is_not_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path, {"bomb.py": b"#" * 64 * MOST_TEXT, "fits.py": b"#" * MOST_TEXT})
    with wheel_contents(path) as contents:
        assert contents.text("bomb.py").problem == "it is larger than 512 KiB"
        assert contents.text("fits.py").text == "#" * MOST_TEXT
        with pytest.raises(NotFound):
            contents.file("../../etc/passwd")


@pytest.mark.parametrize("at", [0, 45, 60, -30, -10])
def test_a_broken_archive_is_refused_with_a_reason(tmp_path: Path, at: int) -> None:
    path = archive(tmp_path, {"a.py": b"print(1)\n" * 50})
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(WheelRefused, match="cannot be read"), wheel_contents(path) as contents:
        contents.text("a.py")


def test_files_with_one_checksum_are_not_taken_for_the_same(site: SiteHub, browser: httpx.Client) -> None:
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    package = f"local/{new_name('crc')}"
    uploaded(site, package, "1.0.0", {"word.txt": b"plumless"})
    uploaded(site, package, "1.1.0", {"word.txt": b"buckeroo"})
    assert "word.txt" in small(browser.get(f"/{package}/versions/1.1.0/diff")).text


# ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────────

EVIL = "evil \"'&<script>alert(1)</script>\u202e %2f+#?.py"
"""The name of a file, which a wheel may have."""


def test_changes_of_code_are_listed_and_shown(site: SiteHub, browser: httpx.Client) -> None:
    package = f"local/{new_name('code')}"
    old = {"gone.py": b"x = 1\n", "pkg/kept.py": b"same\n", "pkg/data.bin": b"\0\1", EVIL: b"a\n</pre>\n"}
    new = {"new.py": b"import os\n", "pkg/kept.py": b"same\n", "pkg/data.bin": b"\0\2\3", EVIL: b"<b>\n</pre>\n"}
    uploaded(site, package, "1.0.0", old, card="# Coin\n\nfair\n")
    uploaded(site, package, "1.1.0", new, card="# Coin\n\n</pre><script>x</script> ![x](//evil.example)\n")
    where = f"/{package}/versions/1.1.0/diff"
    answer = browser.get(f"{where}?from=1.0.0")
    page = small(answer)
    assert "3 changed, 1 added, 1 removed" in page.text
    for path in ("gone.py", "new.py", "pkg/data.bin", "*.dist-info/METADATA"):
        assert path in page.text
    assert "kept.py" not in page.text, "nor is anything else that is the same"
    assert marked(answer, "del") == ["- fair"]
    assert marked(answer, "ins") == ["+ </pre><script>x</script> ![x](//evil.example)"]

    links = [one["href"] for one in page.all("a") if "/diff/file?" in one["href"]]
    assert len(links) == 5
    titles = {Page(browser.get(link).text).text.partition("·")[0].strip() for link in links}
    assert {title.partition(":")[0] for title in titles} >= {"gone.py", "new.py"}
    for link in links:
        small(browser.get(link))
    changed = browser.get(f"{where}/file?from=1.0.0&path={quote(EVIL)}")
    assert (marked(changed, "del"), marked(changed, "ins")) == (["- a"], ["+ <b>"])
    assert marked(browser.get(f"{where}/file?path=new.py"), "ins") == ["+ import os"]
    assert marked(browser.get(f"{where}/file?path=gone.py"), "del") == ["- x = 1"]
    binary = small(browser.get(f"{where}/file?path=pkg/data.bin")).text
    assert "it is not text" in binary
    assert "It has 2 B in 1.0.0 and 3 B in 1.1.0" in binary
    assert "Nothing changed" in small(browser.get(f"{where}/file?path=pkg/kept.py")).text
    for path in ("nope.py", "", "../secret", "x" * 5_000, "*.dist-info/RECORD"):
        assert "Nothing here" in small(browser.get(f"{where}/file", params={"path": path}), 404).text


def test_every_file_of_a_version_can_be_read(site: SiteHub, browser: httpx.Client) -> None:
    package = f"local/{new_name('read')}"
    more = {
        EVIL: b"<img src=x onerror=alert(1)>", "long.py": b"".join(b"x = %d\n" % number for number in range(9_000)),
        "empty.py": b"", "latin.txt": "é".encode("latin-1"), "lines.txt": b"\n" * (MOST_PIECES + 1),
    }  # fmt: skip
    uploaded(site, package, "1.0.0", more)
    where = f"/{package}/versions/1.0.0/files"
    assert where in {one["href"] for one in as_page(browser.get(f"/{package}")).all("a")}
    listed = small(browser.get(where))
    links = [one["href"] for one in listed.all("a") if "/files/text?" in one["href"]]
    assert len(links) == len(more) + 4
    texts = [small(browser.get(link)).text for link in links]
    for wanted in ("<img src=x onerror=alert(1)>", "(no newline at the end)", "The file is empty", "class Toss",
                   "it is not text in UTF-8", "it has too many lines", "Metadata-Version"):  # fmt: skip
        assert any(wanted in text for text in texts), wanted
    found, page = [], 1
    while True:
        answer = small(browser.get(f"{where}/text?path=long.py&page={page}"))
        found += re.findall(r"x = (\d+)", answer.text)
        page += 1
        if not any(one.get("rel") == "next" for one in answer.all("a")):
            break
    assert found == [str(number) for number in range(9_000)]
    for path in ("nope", "", "../x"):
        assert "Nothing here" in small(browser.get(f"{where}/text", params={"path": path}), 404).text


def test_the_bounds_are_those_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "hub.md").read_text()
    assert f"up to {MOST_TEXT // 1024} KiB and {MOST_PIECES:,} lines" in page
    assert f"keep a badge for {KEPT_SECONDS // 60} minutes" in page


@pytest.mark.suite("hub")
def test_pages_of_huge_changes_stay_small(site: SiteHub, browser: httpx.Client) -> None:
    package = f"local/{new_name('huge')}"
    names = {f"{'<&' * 150}{number}.py": b"%d" % number for number in range(60)}
    lines = "".join(f"<&{number}>\n" for number in range(12_000))
    uploaded(site, package, "1.0.0", {"big.py": lines.encode()}, card=lines)
    uploaded(site, package, "1.1.0", {**names, "big.py": lines[::-1].encode()}, card=lines[::-1])
    where = f"/{package}/versions/1.1.0"
    for path in (f"{where}/diff", f"{where}/diff?page=9", f"{where}/diff/card", f"{where}/diff/card?page=7",
                 f"{where}/diff/file?path=big.py", f"{where}/files", f"{where}/files?page=99999",
                 f"{where}/files/text?path=big.py"):  # fmt: skip
        small(browser.get(path))
    seen, page = set(), 1
    while True:
        answer = small(browser.get(f"{where}/diff?page={page}"))
        seen |= set(re.findall(r"&(\d+)\.py", answer.text))
        page += 1
        if not any(one.get("rel") == "next" for one in answer.all("a")):
            break
    assert len(seen) == 60


@pytest.mark.parametrize("path", ["diff?page=0", "diff?page=x", "files?page=-1", "diff?from=" + "9" * 99])
def test_a_query_that_makes_no_sense_is_refused(browser: httpx.Client, path: str) -> None:
    assert "This did not work" in small(browser.get(f"/ludus/wordle/versions/0.1.0/{path}"), 400).text


def test_a_version_without_another_one_differs_in_nothing(browser: httpx.Client) -> None:
    page = small(browser.get("/ludus/wordle/versions/0.1.0/diff")).text
    for said in ("Both have the same wheel", "0 fields differ", "The card is the same", "All files are the same"):
        assert said in page
