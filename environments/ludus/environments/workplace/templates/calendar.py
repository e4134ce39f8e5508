"""Tasks around the calendar."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.environments.workplace.drafts import Case, Unsuitable, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.policies import BOOKING, MEETINGS
from ludus.environments.workplace.templates.hr import leave
from ludus.environments.workplace.world.company import clock, free_slots
from ludus.environments.workplace.world.schema import Employee, Leave
from ludus.environments.workplace.world.words import EVENT_NAMES, ROOMS

_OTHERS = 3


def later(start: str, minutes: int) -> str:
    """Return the time some half hours after another one."""
    hour, minute = map(int, start.split(":"))
    return clock((hour * 60 + minute + minutes) // 30)


def common_day(case: Case, people: Sequence[Employee], minutes: int) -> tuple[str, list[str]]:
    """Return a day on which these people have a common time, but not at 09:00, and all such start times."""
    ids = [person.id for person in people]
    for offset in case.rng.sample(range(1, 13), 12):
        day = case.company.workday(offset)
        starts = free_slots(case.company, ids, day, minutes)
        if starts and starts[0] != "09:00":
            return day, starts
    raise Unsuitable


def people_of(*people: Employee) -> str:
    """Return the ids of attendees as `people` of an event has them."""
    return ", ".join(sorted(person.id for person in people))


@template("calendar/when-is", "easy")
def when_is(case: Case) -> Goal:
    """Ask when an event takes place."""
    me = case.colleague()
    other = case.colleague(me)
    title = case.pick(EVENT_NAMES)
    day = case.day(2, 14)
    slot = case.rng.randrange(18, 32)
    past = case.event(title, [other, me], f"{case.company.workday(-4)} 10:00", f"{case.company.workday(-4)} 11:00")
    event = case.event(title, [other, me], f"{day} {clock(slot)}", f"{day} {clock(slot + 2)}")
    return Goal(
        f'When does the next "{title}" in my calendar start? Answer in the form YYYY-MM-DD HH:MM.',
        me,
        (look("calendar_search", past.id, event.starts, query=title),),
        answer=event.starts,
    )


@template("calendar/decline", "easy")
def decline(case: Case) -> Goal:
    """Ask to decline one of two events with the same title."""
    me = case.colleague()
    other = case.colleague(me)
    title = case.pick(EVENT_NAMES)
    first, second = case.rng.sample(range(2, 14), 2)
    days = case.company.workday(first), case.company.workday(second)
    event = case.event(title, [other, me], f"{days[0]} 13:00", f"{days[0]} 14:00")
    case.event(title, [other, me], f"{days[1]} 13:00", f"{days[1]} 14:00")
    return Goal(
        f'Decline the "{title}" on {days[0]} for me.',
        me,
        (
            look("calendar_list", event.id, first_day=days[0], last_day=days[0]),
            do("calendar_respond", event_id=event.id, response="declined"),
        ),
        (Update("attendees", f"{event.id}/{me.id}", {"response": "declined"}),),
    )


@template("calendar/focus-time", "easy")
def focus_time(case: Case) -> Goal:
    """Ask for an event without others."""
    me = case.colleague()
    day = case.day(1, 12)
    minutes = case.pick((60, 90, 120))
    start = case.pick(free_slots(case.company, [me.id], day, minutes))
    end = later(start, minutes)
    title = f"{case.pick(('Focus', 'Reading', 'Writing', 'Preparation'))} {case.pick(('block', 'time', 'hours'))}"
    return Goal(
        f'Put "{title}" into my calendar on {day} from {start} to {end}, without other people and without a room.',
        me,
        (do("calendar_create", title=title, starts=f"{day} {start}", ends=f"{day} {end}", attendees=[]),),
        (
            Insert(
                "events", {"title": title, "people": me.id},
                {"starts": f"{day} {start}", "ends": f"{day} {end}", "room": ""},
            ),
        ),
    )  # fmt: skip


@template("calendar/cancel-own", "easy")
def cancel_own(case: Case) -> Goal:
    """Ask to cancel an event that one organizes; another one has the same title."""
    me = case.colleague()
    other = case.colleague(me)
    title = case.pick(EVENT_NAMES)
    first, second = case.rng.sample(range(2, 14), 2)
    days = case.company.workday(first), case.company.workday(second)
    event = case.event(title, [me, other], f"{days[0]} 09:30", f"{days[0]} 10:00")
    case.event(title, [me, other], f"{days[1]} 09:30", f"{days[1]} 10:00")
    return Goal(
        f'Cancel the "{title}" that I organize on {days[0]}.',
        me,
        (
            look("calendar_list", event.id, first_day=days[0], last_day=days[0]),
            do("calendar_cancel", event_id=event.id),
        ),
        (Update("events", event.id, {"status": "cancelled"}),),
    )


@template("calendar/first-common-time", "medium")
def first_common_time(case: Case) -> Goal:
    """Ask for a meeting with a colleague at the first time of a day when both are free."""
    me = case.colleague()
    other = case.colleague(me)
    minutes = case.pick((30, 60, 90))
    day, starts = common_day(case, [me, other], minutes)
    title = f"{case.pick(EVENT_NAMES)} preparation"
    start, end = starts[0], later(starts[0], minutes)
    return Goal(
        f'Invite {other.name} ({other.department}) to "{title}" on {day} for {minutes} minutes, at the earliest time '
        "when both of us are free.",
        me,
        (
            look("people_search", other.id, query=other.name),
            look("calendar_free", f"at: {start}", people=[other.id], day=day, minutes=minutes),
            do("calendar_create", title=title, starts=f"{day} {start}", ends=f"{day} {end}", attendees=[other.id]),
        ),
        (
            Insert(
                "events", {"title": title, "people": people_of(me, other)},
                {"starts": f"{day} {start}", "ends": f"{day} {end}"},
            ),
        ),
        rules=(BOOKING,),
    )  # fmt: skip


@template("calendar/move-as-asked", "medium")
def move_as_asked(case: Case) -> Goal:
    """Ask to move an event to the time that a colleague proposes by mail."""
    me = case.colleague()
    other = case.colleague(me)
    title = case.pick(EVENT_NAMES)
    old, new = case.rng.sample(range(2, 12), 2)
    day, target = case.company.workday(old), case.company.workday(new)
    start = case.pick(free_slots(case.company, [me.id, other.id], target, 60))
    event = case.event(title, [me, other], f"{day} 16:00", f"{day} 17:00")
    mail = case.mail(
        other.email, me, f"{title}: another time?",
        f"Hi {me.name.split()[0]},\n\nI cannot come to the {title} as planned. Would {target} at {start} work for "
        f"you? The length stays the same.\n\n{other.name}",
    )  # fmt: skip
    return Goal(
        f"{other.name} asked me by mail to move a meeting that I organize. Move it to the proposed time.",
        me,
        (
            look("mail_search", mail.id, query=f"{other.email} another time"),
            look("mail_read", target, start, title, mail_id=mail.id),
            look("calendar_search", event.id, query=title),
            do("calendar_move", event_id=event.id, starts=f"{target} {start}", ends=f"{target} {later(start, 60)}"),
        ),
        (Update("events", event.id, {"starts": f"{target} {start}", "ends": f"{target} {later(start, 60)}"}),),
        rules=(BOOKING,),
    )


@template("calendar/decline-day", "medium")
def decline_day(case: Case) -> Goal:
    """Ask to decline all events of a day that others organize, and to cancel one's own."""
    company = case.company
    me = case.colleague()
    day = case.day(1, 12)
    events = [one for one in company.events_of.get(me.id, []) if one.starts.startswith(day)]
    case.need(len(events) >= 1)
    others = case.rng.sample([employee for employee in company.employees if employee is not me], 2)
    taken = company.busy.get((me.id, day), [])
    slots = [slot for slot in range(18, 33) if all(clock(slot + 1) <= a or clock(slot) >= b for a, b in taken)]
    case.need(len(slots) >= 6)
    mine, theirs = slots[1], slots[4]
    own = case.event(case.pick(EVENT_NAMES), [me, others[0]], f"{day} {clock(mine)}", f"{day} {clock(mine + 1)}")
    new = case.event(case.pick(EVENT_NAMES), [others[1], me], f"{day} {clock(theirs)}", f"{day} {clock(theirs + 1)}")
    invited = [one for one in [*events, new] if one.organizer != me.id]
    organized = [one for one in [*events, own] if one.organizer == me.id]
    return Goal(
        f"I am away on {day}. Cancel the meetings of that day that I organize, and decline all others.",
        me,
        (
            look("calendar_list", own.id, new.id, first_day=day, last_day=day),
            *(do("calendar_cancel", event_id=one.id) for one in organized),
            *(do("calendar_respond", event_id=one.id, response="declined") for one in invited),
        ),
        (
            *(Update("events", one.id, {"status": "cancelled"}) for one in organized),
            *(Update("attendees", f"{one.id}/{me.id}", {"response": "declined"}) for one in invited),
        ),
    )


