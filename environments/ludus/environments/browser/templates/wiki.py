"""Errands in the wiki."""

from __future__ import annotations

from ludus.environments.browser.goals import WIKI, Goal, Step, click, fill, go, pick, see, template
from ludus.environments.browser.sites import actions, words
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.tables import Pages, Revisions
from ludus.environments.browser.sites.wiki import path_of
from ludus.environments.browser.sites.world import World, body_of, day
from ludus.environments.browser.templates.common import edit_section, facts_text, find_page, name_in, show_facts, unique

_VALUES = {"Capacity": "3470 pallets", "Lead time": "21 days", "Channel": "#team-42", "Budget": "310 thousand dollars",
           "Extension": "4711", "Room": "B207", "Gates": "17", "Opened": "1984", "Contract": "CT-9051"}  # fmt: skip


def of_kind(world: World, category: str) -> list[Pages]:
    """Return the pages of a category."""
    return [page for page in world.pages if page.category == category]


def new_value(world: World, name: str, old: str) -> str:
    """Return another value of a fact."""
    pattern = _VALUES[name]
    while True:
        value = "".join(str(world.rng.randrange(1, 10)) if one.isdigit() else one for one in pattern)
        value = str(world.rng.randrange(1970, 2022)) if name == "Opened" else value
        if value != old:
            return value


def _number_fact(world: World, page: Pages) -> str:
    return world.rng.choice([name for name in world.facts[page.title] if name in _VALUES])


@template("wiki-fact", "wiki", ("easy",))
def fact(world: World) -> Goal:
    """A fact of a page."""
    page = world.rng.choice(world.pages)
    name = _number_fact(world, page)
    value = world.facts[page.title][name]
    return Goal(f'What does the wiki page "{page.title}" give as "{name}"? Answer with exactly what the page says after the colon.',
                [*find_page(page.title), see(f"{name}: {value}")], value)  # fmt: skip


@template("wiki-hop", "wiki", ("medium", "hard"), split="validation")
def hop(world: World) -> Goal:
    """A fact that is several pages away."""
    start = world.rng.choice(of_kind(world, "Warehouses") + of_kind(world, "Suppliers"))
    role = "Manager" if start.category == "Warehouses" else "Buyer"
    person = name_in(world.facts[start.title][role])
    steps = show_facts(start.title, f'link "{person}"')
    said = f'the {role.lower()} of "{start.title}"'
    if world.level == "medium":
        name = world.rng.choice(("Extension", "Room"))
        value = world.facts[person][name]
        steps += [click(f'link "{person}"'), see(f"{name}: {value}")]
        return Goal(f'According to the wiki, what is the "{name}" of {said}? Answer with exactly what the page says after the colon.',
                    steps, value)  # fmt: skip
    team = name_in(world.facts[person]["Team"])
    lead = name_in(world.facts[team]["Deputy"])
    name = world.rng.choice(("Extension", "Room"))
    value = world.facts[lead][name]
    steps += [click(f'link "{person}"'), *show_facts(team, f'link "{lead}"'), *show_facts(lead, f"{name}: {value}")]
    return Goal(
        f'According to the wiki, what is the "{name}" of the deputy of the team to which {said} belongs? Answer with exactly '
        "what the page says after the colon.",
        steps, value,
    )  # fmt: skip


