"""Errands in the issue tracker."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.environments.browser.goals import ISSUES, Goal, Step, click, fill, go, pick, see, template
from ludus.environments.browser.sites import actions, words
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.tables import Comments, IssueLabels, Issues
from ludus.environments.browser.sites.web import address
from ludus.environments.browser.sites.world import World, day
from ludus.environments.browser.templates.common import find_issue, number_of, open_issue


def opened(world: World) -> list[Issues]:
    """Return the open issues."""
    return [issue for issue in world.issues if issue.state == "open"]


def close(issue: Issues, reason: str) -> list[Step]:
    """Close an issue."""
    return [*open_issue(issue), pick('combobox "Reason"', reason), click('button "Close issue"')]


def edit(issue: Issues) -> list[Step]:
    """Open the forms that change an issue."""
    return [*open_issue(issue), click('button "Edit issue"')]


def said_of(issue: Issues, world: World) -> str:
    """Return an issue in words: by number at the easy level, by title at others."""
    return f"issue #{number_of(issue)}" if world.level == "easy" else f'the issue "{issue.title}"'


@template("issue-author", "issues", ("easy", "medium"))
def author(world: World) -> Goal:
    """Who opened an issue."""
    issue = world.rng.choice(
        opened(world)
        if world.level == "easy"
        else [one for one in world.issues if one.state == "closed"] or world.issues
    )
    name = world.person(issue.author).name
    return Goal(f'Who is the author of the issue "{issue.title}" in the issue tracker? Answer with the full name.',
                [*find_issue(issue), see(f"row: Author | {name}")], name)  # fmt: skip


@template("issue-oldest", "issues", split="test")
def oldest(world: World) -> Goal:
    """The oldest open issue of a kind."""
    kinds = [
        (label, component)
        for label in words.LABELS for component in (("",) if world.level == "easy" else [one.lower() for one in words.TEAMS])
        if len(_with(world, label, component)) > (0 if world.level == "medium" else 1)
    ]  # fmt: skip
    label, component = world.rng.choice(kinds or [(issue_label.label, "") for issue_label in world.issue_labels])
    found = _with(world, label, component)
    if not found:
        first = opened(world)[0]
        world.add("issue_labels", IssueLabels(f"G-{len(world.issue_labels) + 1}", first.id, label))
        found = _with(world, label, component)
    issue = min(found, key=lambda one: int(number_of(one)))
    more = f" and the component {component}" if component else ""
    query = {"state": "open", "label": label, "component": component, "sort": "oldest"}
    steps = [
        go(f"{ISSUES}/"),
        pick('combobox "Label"', label),
        pick('combobox "Sort by"', "Oldest first"),
        click('button "Search"'),
    ]
    steps += [go(address(f"{ISSUES}/issues", **query)), see(f'link "{issue.title}"')]
    return Goal(f"What is the title of the oldest open issue with the label {label}{more} in the issue tracker? Answer with the title.",
                steps, issue.title)  # fmt: skip


def _with(world: World, label: str, component: str) -> list[Issues]:
    return [one for one in opened(world) if label in world.labels_of(one) and component in ("", one.component)]


@template("issue-busiest", "issues", ("medium", "hard"), split="validation")
def busiest(world: World) -> Goal:
    """Who has the most open issues."""
    counts = {person.id: sum(issue.assignee == person.id for issue in opened(world)) for person in world.people}
    best = max(counts, key=lambda one: counts[one])
    while list(counts.values()).count(counts[best]) > 1:
        free = next(one for one in opened(world) if one.assignee != best)
        world.replace("issues", free, assignee=best)
        counts = {person.id: sum(issue.assignee == person.id for issue in opened(world)) for person in world.people}
        best = max(counts, key=lambda one: counts[one])
    name, pages = world.person(best).name, -(-len(opened(world)) // 10)
    steps = [go(address(f"{ISSUES}/issues", page=page)) for page in range(1, pages + 1)]
    steps += [go(address(f"{ISSUES}/issues", assignee=best)), see(f"of {counts[best]}, page 1")]
    return Goal('To whom are the most open issues assigned in the issue tracker? Answer with the full name and the number of these issues, '
                'such as "Ada Miller, 12".', steps, f"{name}, {counts[best]}")  # fmt: skip


@template("issue-create", "issues")
def create(world: World) -> Goal:
    """Open an issue."""
    rng = world.rng
    title = (
        f"{rng.choice(words.ISSUE_SUBJECTS).format(thing=rng.choice(words.ISSUE_THINGS))} ({rng.randrange(100, 999)})"
    )
    body = f"Reported by {rng.randrange(2, 60)} customers."
    component = rng.choice(words.TEAMS).lower()
    labels = rng.sample(words.LABELS, {"easy": 0, "medium": 1, "hard": 2}[world.level])
    person = rng.choice(world.people) if world.level != "easy" else None
    milestone = rng.choice(world.milestones) if world.level == "hard" else None
    steps = [go(f"{ISSUES}/"), click('link "New issue"'), fill('textbox "Title"', title), fill('textbox "Description"', body),
             pick('combobox "Component"', component)]  # fmt: skip
    said = f'the title "{title}", the description "{body}", the component {component}'
    if person:
        steps.append(pick('combobox "Assignee"', person.name))
        said += f", assigned to {person.name}"
    if milestone:
        steps.append(pick('combobox "Milestone"', milestone.title))
        said += f", for the milestone {milestone.title}"
    if labels:
        steps += [click(f'checkbox "{one}"') for one in labels]
        said += f", with the label{'s' if len(labels) > 1 else ''} {' and '.join(labels)}"
    return Goal(
        f"Open an issue in the issue tracker: {said}. Leave the other fields as they are.", [*steps, click('button "Open issue"')],
        act=lambda desk: _create(desk, title, body, component, milestone.id if milestone else "", person.id if person else "", labels),
    )  # fmt: skip


def _create(
    desk: Desk, title: str, body: str, component: str, milestone: str, person: str, labels: Sequence[str]
) -> None:
    actions.create_issue(desk, title, body, component, milestone, person, labels)


@template("issue-close", "issues")
def close_issues(world: World) -> Goal:
    """Close issues."""
    reason = world.rng.choice(words.REASONS[:2])
    issues = [world.rng.choice(opened(world))]
    said = said_of(issues[0], world)
    if world.level == "hard":
        kinds = [(label, team.lower()) for label in words.LABELS for team in words.TEAMS]
        sizes = {kind: _with(world, *kind) for kind in kinds}
        kind = world.rng.choice(
            [one for one in kinds if 2 <= len(sizes[one]) <= 4] or [max(kinds, key=lambda one: len(sizes[one]))]
        )
        issues, said = sizes[kind], f"all open issues with the label {kind[0]} and the component {kind[1]}"

    def act(desk: Desk) -> None:
        for issue in issues:
            actions.set_state(desk, issue.id, "closed", reason)

    return Goal(f'Close {said} in the issue tracker, with the reason "{reason}".',
                [step for issue in issues for step in close(issue, reason)], act=act)  # fmt: skip


def save_fields(issue: Issues, name: str, value: str) -> list[Step]:
    """Change a field of an issue."""
    return [*edit(issue), pick(f'combobox "{name}"', value), click('button "Save fields"')]


@template("issue-assign", "issues", ("easy", "medium"))
def assign(world: World) -> Goal:
    """Assign an issue."""
    issue = world.rng.choice(opened(world))
    person = world.rng.choice([one for one in world.people if one.id != issue.assignee])
    return Goal(f"Assign {said_of(issue, world)} in the issue tracker to {person.name}.", save_fields(issue, "Assignee", person.name),
                act=lambda desk: actions.change_issue(desk, issue.id, person.id, issue.milestone, issue.component))  # fmt: skip


@template("issue-label", "issues", ("easy", "medium"), split="test")
def label(world: World) -> Goal:
    """Change the labels of an issue."""
    issue = world.rng.choice([one for one in world.issues if len(world.labels_of(one)) == 1] or opened(world))
    had = sorted(world.labels_of(issue))
    new = world.rng.choice([one for one in words.LABELS if one not in had])
    steps = [*edit(issue), pick('combobox "Add label"', new), click('button "Add"')]
    text = f"Add the label {new} to {said_of(issue, world)} in the issue tracker"
    swap = world.level == "medium" and bool(had)
    if swap:
        steps += [*edit(issue), click(f'button "Remove label {had[0]}"')]
        text += f", and remove its label {had[0]}"

    def act(desk: Desk) -> None:
        actions.add_label(desk, issue.id, new)
        if swap:
            actions.remove_label(desk, issue.id, had[0])

    return Goal(f"{text}.", steps, act=act)


@template("issue-comment", "issues", ("easy", "medium"))
def comment(world: World) -> Goal:
    """Comment on an issue."""
    issue = world.rng.choice(world.issues)
    text = f"Please try again with version {world.rng.randrange(2, 20)}.{world.rng.randrange(10)}."
    find = open_issue(issue) if world.level == "easy" else find_issue(issue)
    return Goal(f'Write the comment "{text}" on {said_of(issue, world)} in the issue tracker.',
                [*find, fill('textbox "New comment"', text), click('button "Send comment"')],
                act=lambda desk: actions.comment(desk, issue.id, text))  # fmt: skip


@template("issue-move", "issues", ("medium", "hard"))
def move(world: World) -> Goal:
    """Move issues to another milestone."""
    most = 2 if world.level == "medium" else 5
    kinds = [(milestone.id, team.lower()) for milestone in world.milestones for team in words.TEAMS]
    sizes = {kind: [one for one in opened(world) if (one.milestone, one.component) == kind] for kind in kinds}
    kind = world.rng.choice([one for one in kinds if 1 <= len(sizes[one]) <= most])
    old = next(milestone for milestone in world.milestones if milestone.id == kind[0])
    new = world.rng.choice([milestone for milestone in world.milestones if milestone is not old])

    def act(desk: Desk) -> None:
        for one in sizes[kind]:
            actions.change_issue(desk, one.id, one.assignee, new.id, one.component)

    steps = [step for one in sizes[kind] for step in save_fields(one, "Milestone", new.title)]
    return Goal(f"Move all open issues with the component {kind[1]} from the milestone {old.title} to the milestone {new.title} in the "
                "issue tracker.", steps, act=act)  # fmt: skip


@template("issue-reopen", "issues", ("easy", "medium"), split="test")
def reopen(world: World) -> Goal:
    """Open a closed issue again."""
    issue = world.replace("issues", world.rng.choice(world.issues), state="closed", reason="completed")
    find = open_issue(issue) if world.level == "easy" else find_issue(issue)
    return Goal(f"Reopen {said_of(issue, world)} in the issue tracker.", [*find, click('button "Reopen issue"')],
                act=lambda desk: actions.set_state(desk, issue.id, "open"))  # fmt: skip


@template("issue-duplicate", "issues", ("medium", "hard"))
def duplicate(world: World) -> Goal:
    """Close a duplicate, with a comment that names the other issue."""
    first = world.rng.choice(opened(world))
    new = first._replace(id=f"I-{len(world.issues) + 1}", author=world.rng.choice(world.people[1:]).id, opened=day(world, 1),
                         body="The same happened to me.", assignee="", milestone="")  # fmt: skip
    world.add("issues", new)
    text = f"Duplicate of #{number_of(first)}"

    def act(desk: Desk) -> None:
        actions.comment(desk, new.id, text)
        actions.set_state(desk, new.id, "closed", "duplicate")

    steps = [
        *open_issue(new),
        fill('textbox "New comment"', text),
        click('button "Send comment"'),
        *close(new, "duplicate"),
    ]
    which = (
        f'the title "{first.title}"'
        if world.level == "medium"
        else "the same title; the newer one was opened yesterday"
    )
    return Goal(
        f'Two open issues in the issue tracker have {which}. Write the comment "Duplicate of #N" on the newer one, with the number of '
        'the older one in the place of N, and close the newer one with the reason "duplicate".',
        steps, act=act,
    )  # fmt: skip


@template("issue-retitle", "issues", ("easy", "medium"), split="validation")
def retitle(world: World) -> Goal:
    """Give an issue another title."""
    issue = world.rng.choice(opened(world))
    title = f"{issue.title} since version {world.rng.randrange(2, 20)}"
    steps = [*edit(issue), fill('textbox "Title"', title), click('button "Save title"')]
    return Goal(f'Change the title of {said_of(issue, world)} in the issue tracker to "{title}".', steps,
                act=lambda desk: actions.retitle_issue(desk, issue.id, title))  # fmt: skip


def told(world: World, issue: Issues, text: str) -> None:
    """Add a comment of a colleague to an issue."""
    who = world.rng.choice(world.people[1:])
    world.add("comments", Comments(f"K-{len(world.comments) + 1}", issue.id, who.id, day(world, 1), text))
