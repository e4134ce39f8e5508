"""The catalog and environment pages: filters, sizes, headers, errors, and cards that try to attack their readers."""

from __future__ import annotations

import httpx
import pytest
from hub_sites import Page, SiteHub, as_page
from hubs import new_name, published, release

from ludus.protocol.episodes import SplitInfo
from ludus.registry.types.packages import EnvironmentEntry

LARGEST_PAGE = 60_000
ATTACKS = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)><iframe src='//evil.example'></iframe>",
    "svg": "<svg onload=alert(1)><a xlink:href='javascript:alert(1)'>x</a></svg>",
    "links": "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) <javascript:x>",
    "image": '![x](https://evil.example/p.png) ![y](javascript:alert(1)) ![a"onload=x](x)',
    "brackets": "[" * 50_000 + "](x)" * 2_000,
    "quotes": "> " * 5_000 + "deep",
    "lists": "\n".join("  " * depth + "- x" for depth in range(400)),
    "huge": "word & <b> " * 20_000,
    "quoting": '"' * 200_000,
    "title": "# </title></main><script>x</script>",
    "templates": "{{ 7 * 123457 }} {% raw %} ${7*123457}",
    "order": "\u202egnp.exe\u001b[31m",
}


def uploaded(site: SiteHub, package: str, version: str = "1.0.0", **options: object) -> None:
    with httpx.Client(base_url=site.url, timeout=60) as client:
        published(client, release(package, version, **options))  # type: ignore[arg-type]


def weight(browser: httpx.Client, answer: httpx.Response) -> int:
    """The bytes of a page with all files that it loads, as a browser receives them."""
    page = Page(answer.text)
    addresses = [one["href"] for one in page.all("link")] + [one["src"] for one in page.all("script")]
    sizes = [int(browser.get(address).headers["content-length"]) for address in addresses]
    return len(answer.content) + sum(sizes)


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("path", ["/", "/ludus/wordle", "/ludus/wordle/versions/0.1.0", "/ludus/wordle/play",
                                  "/ludus/wordle/versions/0.1.0/diff", "/rollouts", "/login"])  # fmt: skip
def test_a_page_is_small_and_nothing_inline_may_run(browser: httpx.Client, path: str) -> None:
    answer = browser.get(path)
    page = as_page(answer)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not any("style" in one or any(name.startswith("on") for name in one) for _, one in page.elements)
    assert all("src" in one for one in page.all("script"))
    assert weight(browser, answer) <= LARGEST_PAGE


@pytest.mark.suite("hub", first=4)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_card_cannot_attack_its_readers(browser: httpx.Client, site: SiteHub, attack: str) -> None:
    package = f"local/{new_name('card')}"
    uploaded(site, package, card=ATTACKS[attack])
    answer = browser.get(f"/{package}")
    page = as_page(answer)
    assert len(list(page.all("script"))) == 2
    assert not {"img", "iframe", "svg"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, one in page.elements for name in one)
    for link in page.all("a"):
        assert link.get("href", "#").startswith(("/", "#", "http://", "https://", "mailto:")), link
    assert not {"\u202e", "\u001b"} & set(answer.text)
    assert "864199" not in page.text or attack != "templates"
    assert weight(browser, answer) <= LARGEST_PAGE


def test_a_long_card_is_complete_as_plain_text(browser: httpx.Client, site: SiteHub) -> None:
    package = f"local/{new_name('long')}"
    card = "para <script>alert(1)</script>\n\n" * 2_000
    uploaded(site, package, card=card)
    assert "read all of it as text" in as_page(browser.get(f"/{package}")).text
    text = browser.get(f"/{package}/versions/1.0.0/card")
    assert (text.text, text.headers["content-type"]) == (card, "text/plain; charset=utf-8")


def test_a_version_is_shown_with_its_yank_its_diff_and_its_missing_signature(
    browser: httpx.Client, site: SiteHub
) -> None:
    package = f"local/{new_name('yank')}"
    uploaded(site, package)
    uploaded(site, package, "1.1.0", description="Two <coins>.", tags=("coin", "money"))
    with httpx.Client(base_url=site.url, timeout=60) as client:
        reason = {"reason": "wrong <b>answers</b>"}
        assert client.post(f"/api/v1/environments/{package}/versions/1.0.0/yank", json=reason).status_code == 200
    old = as_page(browser.get(f"/{package}/versions/1.0.0"))
    assert "wrong <b>answers</b>" in old.text
    assert "not the latest version" in old.text
    assert "SHA256:" in old.text
    difference = as_page(browser.get(f"/{package}/versions/1.1.0/diff?from=1.0.0")).text
    assert "Two <coins>." in difference
    assert "tags[money]" in difference


def test_filters_narrow_the_catalog(browser: httpx.Client, site: SiteHub) -> None:
    name = new_name("filter")
    entry = EnvironmentEntry(
        name="toss", source=f"local_{name}:Toss", durability="snapshot",
        splits=(SplitInfo(name="train", type="train", count=2),),
    )  # fmt: skip
    uploaded(site, f"local/{name}", tags=("oddity",), environments=(entry,))
    for query in (f"q={name}", "tag=oddity", "owner=local&durability=snapshot", "durability=snapshot"):
        assert f"local/{name}" in as_page(browser.get(f"/?{query}")).text
    for query in (f"q={name}&owner=ludus", f"q={name}&durability=replay", f"q={name}&tag=words"):
        assert "No environment matches" in as_page(browser.get(f"/?{query}")).text


@pytest.mark.parametrize("query", ["page=0", "page=x", "page=99999999999", "durability=x", "q=" + "x" * 300])
def test_a_query_that_makes_no_sense_is_refused(browser: httpx.Client, query: str) -> None:
    assert "This did not work" in as_page(browser.get(f"/?{query}"), 400).text


def test_what_is_absent_looks_the_same_everywhere(browser: httpx.Client) -> None:
    paths = ["/ludus/nope", "/nope/nope", "/ludus/wordle/versions/9.9", "/nope", "/a/b/c/d/e", "/static/x/site.css"]
    texts = {as_page(browser.get(path), 404).text for path in paths}
    assert len(texts) == 1


def test_the_api_still_answers_with_json(browser: httpx.Client) -> None:
    for path in ("/api/v1/environments/ludus/nope", "/index/simple/nope/"):
        assert browser.get(path).headers["content-type"] == "application/json"
    assert httpx.get(f"{browser.base_url}/ludus/nope").json()["error"]["message"]


def test_static_files_may_be_kept_forever(browser: httpx.Client) -> None:
    page = as_page(browser.get("/"))
    style = next(one["href"] for one in page.all("link") if one["rel"] == "stylesheet")
    answer = browser.get(style)
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
