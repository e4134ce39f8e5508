"""Filter, move, count and write calendar dates."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NAMES: Final = ("plan_dates", "convert_dates", "process_days", "arrange_dates", "study_calendar")


def rules(rng: random.Random) -> list[Rule]:
    """Return rules that keep or change dates."""
    days, shift, target = sorted(rng.sample(range(7), 2)), rng.randint(3, 40), rng.randint(0, 6)
    month, m = rng.randint(4, 9), rng.randint(2, 3)
    first, second = (WEEKDAYS[day] for day in days)
    return [
        Rule("drop-weekdays", f"Remove the dates that are a {first} or a {second}.",
             f"days = [day for day in days if day.weekday() not in ({days[0]}, {days[1]})]"),
        Rule("drop-weekend", "Move each Saturday to the Friday before it, and each Sunday to the Monday after it.",
             "days = [day - timedelta(1) if day.weekday() == 5 else day + timedelta(1) if day.weekday() == 6 else day\n"
             "        for day in days]"),
        Rule("shift", f"Move each date {shift} days into the future.",
             f"days = [day + timedelta({shift}) for day in days]"),
        Rule("shift-odd", f"Move each date with an odd day of the month {shift} days into the past.",
             f"days = [day - timedelta({shift}) if day.day % 2 == 1 else day for day in days]"),
        Rule("month-start", "Replace each date by the first day of its month.",
             "days = [day.replace(day=1) for day in days]"),
        Rule("month-end", "Replace each date by the last day of its month.",
             "days = [(day.replace(day=28) + timedelta(4)).replace(day=1) - timedelta(1) for day in days]"),
        Rule("next-weekday", f"Replace each date that is no {WEEKDAYS[target]} by the next {WEEKDAYS[target]} after it.",
             f"days = [day + timedelta(({target} - day.weekday()) % 7) for day in days]"),
        Rule("week-start", "Replace each date by the Monday of its week; a week ends with Sunday.",
             "days = [day - timedelta(day.weekday()) for day in days]"),
        Rule("late-months", f"Remove the dates in the months 1 to {month - 3}.",
             f"days = [day for day in days if day.month > {month - 3}]"),
        Rule("not-leap", "Remove the dates in leap years.",
             "days = [day for day in days if day.year % 4 != 0 or day.year % 100 == 0 and day.year % 400 != 0]"),
        Rule("unique", "Of equal dates, keep only the first.", "days = list(dict.fromkeys(days))"),
        Rule("sort", "Sort the dates, the latest first.", "days = sorted(days, reverse=True)"),
        Rule("every", f"Keep only every {m}{'nd' if m == 2 else 'rd'} date, beginning with the first.",
             f"days = days[::{m}]"),
        Rule("next-year", "Move each date to the same day and month of the next year; February 29 becomes February 28.",
             "days = [day.replace(year=day.year + 1, day=28 if (day.month, day.day) == (2, 29) else day.day)\n"
             "        for day in days]"),
        Rule("ordinal-even", "Remove the dates whose number in their year, counted from 1 for January 1, is divisible "
             f"by {m + 1}.",
             f"days = [day for day in days if day.timetuple().tm_yday % {m + 1} != 0]"),
    ]  # fmt: skip


def finishes(rng: random.Random) -> list[Rule]:
    """Return the forms of the result."""
    return [
        Rule("list[str]:iso", "Return the list of the dates, each in the form 2024-03-05.",
             "return [day.isoformat() for day in days]"),
        Rule("list[str]:points", "Return the list of the dates, each in the form 5.3.2024, without leading zeros.",
             'return [f"{day.day}.{day.month}.{day.year}" for day in days]'),
        Rule("list[str]:weekdays", "Return the list of the names of the weekdays of the dates, such as Monday.",
             f"names = {WEEKDAYS!r}\nreturn [names[day.weekday()] for day in days]"),
        Rule("list[int]:gaps", "Sort the dates, and return the numbers of days from each date to the next one.",
             "days = sorted(days)\nreturn [(after - before).days for before, after in zip(days, days[1:])]"),
        Rule("dict[str, int]:months", "Return a dictionary from each month that occurs, in the form 2024-03, to the "
             "number of dates in it.",
             'counts = {}\nfor day in days:\n    key = day.isoformat()[:7]\n'
             "    counts[key] = counts.get(key, 0) + 1\nreturn counts"),
        Rule("list[int]:ordinals", "Return the list of the numbers of the dates in their years, counted from 1 for "
             "January 1.", "return [day.timetuple().tm_yday for day in days]"),
        Rule("dict[int, list[str]]:quarters", "Return a dictionary from each quarter that occurs (1 for January to "
             "March, and so on to 4) to the list of its dates in the form 03-05 (month-day), in order.",
             "groups = {}\nfor day in days:\n"
             "    groups.setdefault((day.month - 1) // 3 + 1, []).append(day.isoformat()[5:])\nreturn groups"),
        Rule("list[list[str]]:streaks", "Sort the dates, ignore repeated ones, and return the first and the last date, "
             "in the form 2024-03-05, of each longest possible run of dates of which each is at most 7 days after the "
             "one before it.",
             "runs = []\nfor day in sorted(set(days)):\n"
             "    if runs and (day - runs[-1][1]).days <= 7:\n        runs[-1][1] = day\n"
             "    else:\n        runs.append([day, day])\n"
             "return [[first.isoformat(), last.isoformat()] for first, last in runs]"),
        Rule("list[str]:weeks", "Return the list of the dates, each as its ISO week in the form 2024-W09.",
             'return [f"{day.isocalendar()[0]}-W{day.isocalendar()[1]:02}" for day in days]'),
    ]  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    counts = {"easy": (1, 2), "medium": (2, 3), "hard": (4, 5)}[difficulty]
    chosen = pick_distinct(rng, rules(rng), *counts)
    if {"next-weekday", "week-start"} & {rule.name for rule in chosen}:  # then most dates have the same weekday
        chosen = [rule for rule in chosen if rule.name != "drop-weekdays"]
        finish = rng.choice([one for one in finishes(rng) if "weekdays" not in one.name and "gaps" not in one.name])
    else:
        finish = rng.choice(finishes(rng)[: 4 if difficulty == "easy" else 9])
    name = rng.choice(NAMES)
    signature = f"def {name}(dates: list[str]) -> {finish.name.partition(':')[0]}:"

    def sample(rng: random.Random, size: int) -> tuple[list[str]]:
        day = date(rng.randint(2019, 2025), rng.randint(1, 12), rng.randint(1, 28))
        found = []
        for _ in range(rng.randint(*((3, 4), (5, 10), (30, 40))[size])):
            found.append(day.isoformat())
            day += timedelta(rng.choice((0, 1, 3, 6, 9, 30, 61, 250)) * rng.choice((1, 1, 1, -1)))
        return (found,)

    code = "\n".join((*(rule.code for rule in chosen), finish.code))
    imports = "from datetime import date, timedelta" if "timedelta(" in code else "from datetime import date"
    return Problem(
        key=key_of("dates", *chosen, finish),
        entry=name,
        signature=signature,
        intro="The list has dates in the form 2024-03-05 (year-month-day). Follow these rules in order:",
        rules=tuple(rule.text for rule in (*chosen, finish)),
        reference=function_source(signature, "days = [date.fromisoformat(text) for text in dates]", code,
                                  imports=imports),
        edges=(([],), (["2024-02-29"],), (["2023-12-31", "2024-01-01"],), (["2022-10-30", "2022-10-30"],)),
        sample=sample,
    )  # fmt: skip
