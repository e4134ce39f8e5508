"""A small web framework: requests, responses, routes, and HTML that escapes every text."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qs, quote, urlsplit

from ludus.environments._store import Store

PER_PAGE: Final = 10
_LONGEST_BODY: Final = 100_000
_LONGEST_FIELD: Final = 5_000


class Refusal(Exception):
    """A site refuses; the message is for its user."""


class Request(NamedTuple):
    """What a browser asks for."""

    method: str
    host: str
    path: str
    query: Mapping[str, Sequence[str]]
    form: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, method: str, url: str, body: str) -> Request:
        """Return the request of a URL and a body of a form."""
        parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True, max_num_fields=50)
        form = parse_qs(body, keep_blank_values=True, max_num_fields=50) if len(body) <= _LONGEST_BODY else {}
        return cls(method, parts.netloc, parts.path or "/", query, form)

    def asked(self, name: str) -> str:
        """Return a value of the address; empty if it has none."""
        return self.query.get(name, [""])[0].strip()[:200]

    def sent(self, name: str) -> str:
        """Return a value of the form; empty if it has none."""
        text = self.form.get(name, [""])[0].replace("\r\n", "\n").strip()
        if len(text) > _LONGEST_FIELD:
            raise Refusal(f"This text has more than {_LONGEST_FIELD:,} characters.")
        return text


class Response(NamedTuple):
    """What a site answers."""

    status: int
    body: str
    kind: str = "text/html; charset=utf-8"
    location: str = ""


class Markup(str):
    """Text that is HTML already."""


Child: TypeAlias = "str | int | None | Sequence[Child]"
_VOID: Final = frozenset({"input", "br", "hr", "meta", "link"})


def tag(name: str, /, *children: Child, **attributes: Any) -> Markup:
    """Return an element. Texts are escaped; `for_`, `class_` and `type_` lose their `_`; None and False are left out."""
    shown = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        shown += f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{render(children)}</{name}>")


def render(child: Child) -> str:
    """Return the HTML of children."""
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int):
        return html.escape(str(child))
    return "".join(render(one) for one in child)


def address(path: str, **query: Any) -> str:
    """Return a path with a query; empty values are left out."""
    parts = [f"{quote(name)}={quote(str(value), safe='')}" for name, value in query.items() if value not in ("", None)]
    return path + ("?" + "&".join(parts) if parts else "")


def link(text: str, path: str, **attributes: Any) -> Markup:
    """Return a link."""
    return tag("a", text, href=path, **attributes)


def field(label: str, name: str, value: Any = "", **attributes: Any) -> Markup:
    """Return an input with its label."""
    return tag("label", label, " ", tag("input", name=name, value=value, **attributes))


def area(label: str, name: str, value: str = "", rows: int = 8, **attributes: Any) -> Markup:
    """Return a text area with its label."""
    return tag("label", label, " ", tag("textarea", "\n" + value, name=name, rows=rows, cols=70, **attributes))


def choice(label: str, name: str, options: Sequence[tuple[str, str]], value: str = "") -> Markup:
    """Return a list of options (value, text) with its label."""
    shown = [tag("option", text, value=key, selected=key == value) for key, text in options]
    return tag("label", label, " ", tag("select", shown, name=name))


def form(action: str, /, *children: Child, method: str = "post", **attributes: Any) -> Markup:
    """Return a form."""
    return tag("form", children, action=action, method=method, **attributes)


def button(text: str, **attributes: Any) -> Markup:
    """Return a button that submits its form."""
    return tag("button", text, type_="submit", **attributes)


def table(head: Sequence[str], rows: Sequence[Sequence[Child]]) -> Markup:
    """Return a table."""
    top = tag("tr", [tag("th", one) for one in head])
    return tag("table", tag("thead", top), tag("tbody", [tag("tr", [tag("td", one) for one in row]) for row in rows]))


def paged(rows: Sequence[Any], request: Request, per_page: int = PER_PAGE) -> tuple[Sequence[Any], Markup]:
    """Return the rows of the page that is asked for, and the links to the other pages."""
    last = max(1, -(-len(rows) // per_page))
    asked = request.asked("page")
    page = min(max(int(asked), 1), last) if re.fullmatch(r"\d{1,6}", asked, re.ASCII) else 1
    shown = rows[(page - 1) * per_page : page * per_page]
    kept = {name: values[0] for name, values in request.query.items() if name != "page"}
    steps: list[Child] = []
    if page > 1:
        steps += [link("Previous page", address(request.path, **kept, page=page - 1)), " "]
    if page < last:
        steps += [link("Next page", address(request.path, **kept, page=page + 1)), " "]
    first = (page - 1) * per_page + 1 if rows else 0
    count = f"{first}-{first + len(shown) - 1} of {len(rows)}, page {page} of {last}" if rows else "0 results"
    return shown, tag("nav", tag("p", count), steps, aria_label="Pages")


Handler = Callable[..., Response]


class Site:
    """The base class of the sites: routes, pages and who is signed in.

    Args:
        store: the state of all sites.
        user: the id of the person who is signed in.
        today: the date.
    """

    host: str
    name: str
    routes: Sequence[tuple[str, str, str]] = ()
    """Method, pattern of the path, and name of the method that answers."""

    def __init__(self, store: Store, user: str, today: str, world: str) -> None:
        self.store, self.user, self.today, self.world = store, user, today, world

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        if request.path == "/static/site.js":
            return Response(200, SCRIPT, "text/javascript; charset=utf-8")
        if request.path == "/static/site.css":
            return Response(200, STYLE, "text/css; charset=utf-8")
        method = "GET" if request.method == "HEAD" else request.method
        for verb, pattern, name in self.routes:
            found = re.fullmatch(pattern, request.path)
            if found and verb == method:
                try:
                    response: Response = getattr(self, name)(request, *found.groups())
                    return response
                except Refusal as error:
                    return self.page("That did not work", tag("p", str(error), role="alert"), status=400)
        return self.missing()

    def missing(self) -> Response:
        """Answer that there is no such page."""
        return self.page("Page not found", tag("p", "There is no such page, or it is not yours to see."), status=404)

    def redirect(self, path: str) -> Response:
        """Answer with another address."""
        return Response(303, "", location=f"http://{self.host}{path}")

    def page(self, title: str, *children: Child, status: int = 200, notice: str = "") -> Response:
        """Answer with a page in the layout of the site."""
        me = self.store.get("people", self.user)
        head = tag(
            "head", tag("meta", charset="utf-8"), tag("title", f"{title} - {self.name}"),
            tag("link", rel="stylesheet", href="/static/site.css"), tag("script", "", src="/static/site.js", defer=True),
        )  # fmt: skip
        bar = tag("header", tag("nav", self.menu(), aria_label=self.name),
                  tag("p", f"Signed in as {me['name'] if me else ''}"))  # fmt: skip
        told = tag("p", notice, role="status") if notice else None
        body = tag("body", bar, tag("main", tag("h1", title), told, children))
        return Response(status, f"<!doctype html>{tag('html', head, body, lang='en')}")

    def menu(self) -> Sequence[Child]:
        """Return the links at the top."""
        raise NotImplementedError

    def person(self, id: str) -> str:
        """Return the name of a person; empty for none."""
        row = self.store.get("people", id) if id else None
        return str(row["name"]) if row else ""


def confirmed(title: str, question: str, action: str, text: str, *children: Child) -> Markup:
    """Return a button that opens a dialog, whose own button sends a form."""
    id = "d" + re.sub(r"\W", "", action + text)
    inside = form(action, tag("h2", title), tag("p", question), children, button(text),
                  tag("button", "Keep it", type_="button", data_close=id))  # fmt: skip
    return Markup(tag("button", title, type_="button", data_open=id) + tag("dialog", inside, id=id, aria_label=title))


SCRIPT: Final = """
document.addEventListener("click", event => {
  const opener = event.target.closest("[data-open]"), closer = event.target.closest("[data-close]");
  const toggle = event.target.closest("[data-toggle]");
  if (opener) document.getElementById(opener.dataset.open).showModal();
  if (closer) document.getElementById(closer.dataset.close).close();
  if (toggle) {
    const panel = document.getElementById(toggle.dataset.toggle);
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", String(!panel.hidden));
  }
});
document.addEventListener("input", event => {
  const counted = event.target.dataset && event.target.dataset.count;
  if (counted) document.getElementById(counted).textContent = event.target.value.length + " characters";
});
"""
STYLE: Final = """
body { font: 14px sans-serif; margin: 0 auto; max-width: 960px; padding: 0 12px; color: #222; }
header { border-bottom: 1px solid #ccc; padding: 8px 0; } nav a { margin-right: 12px; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid #ddd; padding: 4px 10px; text-align: left; }
label { display: block; margin: 6px 0; } [role=status] { background: #e7f5e7; padding: 6px; }
[role=alert] { background: #fbe3e3; padding: 6px; } form { margin: 8px 0; }
"""


def toggled(text: str, id: str, *children: Child, opened: bool = False) -> Markup:
    """Return a button that shows and hides what follows."""
    top = tag("button", text, type_="button", data_toggle=id, aria_expanded="true" if opened else "false")
    return Markup(top + tag("div", children, id=id, hidden=not opened))
