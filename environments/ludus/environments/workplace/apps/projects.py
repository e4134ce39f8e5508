"""Projects: their tickets and comments."""

from __future__ import annotations

from typing import Final, Literal

from ludus.environments._arguments import filled, read_date
from ludus.environments.workplace.apps.desk import App, Long, Page, Short, listed, matching
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

Priority = Literal["low", "medium", "high"]
StatusFilter = Literal["any", "not done", "open", "in progress", "blocked", "done"]
NewStatus = Literal["same", "open", "in progress", "blocked", "done"]
NewPriority = Literal["same", "low", "medium", "high"]
_LINE: Final = "{id} | {project} | {title} | {status} | {priority} | assignee {assignee_name} | due {due}"
_TICKETS: Final = (
    "SELECT t.*, COALESCE(p.name || ' (' || p.id || ')', 'none') AS assignee_name FROM tickets t LEFT JOIN employees "
    "p ON p.id = t.assignee WHERE "
)
_EDITORS: Final = ("Engineering", "Product", "Support", "Operations")


class ProjectsApp(App):
    """Find and keep tickets."""

    @tool
    def projects_list(self, query: Short, page: Page = 1) -> str:
        """Find projects by words in their id, name or lead; an empty query lists all.

        Args:
            query: the words.
            page: the page, from 1.
        """
        condition, values = matching(query, ("j.id", "j.name", "p.name"))
        rows = self.desk.store.rows(
            "SELECT j.*, p.name AS lead_name, p.email FROM projects j JOIN employees p ON p.id = j.lead "
            f"WHERE {condition} ORDER BY j.id", *values,
        )  # fmt: skip
        return listed(
            rows,
            page,
            "{id} | {name} | lead {lead_name} ({lead}, {email}) | deadline {deadline}",
            "No project matches.",
        )

    @tool
    def tickets_search(self, query: Short, project: Short = "", status: StatusFilter = "any", page: Page = 1) -> str:
        """Find tickets by words in their title, description or assignee, in the order of their due date.

        Args:
            query: the words; empty for all tickets. `none` does not match tickets without an assignee.
            project: only tickets of this project, such as ATLAS.
            status: only tickets with this status.
            page: the page, from 1; ten tickets each.
        """
        condition, values = matching(query, ("t.title", "t.description", "p.name", "p.id"))
        if project.strip():
            self.desk.find("projects", project.upper(), "projects_list lists the projects.")
            condition, values = f"{condition} AND t.project = ?", [*values, project.strip().upper()]
        if status == "not done":
            condition += " AND t.status <> 'done'"
        elif status != "any":
            condition, values = f"{condition} AND t.status = ?", [*values, status]
        rows = self.desk.store.rows(f"{_TICKETS} {condition} ORDER BY t.due, t.id", *values)
        return listed(rows, page, _LINE, "No ticket matches.")

    @tool
    def ticket_read(self, ticket_id: Short) -> str:
        """Show a ticket with its description and comments.

        Args:
            ticket_id: the id, such as T-2042.
        """
        ticket = self._ticket(ticket_id)
        comments = self.desk.store.rows("SELECT * FROM comments WHERE ticket = ? ORDER BY id", ticket["id"])
        lines = "\n".join(f"- {comment['id']} by {comment['author']}: {comment['body']}" for comment in comments)
        return (
            f"{_LINE.format(**ticket)}\nReporter: {ticket['reporter']}\nDescription: {ticket['description']}\n"
            f"Comments:\n{lines or '- none'}"
        )

    @tool
    def ticket_create(
        self, project: Short, title: Short, description: Long, priority: Priority = "medium", due: Short = ""
    ) -> str:
        """Create an open ticket; everyone may.

        Args:
            project: the project, such as ATLAS.
            title: the title.
            description: the description.
            priority: the priority.
            due: the due date, as YYYY-MM-DD; empty for two weeks from today.
        """
        found = self.desk.find("projects", project.upper(), "projects_list lists the projects.")
        day = read_date(due, "due") if due.strip() else self.desk.in_days(14)
        ticket = {
            "id": self.desk.store.new_id("tickets"),
            "project": found["id"],
            "title": filled(title, "title"),
            "description": description,
            "status": "open",
            "priority": priority,
            "assignee": "",
            "reporter": self.desk.id,
            "due": day,
        }
        self.desk.store.insert("tickets", ticket)
        self.desk.audit("create ticket", ticket["id"])
        return f"Created {ticket['id']}."

    @tool
    def ticket_assign(self, ticket_id: Short, assignee: Short) -> str:
        """Assign a ticket to a colleague.

        Args:
            ticket_id: the id, such as T-2042.
            assignee: the id or address of the colleague.
        """
        return self._change(ticket_id, assignee=self.desk.employee(assignee)["id"])

    @tool
    def ticket_update(
        self,
        ticket_id: Short,
        status: NewStatus = "same",
        priority: NewPriority = "same",
        due: Short = "",
    ) -> str:
        """Change the status, the priority or the due date of a ticket.

        Args:
            ticket_id: the id, such as T-2042.
            status: the new status; `same` keeps it.
            priority: the new priority; `same` keeps it.
            due: the new due date, as YYYY-MM-DD; empty keeps it.
        """
        asked: dict[str, str] = {"status": status, "priority": priority}
        values = {name: value for name, value in asked.items() if value != "same"}
        if due.strip():
            values["due"] = read_date(due, "due")
        return self._change(ticket_id, **values)

    @tool
    def ticket_comment(self, ticket_id: Short, body: Long) -> str:
        """Write a comment on a ticket; everyone may.

        Args:
            ticket_id: the id, such as T-2042.
            body: the text.
        """
        ticket = self._ticket(ticket_id)
        comment = {
            "id": self.desk.store.new_id("comments"), "ticket": ticket["id"], "author": self.desk.id,
            "body": filled(body, "body"),
        }  # fmt: skip
        self.desk.store.insert("comments", comment)
        self.desk.audit("comment", comment["id"])
        return f"Wrote {comment['id']} on {ticket['id']}."

    def _change(self, id: str, **values: str) -> str:
        ticket = self._ticket(id)
        if not self.desk.works_in(*_EDITORS):
            raise ToolError(f"No access: tickets are changed by {', '.join(_EDITORS)} only.")
        if not values:
            raise ToolError("Nothing to change: give a status, a priority or a due date.")
        self.desk.store.update("tickets", ticket["id"], **values)
        self.desk.audit("update ticket", ticket["id"])
        return f"{ticket['id']} is updated: {', '.join(f'{name} {value}' for name, value in values.items())}."

    def _ticket(self, id: str) -> Row:
        found = self.desk.store.rows(f"{_TICKETS} t.id = ?", id.strip())
        if not found:
            raise ToolError(
                f"There is no ticket {id.strip()[:40]!r}. Ids look like T-2042; find them with tickets_search."
            )
        return found[0]
