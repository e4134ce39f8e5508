"""Errands on two sites."""

from __future__ import annotations

from ludus.environments.browser.goals import ISSUES, Goal, click, fill, go, pick, see, template
from ludus.environments.browser.sites import actions, words
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.tables import Pages, Revisions
from ludus.environments.browser.sites.world import World, day, money
from ludus.environments.browser.templates.common import (
    buyable,
    edit_section,
    facts_text,
    find_issue,
    find_page,
    find_product,
    name_in,
    number_of,
    open_issue,
    open_order,
    put_into_cart,
    show_facts,
)
from ludus.environments.browser.templates.issues import opened, save_fields, told
from ludus.environments.browser.templates.shop import checkout
from ludus.environments.browser.templates.wiki import new_value, of_kind


@template("across-price-issue", "shop, issues", ("medium", "hard"))
def price_issue(world: World) -> Goal:
    """Report the price of a product in an issue."""
    products = world.rng.sample(world.products, 1 if world.level == "medium" else 2)
    names = " and the ".join(product.name for product in products)
    body = "\n".join(f"{product.name}: {money(product.price)}" for product in products)
    title = f"Check prices ({world.rng.randrange(100, 999)})"
    steps = [step for product in products for step in [*find_product(product.name), see(money(product.price))]]
    steps += [go(f"{ISSUES}/issues/new"), fill('textbox "Title"', title), fill('textbox "Description"', body),
              pick('combobox "Component"', "catalog"), click('button "Open issue"')]  # fmt: skip
    return Goal(
        f'Open an issue in the issue tracker with the title "{title}" and the component catalog. Its description has a line '
        f'"NAME: PRICE" for the {names}, with the price in the shop, such as "Blue Mug: $12.30", in this order. Leave the other '
        "fields as they are.",
        steps, act=lambda desk: _open(desk, title, body, "catalog"),
    )  # fmt: skip


def _open(desk: Desk, title: str, body: str, component: str) -> None:
    actions.create_issue(desk, title, body, component)


@template("across-lead", "wiki, issues", ("medium", "hard"))
def lead(world: World) -> Goal:
    """Assign issues to the lead of the team that keeps their component."""
    issues = world.rng.sample(opened(world), 1 if world.level == "medium" else 3)
    teams = {one.lower(): name_in(world.facts[f"Team {one}"]["Lead"]) for one in words.TEAMS}
    chosen = []
    for issue in issues:
        person = next(one for one in world.people if one.name == teams[issue.component])
        if issue.assignee == person.id:
            issue = world.replace("issues", issue, assignee="")
        chosen.append((issue, person))
    steps = []
    for issue, person in chosen:
        team = f"Team {issue.component.capitalize()}"
        steps += [*open_issue(issue), see(issue.component), *show_facts(team, f'link "{person.name}"')]
        steps += save_fields(issue, "Assignee", person.name)

    def act(desk: Desk) -> None:
        for issue, person in chosen:
            actions.change_issue(desk, issue.id, person.id, issue.milestone, issue.component)

    said = ", ".join(f"#{number_of(issue)}" for issue, _ in chosen)
    return Goal(
        f"Assign each of these issues in the issue tracker to the lead of the team that keeps its component, as the wiki says: {said}.",
        steps, act=act,
    )  # fmt: skip


