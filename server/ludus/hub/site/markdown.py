"""Cards as safe HTML: Markdown without raw HTML and without images, its links checked, its size and depth bounded.

markdown-it-py turns Markdown into HTML with raw HTML escaped, and nh3 then keeps only a few elements and attributes. So
neither alone has to be right. Images become links to them: a browser must not fetch anything for showing a card.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from ludus.protocol.text import printable

SHOWN_CHARACTERS: Final = 12_000
"""The most characters of a card that a page shows."""

MOST_HTML: Final = 22_000
"""The most bytes of a card as HTML. A card that becomes larger is shown as plain text."""

NESTING: Final = 20
"""The deepest nesting of blocks and of brackets that is parsed."""

_TAGS: Final = frozenset(
    {
        "p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "em", "strong", "s", "code", "pre", "blockquote", "hr",
        "br", "a", "table", "thead", "tbody", "tr", "th", "td",
    }
)  # fmt: skip
_SCHEMES: Final = frozenset({"http", "https", "mailto"})


def card_html(card: str) -> tuple[Markup, bool]:
    """Return the beginning of a card as safe HTML, and whether something was left out."""
    shown, is_cut = _beginning(printable(card))
    return _render(shown), is_cut


def _beginning(card: str) -> tuple[str, bool]:
    """Return at most `SHOWN_CHARACTERS` of a card, ending with a paragraph if there is one."""
    if len(card) <= SHOWN_CHARACTERS:
        return card, False
    start = card[:SHOWN_CHARACTERS]
    end = max(start.rfind("\n\n"), start.rfind("\n"))
    return start[: end if end > SHOWN_CHARACTERS // 2 else SHOWN_CHARACTERS], True


@lru_cache(maxsize=256)
def _render(text: str) -> Markup:
    if _bracket_depth(text) > NESTING:  # parsing nested brackets takes quadratic time
        return _plain(text)
    html = _sanitized(_parser().render(text))
    return Markup(html) if len(html.encode()) <= MOST_HTML else _plain(text)


def _plain(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(text)


def _bracket_depth(text: str) -> int:
    """Return how deeply square brackets are nested, closed or not."""
    depth = deepest = 0
    for character in text:
        if character == "[":
            depth += 1
            deepest = max(deepest, depth)
        elif character == "]":
            depth = max(0, depth - 1)
        elif character == "\n":
            depth = 0
    return deepest


def _sanitized(html: str) -> str:
    return nh3.clean(
        html,
        tags=set(_TAGS),
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes=set(_SCHEMES),
        link_rel="nofollow noopener noreferrer ugc",
        url_relative="deny",
    )


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


def _image(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """Return a link to an image instead of the image."""
    token = tokens[index]
    text = token.content or "image"
    return str(Markup('<a href="{}">{}</a>').format(token.attrGet("src") or "", f"[image: {text}]"))


def _heading(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """Return a heading two levels lower, because the page has two of its own."""
    token = tokens[index]
    level = min(6, int(token.tag[1]) + 2)
    return f"<{'/' if token.nesting < 0 else ''}h{level}>"
