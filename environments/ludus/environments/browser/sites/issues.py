"""The pages of the issue tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ludus.environments._store import Row
from ludus.environments.browser.sites import actions, words
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
    field,
    form,
    link,
    paged,
    table,
    tag,
    toggled,
)

_COMPONENTS: Final = tuple(one.lower() for one in words.TEAMS)
_SORTS: Final = {"newest": "Newest first", "oldest": "Oldest first", "title": "Title"}
_NUMBER: Final = "CAST(SUBSTR(issues.id, 3) AS INTEGER)"
_ORDER: Final = {"newest": f"{_NUMBER} DESC", "oldest": _NUMBER, "title": "title"}


class Tracker(Site):
    """The issue tracker."""

    host = "issues.test"
    routes = (
        ("GET", "/", "issues"), ("GET", "/issues", "issues"), ("GET", "/issues/new", "new_form"), ("POST", "/issues/new", "new"),
        ("GET", "/issues/([0-9]{1,6})", "issue"), ("POST", "/issues/([0-9]{1,6})/comment", "comment"),
        ("POST", "/issues/([0-9]{1,6})/state", "state"), ("POST", "/issues/([0-9]{1,6})/fields", "fields"),
        ("POST", "/issues/([0-9]{1,6})/label", "label"), ("POST", "/issues/([0-9]{1,6})/unlabel", "unlabel"),
        ("POST", "/issues/([0-9]{1,6})/title", "retitle"), ("GET", "/milestones", "milestones"), ("GET", "/labels", "labels"),
    )  # fmt: skip

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the tracker."""
        return f"{self.world} Issues"

    @property
    def desk(self) -> Desk:
        """Who acts."""
        return Desk(self.store, self.user, self.today)

    def menu(self) -> Sequence[Child]:
        """Return the links at the top."""
        return [link("Issues", "/issues"), link("New issue", "/issues/new"), link("Milestones", "/milestones"),
                link("Labels", "/labels"), link("My issues", address("/issues", assignee=self.user, state="open"))]  # fmt: skip

    def _people(self) -> list[tuple[str, str]]:
        return [(row["id"], row["name"]) for row in self.store.rows("SELECT id, name FROM people ORDER BY name")]

    def _milestones(self) -> list[tuple[str, str]]:
        return [(row["id"], row["title"]) for row in self.store.rows("SELECT id, title FROM milestones ORDER BY due")]

    def issues(self, request: Request) -> Response:
        """Answer with a list of issues."""
        where, values = ["1 = 1"], list[Any]()
        for name in ("assignee", "milestone", "component", "author"):
            if value := request.asked(name):
                where.append(f"{name} = ?")
                values.append("" if value == "none" else value)
        state = request.asked("state") or "open"
        if state in ("open", "closed"):
            where.append("state = ?")
            values.append(state)
        if label := request.asked("label"):
            where.append("issues.id IN (SELECT issue FROM issue_labels WHERE label = ?)")
            values.append(label)
        for word in request.asked("q").split()[:8]:
            where.append("(title LIKE ? OR body LIKE ?)")
            values += [f"%{word}%"] * 2
        sort = request.asked("sort") if request.asked("sort") in _SORTS else "newest"
        rows = self.store.rows(f"SELECT * FROM issues WHERE {' AND '.join(where)} ORDER BY {_ORDER[sort]}", *values)
        shown, steps = paged(rows, request)
        return self.page("Issues", self._filters(request, state, sort), table(
            ("Number", "Title", "State", "Labels", "Assignee", "Opened"), [self._row(one) for one in shown]), steps)  # fmt: skip

    def _filters(self, request: Request, state: str, sort: str) -> Child:
        def any_of(label: str, name: str, options: Sequence[tuple[str, str]]) -> Child:
            return choice(label, name, [("", "any"), *options], request.asked(name))

        people, none = self._people(), ("none", "none")
        more = toggled(
            "More filters", "filters", any_of("Assignee", "assignee", [none, *people]), any_of("Author", "author", people),
            any_of("Milestone", "milestone", [none, *self._milestones()]),
            any_of("Component", "component", [(one, one) for one in _COMPONENTS]),
            opened=any(request.asked(name) for name in ("assignee", "author", "milestone", "component")),
        )  # fmt: skip
        return form(
            "/issues", field("Search issues", "q", request.asked("q"), type_="search"),
            choice("State", "state", [("open", "open"), ("closed", "closed"), ("all", "all")], state),
            any_of("Label", "label", [(one, one) for one in words.LABELS]),
            choice("Sort by", "sort", tuple(_SORTS.items()), sort), more, button("Search"), method="get",
        )  # fmt: skip

    def _labels(self, issue: str) -> list[str]:
        rows = self.store.rows("SELECT label FROM issue_labels WHERE issue = ? ORDER BY label", issue)
        return [row["label"] for row in rows]

    def _row(self, one: Row) -> Sequence[Child]:
        number = one["id"][2:]
        return (f"#{number}", link(one["title"], f"/issues/{number}"), one["state"], ", ".join(self._labels(one["id"])),
                self.person(one["assignee"]) or "nobody", one["opened"])  # fmt: skip

    def _issue(self, number: str) -> Row:
        row = self.store.get("issues", f"I-{int(number)}")
        if row is None:
            raise Refusal("There is no such issue.")
        return row

    def issue(self, request: Request, number: str) -> Response:
        """Answer with an issue."""
        row = self.store.get("issues", f"I-{int(number)}")
        if row is None:
            return self.missing()
        labels, path = self._labels(row["id"]), f"/issues/{int(number)}"
        milestone = dict(self._milestones()).get(row["milestone"], "none")
        state = row["state"] + (f" as {row['reason']}" if row["reason"] else "")
        facts = [("State", state), ("Author", self.person(row["author"])), ("Opened", row["opened"]),
                 ("Assignee", self.person(row["assignee"]) or "nobody"), ("Milestone", milestone),
                 ("Component", row["component"]), ("Labels", ", ".join(labels) or "none")]  # fmt: skip
        found = self.store.rows(
            "SELECT * FROM comments WHERE issue = ? ORDER BY day, CAST(SUBSTR(id, 3) AS INTEGER)", row["id"]
        )
        shown, steps = paged(found, request)
        said = [
            tag("li", tag("p", f"{self.person(one['author'])} on {one['day']}:"), tag("p", one["text"]))
            for one in shown
        ]
        return self.page(
            f"#{int(number)} {row['title']}", tag("p", row["body"]), table(("Detail", "Value"), facts), tag("h2", "Comments"),
            tag("ul", said), steps,
            form(f"{path}/comment", area("New comment", "text", rows=4), button("Send comment")),
            self._state_form(path, row), toggled("Edit issue", "edit", self._edit_forms(path, row, labels)),
        )  # fmt: skip

    def _state_form(self, path: str, row: Row) -> Child:
        if row["state"] == "closed":
            return form(
                f"{path}/state", tag("input", type_="hidden", name="state", value="open"), button("Reopen issue")
            )
        return form(f"{path}/state", tag("input", type_="hidden", name="state", value="closed"),
                    choice("Reason", "reason", [(one, one) for one in words.REASONS]), button("Close issue"))  # fmt: skip

    def _edit_forms(self, path: str, row: Row, labels: Sequence[str]) -> Child:
        none = ("", "none")
        rest = [(one, one) for one in words.LABELS if one not in labels]
        return [
            form(f"{path}/fields", choice("Assignee", "assignee", [("", "nobody"), *self._people()], row["assignee"]),
                 choice("Milestone", "milestone", [none, *self._milestones()], row["milestone"]),
                 choice("Component", "component", [(one, one) for one in _COMPONENTS], row["component"]), button("Save fields")),
            form(f"{path}/label", choice("Add label", "label", rest), button("Add")) if rest else None,
            [form(f"{path}/unlabel", tag("input", type_="hidden", name="label", value=label), button(f"Remove label {label}"))
             for label in labels],
            form(f"{path}/title", field("Title", "title", row["title"]), button("Save title")),
        ]  # fmt: skip

    def new_form(self, request: Request) -> Response:
        """Answer with the form for an issue."""
        boxes = [
            tag("label", tag("input", type_="checkbox", name=f"label-{one}", value="1"), f" {one}")
            for one in words.LABELS
        ]
        return self.page(
            "New issue",
            form("/issues/new", field("Title", "title"), area("Description", "body", rows=5),
                 choice("Component", "component", [(one, one) for one in _COMPONENTS]),
                 choice("Assignee", "assignee", [("", "nobody"), *self._people()]),
                 choice("Milestone", "milestone", [("", "none"), *self._milestones()]),
                 tag("fieldset", tag("legend", "Labels"), boxes), button("Open issue")),
        )  # fmt: skip

    def new(self, request: Request) -> Response:
        """Take an issue."""
        labels = [one for one in words.LABELS if request.sent(f"label-{one}")]
        id = actions.create_issue(self.desk, request.sent("title"), request.sent("body"), request.sent("component"),
                                  request.sent("milestone"), request.sent("assignee"), labels)  # fmt: skip
        return self.redirect(f"/issues/{id[2:]}")

    def comment(self, request: Request, number: str) -> Response:
        """Take a comment."""
        actions.comment(self.desk, self._issue(number)["id"], request.sent("text"))
        return self.redirect(f"/issues/{int(number)}")

    def state(self, request: Request, number: str) -> Response:
        """Close an issue, or open it again."""
        actions.set_state(self.desk, self._issue(number)["id"], request.sent("state"), request.sent("reason"))
        return self.redirect(f"/issues/{int(number)}")

    def fields(self, request: Request, number: str) -> Response:
        """Take who works on an issue, when, and what it is about."""
        actions.change_issue(self.desk, self._issue(number)["id"],
                             *(request.sent(name) for name in ("assignee", "milestone", "component")))  # fmt: skip
        return self.redirect(f"/issues/{int(number)}")

    def label(self, request: Request, number: str) -> Response:
        """Add a label."""
        actions.add_label(self.desk, self._issue(number)["id"], request.sent("label"))
        return self.redirect(f"/issues/{int(number)}")

    def unlabel(self, request: Request, number: str) -> Response:
        """Remove a label."""
        actions.remove_label(self.desk, self._issue(number)["id"], request.sent("label"))
        return self.redirect(f"/issues/{int(number)}")

    def retitle(self, request: Request, number: str) -> Response:
        """Take another title."""
        actions.retitle_issue(self.desk, self._issue(number)["id"], request.sent("title"))
        return self.redirect(f"/issues/{int(number)}")

    def milestones(self, request: Request) -> Response:
        """Answer with the milestones."""
        rows = self.store.rows("SELECT * FROM milestones ORDER BY due")
        cells = [(link(row["title"], address("/issues", milestone=row["id"])), row["due"]) for row in rows]
        return self.page("Milestones", table(("Milestone", "Due"), cells))

    def labels(self, request: Request) -> Response:
        """Answer with the labels."""
        return self.page(
            "Labels", tag("ul", [tag("li", link(one, address("/issues", label=one))) for one in words.LABELS])
        )