@template("calendar/smallest-room", "medium")
def smallest_room(case: Case) -> Goal:
    """Ask for a meeting in the smallest free room with enough seats."""
    company = case.company
    me = case.colleague()
    others = case.rng.sample([employee for employee in company.employees[1:] if employee is not me], _OTHERS)
    minutes = case.pick((30, 60))
    day = case.day(1, 12)
    start = case.pick(free_slots(company, [me.id, *(one.id for one in others)], day, minutes))
    end = later(start, minutes)
    guests = case.rng.randrange(1, 9)
    seats = guests + len(others) + 1
    taken = {event.room for event in company.events if event.starts < f"{day} {end}" and event.ends > f"{day} {start}"}
    free = [name for name, size, _ in ROOMS if size >= seats and name not in taken]
    case.need(free)
    title = f"{case.pick(EVENT_NAMES)} planning"
    names = ", ".join(f"{one.name} ({one.department})" for one in others)
    return Goal(
        f'Create "{title}" on {day} from {start} to {end} with {names}. Besides the four of us, {guests} guests come. '
        "Book the smallest free room with a seat for everyone.",
        me,
        (
            *(look("people_search", one.id, query=one.name) for one in others),
            look("calendar_rooms", free[0], day=day, start_time=start, end_time=end, seats=seats),
            do(
                "calendar_create", title=title, starts=f"{day} {start}", ends=f"{day} {end}", room=free[0],
                attendees=[one.id for one in others],
            ),
        ),
        (
            Insert(
                "events", {"title": title, "people": people_of(me, *others)},
                {
                    "starts": f"{day} {start}", "ends": f"{day} {end}", "room": free[0],
                },
            ),
        ),
        rules=(BOOKING,),
    )  # fmt: skip


