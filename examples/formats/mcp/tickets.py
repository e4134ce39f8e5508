"""An MCP server with the tickets of a help desk.

ludus serve "mcp:python examples/formats/mcp/tickets.py" --tasks examples/formats/mcp/tickets.jsonl
"""

from __future__ import annotations

from typing import Any, Literal

from mcp.server.mcpserver import MCPServer

server = MCPServer("tickets", instructions="Tickets are open until their status is `closed`.")

STAFF = ("ada", "ben", "cleo")
tickets: dict[int, dict[str, Any]] = {
    number: {"title": title, "status": status, "assignee": assignee, "priority": priority, "comments": []}
    for number, title, status, assignee, priority in (
        (1, "Printer on floor 2 jams", "open", "ada", 2),
        (2, "Password reset for Mia", "open", None, 3),
        (3, "Printer on floor 5 is out of toner", "closed", "ben", 1),
        (4, "VPN drops every hour", "open", "cleo", 1),
        (5, "New laptop for Noah", "open", None, 3),
        (6, "VPN is slow abroad", "open", "cleo", 2),
    )
}


def _find(number: int) -> dict[str, Any]:
    if number not in tickets:
        raise ValueError(f"there is no ticket {number}")
    return tickets[number]


@server.tool()
def list_tickets() -> list[dict[str, Any]]:
    """List the number and the title of all tickets."""
    return [{"number": number, "title": ticket["title"]} for number, ticket in tickets.items()]


@server.tool()
def read_ticket(number: int) -> dict[str, Any]:
    """Read a ticket; priority 1 is the most urgent."""
    return {"number": number, **_find(number)}


@server.tool()
def create_ticket(title: str, priority: int = 3) -> int:
    """Create an open ticket without an assignee, and return its number."""
    number = max(tickets) + 1
    tickets[number] = {"title": title, "status": "open", "assignee": None, "priority": priority, "comments": []}
    return number


@server.tool()
def assign(number: int, person: str) -> str:
    """Assign a ticket to one of the staff: ada, ben or cleo."""
    if person not in STAFF:
        raise ValueError(f"{person} is not one of the staff: {', '.join(STAFF)}")
    _find(number)["assignee"] = person
    return "assigned"


@server.tool()
def set_status(number: int, status: Literal["open", "waiting", "closed"]) -> str:
    """Set the status of a ticket."""
    _find(number)["status"] = status
    return "set"


@server.tool()
def comment(number: int, text: str) -> str:
    """Add a comment to a ticket."""
    _find(number)["comments"].append(text)
    return "added"


if __name__ == "__main__":
    server.run("stdio")
