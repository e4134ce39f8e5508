"""The pages of the wiki, which is the handbook of the company that runs the shop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ludus.environments._store import Row
from ludus.environments.browser.sites import actions
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.web import (
    Child,
    Refusal,
    Request,
    Response,
    Site,
    address,
    area,
    button,
    choice,
    confirmed,
    field,
    form,
    link,
    paged,
    table,
    tag,
)

_LINK: Final = re.compile(r"\[\[([^\[\]|]{1,80})\]\]")


def path_of(title: str) -> str:
    """Return the path of a page."""
    return address("/page/" + title.replace(" ", "_"))


class Wiki(Site):
    """The wiki."""

    host = "wiki.test"
    routes = (
        ("GET", "/", "home"), ("GET", "/search", "search"), ("GET", "/category", "category"), ("GET", "/recent", "recent"),
        ("GET", "/page/([^/]{1,100})", "view"), ("GET", "/edit/(W-[0-9]+)/([0-9]{1,3})", "edit_form"),
        ("POST", "/edit/(W-[0-9]+)/([0-9]{1,3})", "edit"), ("GET", "/history/(W-[0-9]+)", "history"),
        ("GET", "/history/(W-[0-9]+)/([0-9]{1,5})", "revision"), ("POST", "/history/(W-[0-9]+)/([0-9]{1,5})", "revert"),
        ("POST", "/watch/(W-[0-9]+)", "watch"), ("GET", "/watched", "watched"), ("GET", "/new", "new_form"),
        ("POST", "/new", "new"), ("GET", "/rename/(W-[0-9]+)", "rename_form"), ("POST", "/rename/(W-[0-9]+)", "rename"),
    )  # fmt: skip

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the wiki."""
        return f"{self.world} Handbook"

    @property
    def desk(self) -> Desk:
        """Who acts."""
        return Desk(self.store, self.user, self.today)

    def menu(self) -> Sequence[Child]:
        """Return the links at the top."""
        return [
            link("Home", "/"),
            link("Recent changes", "/recent"),
            link("Watched pages", "/watched"),
            link("New page", "/new"),
        ]

    def _search(self, text: str) -> Child:
        return form("/search", field("Search pages", "q", text, type_="search"), button("Search"), method="get")

    def _categories(self) -> list[str]:
        return [row["category"] for row in self.store.rows("SELECT DISTINCT category FROM pages ORDER BY category")]

    def home(self, request: Request) -> Response:
        """Answer with the first page."""
        items = [tag("li", link(category, address("/category", name=category))) for category in self._categories()]
        return self.page(self.name, self._search(""), tag("h2", "Categories"), tag("ul", items))

    def search(self, request: Request) -> Response:
        """Answer with the pages that have all words."""
        asked = request.asked("q").split()[:8]
        rows = self.store.rows("SELECT * FROM pages ORDER BY title")
        found = [row for row in rows if all(word.lower() in f"{row['title']} {row['body']}".lower() for word in asked)]
        found.sort(key=lambda one: not all(word.lower() in one["title"].lower() for word in asked))
        shown, steps = paged(found if asked else [], request)
        items = [tag("li", link(one["title"], path_of(one["title"]))) for one in shown]
        return self.page("Search", self._search(" ".join(asked)), tag("ul", items), steps)

    def category(self, request: Request) -> Response:
        """Answer with the pages of a category."""
        name = request.asked("name")
        rows = self.store.rows("SELECT * FROM pages WHERE category = ? ORDER BY title", name)
        shown, steps = paged(rows, request)
        items = [tag("li", link(one["title"], path_of(one["title"]))) for one in shown]
        return self.page(f"Category {name}", tag("ul", items), steps)

    def recent(self, request: Request) -> Response:
        """Answer with the last changes."""
        rows = self.store.rows(
            "SELECT revisions.*, title FROM revisions JOIN pages ON pages.id = page "
            "ORDER BY day DESC, CAST(SUBSTR(revisions.id, 3) AS INTEGER) DESC LIMIT 100"
        )
        shown, steps = paged(rows, request)
        cells = [
            (one["day"], link(one["title"], path_of(one["title"])), f"revision {one['number']}", self.person(one["author"]),
             one["summary"])
            for one in shown
        ]  # fmt: skip
        return self.page("Recent changes", table(("Date", "Page", "Revision", "Author", "Summary"), cells), steps)

    def view(self, request: Request, slug: str) -> Response:
        """Answer with a page."""
        row = actions.page_titled(self.store, slug.replace("_", " ").replace("%27", "'"))
        if row is None:
            return self.missing()
        id, parts = row["id"], list[Child]()
        for number, (title, text) in enumerate(actions.sections(row["body"])):
            edit = link(f"Edit {title or 'introduction'}", f"/edit/{id}/{number}")
            parts += [
                tag("h2", title) if title else None,
                [tag("p", _linked(one)) for one in text.split("\n") if one],
                edit,
            ]
        watched = bool(self.store.rows("SELECT id FROM watches WHERE page = ? AND person = ?", id, self.user))
        watch = form(f"/watch/{id}", tag("input", type_="hidden", name="wanted", value="" if watched else "1"),
                     button("Stop watching" if watched else "Watch this page"))  # fmt: skip
        return self.page(
            row["title"], tag("p", "Category: ", link(row["category"], address("/category", name=row["category"]))), parts,
            tag("hr"), link("History", f"/history/{id}"), link("Rename", f"/rename/{id}"), watch,
        )  # fmt: skip

    def _page(self, id: str) -> Row:
        row = self.store.get("pages", id)
        if row is None:
            raise Refusal("There is no such page.")
        return row

    def edit_form(self, request: Request, id: str, number: str) -> Response:
        """Answer with the form for a section."""
        row = self._page(id)
        parts = actions.sections(row["body"])
        if int(number) >= len(parts):
            return self.missing()
        title, text = parts[int(number)]
        return self.page(
            f"Edit {title or 'introduction'} of {row['title']}",
            form(f"/edit/{id}/{number}", area("Text", "text", text, data_count="count"), tag("p", f"{len(text)} characters", id="count"),
                 field("Summary of the change", "summary"), button("Save page")),
        )  # fmt: skip

    def edit(self, request: Request, id: str, number: str) -> Response:
        """Take the text of a section."""
        actions.edit_section(self.desk, id, int(number), request.sent("text"), request.sent("summary"))
        return self.redirect(path_of(self._page(id)["title"]))

    def history(self, request: Request, id: str) -> Response:
        """Answer with the revisions of a page, the newest first."""
        row = self._page(id)
        found = self.store.rows("SELECT * FROM revisions WHERE page = ? ORDER BY number DESC", id)
        shown, steps = paged(found, request)
        cells = [
            (link(f"Revision {one['number']}", f"/history/{id}/{one['number']}"), one["day"], self.person(one["author"]),
             one["summary"])
            for one in shown
        ]  # fmt: skip
        return self.page(f"History of {row['title']}", table(("Revision", "Date", "Author", "Summary"), cells), steps)

    def revision(self, request: Request, id: str, number: str) -> Response:
        """Answer with a revision."""
        row = self._page(id)
        found = self.store.rows("SELECT * FROM revisions WHERE page = ? AND number = ?", id, int(number))
        if not found:
            return self.missing()
        one = found[0]
        lines = [tag("p", _linked(line)) for line in one["body"].split("\n") if line]
        revert = confirmed("Revert to this revision", f"Bring the page back to revision {number}?", f"/history/{id}/{number}",
                           "Yes, revert")  # fmt: skip
        return self.page(
            f"Revision {number} of {row['title']}", tag("p", f"By {self.person(one['author'])} on {one['day']}: {one['summary']}"),
            lines, revert if one["body"] != row["body"] else tag("p", "This is the current text."),
        )  # fmt: skip

    def revert(self, request: Request, id: str, number: str) -> Response:
        """Bring back a revision."""
        actions.revert_page(self.desk, id, int(number))
        return self.redirect(path_of(self._page(id)["title"]))

    def watch(self, request: Request, id: str) -> Response:
        """Watch a page, or no longer."""
        actions.watch(self.desk, id, bool(request.sent("wanted")))
        return self.redirect(path_of(self._page(id)["title"]))

    def watched(self, request: Request) -> Response:
        """Answer with the watched pages."""
        rows = self.store.rows(
            "SELECT title FROM watches JOIN pages ON pages.id = page WHERE person = ? ORDER BY title", self.user
        )
        return self.page(
            "Watched pages", tag("ul", [tag("li", link(row["title"], path_of(row["title"]))) for row in rows])
        )

    def new_form(self, request: Request) -> Response:
        """Answer with the form for a new page."""
        kinds = [(category, category) for category in self._categories()]
        return self.page("New page", form("/new", field("Title", "title"), choice("Category", "category", kinds),
                         area("Text", "text"), button("Create page")))  # fmt: skip

    def new(self, request: Request) -> Response:
        """Take a new page."""
        actions.create_page(self.desk, request.sent("title"), request.sent("category"), request.sent("text"))
        return self.redirect(path_of(" ".join(request.sent("title").split())))

    def rename_form(self, request: Request, id: str) -> Response:
        """Answer with the form for another title."""
        row = self._page(id)
        return self.page(f"Rename {row['title']}", form(f"/rename/{id}", field("New title", "title", row["title"]),
                         button("Rename page")))  # fmt: skip

    def rename(self, request: Request, id: str) -> Response:
        """Take another title."""
        actions.rename_page(self.desk, id, request.sent("title"))
        return self.redirect(path_of(self._page(id)["title"]))


def _linked(text: str) -> Child:
    """Return a line whose [[titles]] are links."""
    parts = _LINK.split(text)
    return [link(part, path_of(part)) if index % 2 else part for index, part in enumerate(parts)]