@template("calendar/three-people-and-room", "hard")
def three_people_and_room(case: Case) -> Goal:
    """Ask for the earliest common time of three people on several days, with a free room."""
    company = case.company
    me = case.colleague()
    first = case.colleague(me, department=case.pick(("Sales", "Engineering", "Support")))
    second = case.colleague(me, first, department=case.pick(("Product", "Marketing", "Operations", "HR")))
    people = [me, first, second]
    minutes = case.pick((90, 120, 150))
    begin = case.rng.randrange(1, 9)
    days = [company.workday(begin + n) for n in range(3)]
    found = [
        (day, start) for day in days for start in free_slots(company, [person.id for person in people], day, minutes)
    ]
    case.need(found and found[0] != (days[0], "09:00"))
    day, start = found[0]
    end = later(start, minutes)
    taken = {event.room for event in company.events if event.starts < f"{day} {end}" and event.ends > f"{day} {start}"}
    room = case.pick([name for name, _, _ in ROOMS if name not in taken])
    title = f"{case.pick(EVENT_NAMES)} workshop"
    return Goal(
        f"Find the earliest time from {days[0]} to {days[2]} at which {first.name}, {second.name} and I are all free "
        f'for {minutes} minutes within the meeting hours, and create "{title}" with both of them then, in the room '
        f'{room}. Then send {second.name} a mail with the subject "{title}" that states the date, the start time and '
        "the room.",
        me,
        (
            look("people_search", first.id, query=first.name),
            look("people_search", second.id, second.email, query=second.name),
            *(
                look("calendar_free", *([f"at: {start}"] if one == day else []), people=[first.id, second.id], day=one,
                     minutes=minutes)
                for one in days[: days.index(day) + 1]
            ),
            do(
                "calendar_create", title=title, starts=f"{day} {start}", ends=f"{day} {end}", room=room,
                attendees=[first.id, second.id],
            ),
            do("mail_send", to=[second.email], subject=title, body=f"We meet on {day} at {start} in {room}."),
        ),
        (
            Insert(
                "events", {"title": title, "people": people_of(*people)},
                {"starts": f"{day} {start}", "ends": f"{day} {end}", "room": room},
            ),
            Insert("mails", {"recipients": second.email}, {"subject": title, "body": Facts((day, start, room))}),
        ),
        context=end,
        rules=(BOOKING, MEETINGS),
    )  # fmt: skip