@template("across-gift", "wiki, shop", ("medium", "hard"), split="test")
def gift(world: World) -> Goal:
    """Order what the handbook recommends."""
    products = buyable(world, 3)
    occasions = ("Birthday", "Anniversary", "Farewell")
    facts = {occasion: product.name for occasion, product in zip(occasions, products, strict=True)}
    body = f"What {world.name} gives to its people.\n\n== Facts ==\n{facts_text(facts)}\n\n== Notes ==\nOne gift for each occasion."
    page = Pages(f"W-{len(world.pages) + 1}", "Gift guide", "Teams", body)
    world.add("pages", page)
    world.add(
        "revisions", Revisions(f"V-{len(world.revisions) + 1}", page.id, 1, "U-2", day(world, 40), "Created", body)
    )
    which = world.rng.randrange(3)
    product, count = products[which], world.rng.randrange(1, 4)
    place, shipping = world.rng.choice(world.addresses[:3]), world.rng.choice(tuple(words.SHIPPING))
    steps = [*find_page("Gift guide"), see(product.name), *put_into_cart(product, count)]
    where = "" if world.level == "medium" else f", to my address {place.label}, with the shipping {shipping}"

    def act(desk: Desk) -> None:
        actions.add_to_cart(desk, product.id, count)
        if where:
            actions.place_order(desk, place.id, shipping)

    what = f'the gift that the wiki page "Gift guide" names for "{occasions[which]}"'
    if where:
        return Goal(f"Order {count} of {what} in the shop{where}.", [*steps, *checkout(place, shipping)], act=act)
    return Goal(f"Put {count} of {what} into the cart of the shop. Do not order.", steps, act=act)


@template("across-told-fact", "issues, wiki", ("medium", "hard"), split="validation")
def told_fact(world: World) -> Goal:
    """Bring a fact from a comment into the handbook."""
    page, issue = world.rng.choice(of_kind(world, "Suppliers")), world.rng.choice(world.issues)
    name = world.rng.choice(("Lead time", "Contract"))
    value = new_value(world, name, world.facts[page.title][name])
    told(world, issue, f"{page.title} says: {name} is now {value}.")
    text = facts_text({**world.facts[page.title], name: value})
    find = open_issue(issue) if world.level == "medium" else find_issue(issue)
    which = f"#{number_of(issue)}" if world.level == "medium" else f'"{issue.title}"'
    return Goal(
        f'A comment on issue {which} in the issue tracker says what has changed at "{page.title}". Change the value of "{name}" on the '
        "wiki page of that supplier accordingly, and leave everything else on the page as it is.",
        [*find, see(value), *edit_section(page.title, "Facts", text)],
        act=lambda desk: actions.edit_section(desk, page.id, 1, text),
    )  # fmt: skip


@template("across-tracking", "shop, issues", ("medium", "hard"))
def tracking(world: World) -> Goal:
    """Write the tracking code of an order on an issue."""
    order = world.rng.choice(world.my_orders())
    code = order.tracking or f"TR{world.rng.randrange(10**6, 10**7)}"
    order = world.replace("orders", order, status="shipped", tracking=code)
    issue = world.rng.choice(opened(world))
    text = f"The tracking code is {code}."
    find = open_issue(issue) if world.level == "medium" else find_issue(issue)
    which = f"#{number_of(issue)}" if world.level == "medium" else f'"{issue.title}"'
    when = order.id if world.level == "medium" else f"of {order.day}"
    steps = [
        *open_order(world, order),
        see(code),
        *find,
        fill('textbox "New comment"', text),
        click('button "Send comment"'),
    ]
    return Goal(
        f'Write the comment "The tracking code is CODE." on issue {which} in the issue tracker, with the tracking code of my order '
        f"{when} in the shop in the place of CODE.",
        steps, act=lambda desk: actions.comment(desk, issue.id, text),
    )  # fmt: skip


@template("across-budget", "issues, wiki", ("medium", "hard"), split="test")
def budget(world: World) -> Goal:
    """The budget of the team that keeps the component of an issue."""
    issue = world.rng.choice(world.issues)
    team = f"Team {issue.component.capitalize()}"
    value = world.facts[team]["Budget"]
    find = open_issue(issue) if world.level == "medium" else find_issue(issue)
    which = f"#{number_of(issue)}" if world.level == "medium" else f'"{issue.title}"'
    return Goal(
        f'What is the "Budget" of the team that keeps the component of issue {which}? The issue is in the issue tracker, the team in '
        "the wiki. Answer with exactly what the page of the team says after the colon.",
        [*find, see(issue.component), *show_facts(team, value)], value,
    )  # fmt: skip