@template("wiki-largest", "wiki")
def largest(world: World) -> Goal:
    """The warehouse with the most of something."""
    pages = of_kind(world, "Warehouses")
    name = "Capacity" if world.level != "medium" else "Gates"
    facts = world.facts
    shown = sorted(pages, key=lambda one: int(facts[one.title]["Opened"]))
    if world.level == "hard":
        years = sorted(int(facts[page.title]["Opened"]) for page in pages)
        year = years[len(years) // 2] + 1
        pages = [page for page in pages if int(facts[page.title]["Opened"]) < year]
        more = f" of those opened before {year}"
    else:
        more = ""
    ranked = sorted(pages, key=lambda one: int(facts[one.title][name].split()[0]))
    if len(ranked) > 1 and facts[ranked[-1].title][name] == facts[ranked[-2].title][name]:
        return _raise_gates(world, ranked[-1], shown)
    what = {"Capacity": "the largest capacity", "Gates": "the most gates"}[name]
    steps = [step for one in shown for step in show_facts(one.title, f"{name}: {facts[one.title][name]}")]
    return Goal(
        f"Which warehouse{more} has {what} according to the wiki? {_CITY}", steps, _city(world, ranked[-1], name)
    )


_CITY = 'Answer with the name of its city and this number, such as "Newtown, 123".'


def _city(world: World, page: Pages, name: str) -> str:
    return f"{page.title.removeprefix('Warehouse ')}, {world.facts[page.title][name].split()[0]}"


def _raise_gates(world: World, page: Pages, shown: list[Pages]) -> Goal:
    """Break a tie, which only numbers of gates have."""
    facts = world.facts[page.title]
    facts["Gates"] = "44"
    _rewrite(world, page, facts)
    steps = [step for one in shown for step in show_facts(one.title, f"Gates: {world.facts[one.title]['Gates']}")]
    return Goal(
        f"Which warehouse has the most gates according to the wiki? {_CITY}", steps, _city(world, page, "Gates")
    )


def _rewrite(world: World, page: Pages, facts: dict[str, str]) -> None:
    """Change what a page says, together with its last revision."""
    parts = actions.sections(page.body)
    body = body_of(parts[0][1], facts, parts[2][1])
    last = max((revision for revision in world.revisions if revision.page == page.id), key=lambda one: one.number)
    world.replace("revisions", last, body=body)
    world.replace("pages", page, body=body)


@template("wiki-editor", "wiki", ("easy", "medium"), split="test")
def editor(world: World) -> Goal:
    """Who changed a page."""
    pages = [one for one in world.pages if sum(row.page == one.id for row in world.revisions) > 1]
    page = world.rng.choice(pages)
    rows = sorted((revision for revision in world.revisions if revision.page == page.id), key=lambda one: one.number)
    row = rows[-1] if world.level == "easy" else world.rng.choice(rows[:-1])
    what = "the newest revision" if world.level == "easy" else f"revision {row.number}"
    author = world.person(row.author).name
    if author == page.title:  # the task would name the answer
        other = next(person for person in world.people[1:] if person.name != page.title)
        world.replace("revisions", row, author=other.id)
        author = other.name
    steps = [*find_page(page.title), click('link "History"'), see(f'link "Revision {row.number}"'), see(author)]
    return Goal(f'Who wrote {what} of the wiki page "{page.title}"? Answer with the full name.', steps, author)


@template("wiki-old-fact", "wiki", ("medium", "hard"))
def old_fact(world: World) -> Goal:
    """What a page said before."""
    pages = [one for one in world.pages if sum(row.page == one.id for row in world.revisions) > 1]
    page = world.rng.choice(pages)
    rows = [revision for revision in world.revisions if revision.page == page.id]
    row = world.rng.choice([one for one in rows if one.body != page.body])
    old, new = (
        dict(line.split(": ", 1) for line in actions.sections(body)[1][1].split("\n")) for body in (row.body, page.body)
    )
    name = next(one for one in old if old[one] != new[one])
    value = old[name]
    if world.level == "medium":
        what = f"in revision {row.number}"
    else:
        what = f"on {row.day}, the day of one of its revisions"
    steps = [
        *find_page(page.title),
        click('link "History"'),
        click(f'link "Revision {row.number}"'),
        see(name_in(value.split(" (")[0])),
    ]
    return Goal(f'What did the wiki page "{page.title}" give as "{name}" {what}? Answer with exactly what it said after the colon.',
                steps, value.replace("[[", "").replace("]]", ""))  # fmt: skip


@template("wiki-fix", "wiki")
def fix(world: World) -> Goal:
    """Correct facts."""
    pages = world.rng.sample(
        of_kind(world, "Warehouses") + of_kind(world, "Suppliers"), 2 if world.level == "hard" else 1
    )
    changes: list[tuple[Pages, str, str]] = []
    for page in pages:
        name = _number_fact(world, page)
        changes.append((page, name, new_value(world, name, world.facts[page.title][name])))
    steps: list[Step] = []
    texts = []
    for page, name, value in changes:
        text = facts_text({**world.facts[page.title], name: value})
        texts.append((page.id, text))
        steps += edit_section(page.title, "Facts", text)
    said = "; ".join(f'on the page "{page.title}" the value of "{name}" to "{value}"' for page, name, value in changes)
    if world.level == "medium":
        page, name, value = changes[0]
        role = "Manager" if page.category == "Warehouses" else "Buyer"
        person = name_in(world.facts[page.title][role])
        same = [one for one in of_kind(world, page.category) if world.facts[one.title][role] == f"[[{person}]]"]
        if len(same) == 1:
            kind = page.category[:-1].lower()
            said = f'on the page of the {kind} whose {role.lower()} is {person} the value of "{name}" to "{value}"'

    def act(desk: Desk) -> None:
        for id, text in texts:
            actions.edit_section(desk, id, 1, text)

    return Goal(f"Change in the wiki {said}. Leave everything else on the page as it is.", steps, act=act)


@template("wiki-create", "wiki", ("easy", "medium"), split="validation")
def create(world: World) -> Goal:
    """Create a page."""
    city = world.rng.choice([one for one in words.CITIES if f"Warehouse {one}" not in world.facts])
    title, year = f"Warehouse {city}", world.rng.randrange(1960, 2026)
    text = f"The warehouse in {city} opens in {year}."
    steps: list[Step] = []
    if world.level == "medium":
        start = world.rng.choice(of_kind(world, "Warehouses"))
        person = name_in(world.facts[start.title]["Manager"])
        text = f"The warehouse in {city} is planned by [[{person}]]."
        said = f'the text "The warehouse in {city} is planned by [[NAME]]." with the name of the manager of "{start.title}" in the place of NAME'
        steps += show_facts(start.title, f'link "{person}"')
    else:
        said = f'the text "{text}"'
    steps += [go(f"{WIKI}/"), click('link "New page"'), fill('textbox "Title"', title), pick('combobox "Category"', "Warehouses"),
              fill('textbox "Text"', text), click('button "Create page"')]  # fmt: skip
    return Goal(f'Create the page "{title}" in the wiki, in the category Warehouses, with {said}.', steps,
                act=lambda desk: actions.create_page(desk, title, "Warehouses", text))  # fmt: skip


@template("wiki-revert", "wiki", ("medium", "hard"), split="test")
def revert(world: World) -> Goal:
    """Undo the edits of a vandal."""
    page, vandal = world.rng.choice(world.pages), world.rng.choice(world.people[1:])
    last = max(revision.number for revision in world.revisions if revision.page == page.id)
    body = page.body
    count = 1 if world.level == "medium" else 2
    ago = world.rng.randrange(1, 4)
    for turn in range(1, count + 1):
        body = f"{page.body}\n{vandal.name.upper()} WAS HERE {'!' * turn}"
        world.revisions.append(
            Revisions(f"V-{len(world.revisions) + 1}", page.id, last + turn, vandal.id, day(world, ago), "Fun", body)
        )
    world.replace("pages", page, body=body)
    steps = [go(f"{WIKI}/recent"), see(page.title)] if count > 1 else []
    steps += [*find_page(page.title), click('link "History"'), click(f'link "Revision {last}"'),
              click('button "Revert to this revision"'), click('button "Yes, revert"')]  # fmt: skip
    where = (
        f'the wiki page "{page.title}"'
        if count == 1
        else f"a wiki page on {day(world, ago)}, which the recent changes show"
    )
    again = "" if count == 1 else ", more than once"
    return Goal(f"{vandal.name} has spoiled {where}{again}. Revert the page to its last revision before that.", steps,
                act=lambda desk: actions.revert_page(desk, page.id, last))  # fmt: skip


@template("wiki-watch", "wiki", split="test")
def watch(world: World) -> Goal:
    """Watch pages."""
    pages = [world.rng.choice(world.pages)]
    said = f'the wiki page "{pages[0].title}"'
    if world.level != "easy":
        teams = [one.title for one in of_kind(world, "Teams")]
        staff = of_kind(world, "People")
        sizes = {team: [one for one in staff if world.facts[one.title]["Team"] == f"[[{team}]]"] for team in teams}
        most = 2 if world.level == "medium" else 4
        team = world.rng.choice(
            [one for one in teams if 1 <= len(sizes[one]) <= most]
            or [min(teams, key=lambda one: len(sizes[one]) or 99)]
        )
        pages = sizes[team]
        said = f'the wiki pages of all people whose team is "{team}"'

    def act(desk: Desk) -> None:
        for page in pages:
            actions.watch(desk, page.id, True)

    steps = [step for page in pages for step in [go(WIKI + path_of(page.title)), click('button "Watch this page"')]]
    return Goal(f"Watch {said}.", steps, act=act)


@template("wiki-rename", "wiki", ("easy", "medium"))
def rename(world: World) -> Goal:
    """Give a page another title."""
    pages = of_kind(world, "Warehouses")
    page = world.rng.choice(pages)
    said = f'the wiki page "{page.title}"'
    if world.level == "medium":
        single = unique(pages, lambda one: world.facts[one.title]["Manager"])
        if single:
            page = world.rng.choice(single)
            said = f"the wiki page of the warehouse whose manager is {name_in(world.facts[page.title]['Manager'])}"
    title = f"{page.title} {world.rng.choice(('North', 'South', 'East', 'West'))}"
    steps = [
        *find_page(page.title),
        click('link "Rename"'),
        fill('textbox "New title"', title),
        click('button "Rename page"'),
    ]
    return Goal(f'Rename {said} to "{title}".', steps, act=lambda desk: actions.rename_page(desk, page.id, title))