@template("calendar/resolve-conflict", "hard")
def resolve_conflict(case: Case) -> Goal:
    """Ask to resolve an overlap: the event that one organizes moves to the next common time of its attendees."""
    company = case.company
    me = case.colleague()
    mine, theirs = case.rng.sample([employee for employee in company.employees[1:] if employee is not me], 2)
    day = case.day(1, 12)
    ours = free_slots(company, [me.id, mine.id], day, 60)
    next_start = {start: next((one for one in ours if one >= later(start, 60)), "") for start in ours}
    both = [
        free_slot
        for free_slot in free_slots(company, [me.id, mine.id, theirs.id], day, 60)
        if next_start[free_slot] > later(free_slot, 60)
    ]
    start = case.pick(both)
    new = next_start[start]
    names = case.rng.sample(EVENT_NAMES, 2)
    own = case.event(names[0], [me, mine], f"{day} {start}", f"{day} {later(start, 60)}")
    fixed = case.event(names[1], [theirs, me], f"{day} {start}", f"{day} {later(start, 60)}")
    return Goal(
        f"Two of my meetings on {day} overlap. Move the one that I organize to the next time on the same day, after "
        "the other one, at which everyone invited to it is free; it keeps its length. Then mail the other attendee "
        "of the moved meeting, with its title as the subject, and state the new date and start time.",
        me,
        (
            look("calendar_list", own.id, fixed.id, first_day=day, last_day=day),
            look("calendar_read", mine.id, mine.email, event_id=own.id),
            look("calendar_free", new, people=[mine.id], day=day, minutes=60),
            do("calendar_move", event_id=own.id, starts=f"{day} {new}", ends=f"{day} {later(new, 60)}"),
            do("mail_send", to=[mine.email], subject=names[0], body=f"Our meeting moves to {day} at {new}."),
        ),
        (
            Update("events", own.id, {"starts": f"{day} {new}", "ends": f"{day} {later(new, 60)}"}),
            Insert("mails", {"recipients": mine.email}, {"subject": names[0], "body": Facts((day, new))}),
        ),
        context=f"{start} {later(start, 60)} {later(new, 60)}",
        rules=(BOOKING, MEETINGS),
    )


@template("calendar/nobody-away", "hard")
def nobody_away(case: Case) -> Goal:
    """Ask a manager for a meeting with some reports on the first day on which none of them has approved leave."""
    company = case.company
    me = case.manager()
    team = case.rng.sample(company.reports[me.id], 3)
    ids = {one.id for one in team}
    begin = case.rng.randrange(2, 8)
    days = [company.workday(begin + n) for n in range(5)]
    leave(case, team[0], days[0], case.rng.randrange(1, 3), "approved")
    leave(case, team[1], days[case.rng.randrange(0, 3)], 1, case.pick(("approved", "rejected", "withdrawn")))
    rows = [leaf for leaf in company.leaves if leaf.status == "approved"] + [
        Leave(*row) for table, row in case.rows if table == "leaves" and row[6] == "approved"
    ]
    away = {day for day in days for one in rows if one.employee in ids and one.first_day <= day <= one.last_day}
    found = [
        (day, start) for day in days if day not in away
        for start in free_slots(company, [me.id, *sorted(ids)], day, 60)
    ]  # fmt: skip
    case.need(found)
    day, start = found[0]
    title = f"{case.pick(EVENT_NAMES)} with the team"
    names = ", ".join(one.name for one in team)
    reports = {one.id for one in company.reports[me.id]}
    pages = (sum(one.employee in reports for one in rows) + 9) // 10
    return Goal(
        f'Plan "{title}" for one hour with my direct reports {names}: on the first day from {days[0]} to {days[-1]} '
        "on which none of the three has approved leave and all four of us have a common free hour, at the earliest "
        "time of that day within the meeting hours.",
        me,
        (
            *(look("people_search", one.id, query=one.name) for one in team),
            *(look("hr_leaves", "found", employee="reports", status="approved", page=n + 1) for n in range(pages)),
            *(
                look(
                    "calendar_free", *([f"at: {start}"] if one == day else []), people=sorted(ids), day=one, minutes=60
                )
                for one in days
                if one <= day and one not in away
            ),
            do(
                "calendar_create",
                title=title,
                starts=f"{day} {start}",
                ends=f"{day} {later(start, 60)}",
                attendees=sorted(ids),
            ),
        ),
        (
            Insert(
                "events",
                {"title": title, "people": people_of(me, *team)},
                {"starts": f"{day} {start}", "ends": f"{day} {later(start, 60)}"},
            ),
        ),
        rules=(BOOKING, MEETINGS),
    )
