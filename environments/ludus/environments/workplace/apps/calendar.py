"""Calendar: events, invitations, free times and rooms."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import Field

from ludus.environments._arguments import filled, read_date
from ludus.environments.workplace.apps.desk import App, Page, Short, listed, matching, read_time, weekday
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

People = Annotated[list[Annotated[str, Field(max_length=120)]], Field(max_length=20)]
_HINT: Final = "Ids of events look like E-310; find them with calendar_list or calendar_search."
_LINE: Final = (
    "{id} | {starts} to {end_time} | {title} | organizer {organizer_name} | room {room_name} | your answer: {response}"
)
_JOIN: Final = (
    "SELECT e.*, a.response, p.name AS organizer_name FROM attendees a JOIN events e ON e.id = a.event JOIN "
    "employees p ON p.id = e.organizer WHERE a.employee = ? AND e.status = 'confirmed' AND "
)


class CalendarApp(App):
    """Read and plan meetings."""

    @tool
    def calendar_list(self, first_day: Short, last_day: Short, page: Page = 1) -> str:
        """List the events of the person you work for, in the order of time.

        Args:
            first_day: the first day, as YYYY-MM-DD.
            last_day: the last day, as YYYY-MM-DD.
            page: the page, from 1; ten events each.
        """
        first, last = read_date(first_day, "first_day"), read_date(last_day, "last_day")
        rows = self._events("SUBSTR(e.starts, 1, 10) BETWEEN ? AND ?", first, last)
        return listed(rows, page, _LINE, "There are no events on these days.")

    @tool
    def calendar_search(self, query: Short, page: Page = 1) -> str:
        """Find events of the person you work for by words in the title, also past ones, in the order of time.

        Args:
            query: words of the title.
            page: the page, from 1; ten events each.
        """
        condition, values = matching(filled(query, "query"), ("e.title",))
        return listed(self._events(condition, *values), page, _LINE, "No event has all these words in its title.")

    @tool
    def calendar_read(self, event_id: Short) -> str:
        """Show an event with its attendees.

        Args:
            event_id: the id, such as E-310.
        """
        event = self._event(event_id)
        people = self.desk.store.rows(
            "SELECT p.id, p.name, p.email, a.response FROM attendees a JOIN employees p ON p.id = a.employee "
            "WHERE a.event = ? ORDER BY p.name", event["id"],
        )  # fmt: skip
        lines = "\n".join(
            f"- {person['name']} ({person['id']}, {person['email']}): {person['response']}" for person in people
        )
        return (
            f"{event['id']}: {event['title']}\n{weekday(event['starts'])}, {event['starts']} to {event['ends'][11:]}\n"
            f"Organizer: {event['organizer']}\nRoom: {event['room'] or 'none'}\nAttendees:\n{lines}"
        )

    @tool
    def calendar_free(self, people: People, day: Short, minutes: Annotated[int, Field(ge=15, le=480)]) -> str:
        """List the times between 09:00 and 17:00 at which you and these colleagues are all free.

        Args:
            people: ids or addresses of colleagues; empty for the person you work for alone.
            day: the day, as YYYY-MM-DD.
            minutes: how long the meeting takes.
        """
        on = read_date(day, "day")
        if date.fromisoformat(on).weekday() >= 5:
            return f"{on} is a {weekday(on)}; there are no meetings on weekends."
        everyone = {self.desk.id, *(self.desk.employee(person)["id"] for person in people)}
        starts = self._free(sorted(everyone), "", on, minutes)
        names = "you" if len(everyone) == 1 else f"all {len(everyone)} of you"
        if not starts:
            return f"On {weekday(on)}, {on}, there is no time for {minutes} minutes at which {names} are free."
        return f"On {weekday(on)}, {on}, {names} can start {minutes} minutes at: {', '.join(starts)}."

    @tool
    def calendar_rooms(
        self, day: Short, start_time: Short, end_time: Short, seats: Annotated[int, Field(ge=1, le=100)]
    ) -> str:
        """List the free rooms for a time, the smallest first.

        Args:
            day: the day, as YYYY-MM-DD.
            start_time: the start, as HH:MM.
            end_time: the end, as HH:MM.
            seats: how many seats are needed.
        """
        starts, ends = read_time(f"{day} {start_time}", "the start"), read_time(f"{day} {end_time}", "the end")
        rooms = self.desk.store.rows("SELECT * FROM rooms WHERE seats >= ? ORDER BY seats", seats)
        free = [room for room in rooms if not self._booked("", room["id"], starts, ends)]
        return listed(free, 1, "{id} | {seats} seats | floor {floor}", "No room with that many seats is free then.")

    @tool
    def calendar_create(self, title: Short, starts: Short, ends: Short, attendees: People, room: Short = "") -> str:
        """Create an event and invite colleagues; the person you work for is its organizer and always attends.

        Args:
            title: the title.
            starts: the start, as YYYY-MM-DD HH:MM.
            ends: the end, as YYYY-MM-DD HH:MM.
            attendees: ids or addresses of colleagues; may be empty.
            room: the name of a room; empty for none.
        """
        store = self.desk.store
        start, end = self._span(starts, ends)
        others = [self.desk.employee(attendee)["id"] for attendee in attendees]
        place = self._room(room)
        event = {
            "id": store.new_id("events"), "title": filled(title, "title"), "organizer": self.desk.id, "starts": start,
            "ends": end, "room": place, "status": "confirmed",
        }  # fmt: skip
        store.insert("events", event)
        for fromkey in dict.fromkeys([self.desk.id, *others]):
            response = "accepted" if fromkey == self.desk.id else "none"
            row = {"id": f"{event['id']}/{fromkey}", "event": event["id"], "employee": fromkey, "response": response}
            store.insert("attendees", row)
        self.desk.audit("create event", event["id"])
        return f"Created {event['id']}."

    @tool
    def calendar_move(self, event_id: Short, starts: Short, ends: Short, room: Short = "same") -> str:
        """Move an event that the person you work for organizes to another time or room.

        Args:
            event_id: the id, such as E-310.
            starts: the new start, as YYYY-MM-DD HH:MM.
            ends: the new end, as YYYY-MM-DD HH:MM.
            room: the name of a room, `none`, or `same` to keep the room.
        """
        event = self._own(event_id)
        start, end = self._span(starts, ends)
        place = event["room"] if room == "same" else self._room("" if room == "none" else room)
        self.desk.store.update("events", event["id"], starts=start, ends=end, room=place)
        self.desk.audit("move event", event["id"])
        return f"{event['id']} is now from {start} to {end[11:]}."

    @tool
    def calendar_cancel(self, event_id: Short) -> str:
        """Cancel an event that the person you work for organizes.

        Args:
            event_id: the id, such as E-310.
        """
        event = self._own(event_id)
        self.desk.store.update("events", event["id"], status="cancelled")
        self.desk.audit("cancel event", event["id"])
        return f"{event['id']} is cancelled."

    @tool
    def calendar_respond(self, event_id: Short, response: Literal["accepted", "declined", "tentative"]) -> str:
        """Answer an invitation.

        Args:
            event_id: the id, such as E-310.
            response: the answer.
        """
        event = self._event(event_id)
        self.desk.store.update("attendees", f"{event['id']}/{self.desk.id}", response=response)
        self.desk.audit("answer invitation", event["id"])
        return f"Your answer to {event['id']} is: {response}."

    def _events(self, condition: str, *values: str) -> list[Row]:
        rows = self.desk.store.rows(f"{_JOIN} ({condition}) ORDER BY e.starts, e.id", self.desk.id, *values)
        return [{**row, "end_time": row["ends"][11:], "room_name": row["room"] or "none"} for row in rows]

    def _event(self, id: str) -> Row:
        found = self._events("e.id = ?", id.strip())
        if not found:
            raise ToolError(f"There is no event {id.strip()[:40]!r} in this calendar. {_HINT}")
        return found[0]

    def _own(self, id: str) -> Row:
        event = self._event(id)
        if event["organizer"] != self.desk.id:
            raise ToolError(f"Only the organizer, {event['organizer_name']}, may change {event['id']}.")
        return event

    def _room(self, name: str) -> str:
        if not name.strip():
            return ""
        found = self.desk.store.rows("SELECT id FROM rooms WHERE id = ? COLLATE NOCASE", name.strip())
        if not found:
            raise ToolError(f"There is no room {name[:40]!r}; calendar_rooms lists them.")
        return str(found[0]["id"])

    def _span(self, starts: str, ends: str) -> tuple[str, str]:
        start, end = read_time(starts, "the start"), read_time(ends, "the end")
        if not start < end or start[:10] != end[:10]:
            raise ToolError("The end must be later than the start, on the same day.")
        if start[:10] < self.desk.today.isoformat():
            raise ToolError(f"{start[:10]} is in the past; today is {self.desk.today.isoformat()}.")
        return start, end

    def _booked(self, person: str, room: str, start: str, end: str) -> bool:
        sql = "SELECT 1 AS one FROM events e WHERE e.status = 'confirmed' AND e.starts < ? AND e.ends > ? AND "
        if room:
            return bool(self.desk.store.rows(f"{sql} e.room = ? LIMIT 1", end, start, room))
        mine = "EXISTS (SELECT 1 FROM attendees a WHERE a.event = e.id AND a.employee = ? AND a.response <> 'declined')"
        return bool(self.desk.store.rows(f"{sql} {mine} LIMIT 1", end, start, person))

    def _free(self, people: list[str], room: str, day: str, minutes: int) -> list[str]:
        marks = ", ".join("?" * len(people))
        taken = [
            (row["starts"], row["ends"])
            for row in self.desk.store.rows(
                "SELECT e.starts, e.ends FROM attendees a JOIN events e ON e.id = a.event WHERE e.status = 'confirmed' "
                f"AND a.response <> 'declined' AND SUBSTR(e.starts, 1, 10) = ? AND a.employee IN ({marks})",
                day,
                *people,
            )
        ]
        found, slot = [], datetime.fromisoformat(f"{day} 09:00")
        while (after := slot + timedelta(minutes=minutes)) <= datetime.fromisoformat(f"{day} 17:00"):
            start, end = slot.strftime("%Y-%m-%d %H:%M"), after.strftime("%Y-%m-%d %H:%M")
            if not any(start < ends and end > begins for begins, ends in taken):
                found.append(start[11:])
            slot += timedelta(minutes=30)
        return found
