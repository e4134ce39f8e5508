"""Browser: its tasks, sites and driver, how it grades, and what does not fool it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import NEEDS_BUBBLEWRAP
from waiting import wait_until

from ludus.environments.browser import environment as module
from ludus.environments.browser.driver import tab as tab_module
from ludus.environments.browser.driver.chromium import chromium_settings, missing_chromium
from ludus.environments.browser.driver.snapshot import PAGE_CHARS, Snapshot
from ludus.environments.browser.driver.tab import Tab
from ludus.environments.browser.environment import HOSTS, Browser, BrowserTask, by_level, problem_of, wanted_state
from ludus.environments.browser.goals import TEMPLATES, Goal
from ludus.environments.browser.grading import judge, same_answer
from ludus.environments.browser.sites import actions
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.issues import Tracker
from ludus.environments.browser.sites.shop import Shop
from ludus.environments.browser.sites.web import Refusal, Request, Response, Site, render, tag
from ludus.environments.browser.sites.wiki import Wiki
from ludus.environments.browser.sites.world import ME, World
from ludus.protocol import Answer, Call, EndReason, text_of
from ludus.protocol.errors import InfrastructureFailed
from ludus.sandbox import Process, ProcessEnd, SandboxFailed
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.server import DIFFICULTIES, Difficulty, ToolError
from ludus.server.authoring.partition import SPLITS, SplitType, split_of
from ludus.validation import validate

EVERY_KIND = "9bbfd0d4"
"""A hash of one task of each template. A change of it raises the environment's version."""

Test = TypeVar("Test", bound=Callable[..., Any])
NO_CHROMIUM = pytest.mark.skipif(missing_chromium() is not None, reason=str(missing_chromium()))


def needs_chromium(test: Test) -> Test:
    """Mark a test that needs Chromium: the suite has one, and the machine that checks every change has none."""
    marked: Test = pytest.mark.suite("browser")(NO_CHROMIUM(test))
    return marked


ALL: list[tuple[str, Difficulty]] = [(one.name, level) for one in TEMPLATES.values() for level in one.levels]
each_kind = pytest.mark.parametrize(("template", "level"), ALL)
each_level = pytest.mark.parametrize("level", DIFFICULTIES)


def split_and_index(template: str, level: Difficulty, turn: int = 0) -> tuple[SplitType, int]:
    """The split of a template, and the index of a task of it."""
    split = TEMPLATES[template].split
    kinds = by_level(level, split)
    return split, turn * len(kinds) + [kind.name for kind in kinds].index(template)


def task_of(template: str, level: Difficulty, turn: int = 0) -> BrowserTask:
    split, index = split_and_index(template, level, turn)
    return Browser.load_task("train", index, [level]) if split == "train" else Browser.load_tasks(split, [level])[index]


def content(task: BrowserTask) -> str:
    world, goal = problem_of(task)
    store = world.store()
    return f"{goal.text}|{goal.answer}|{store.dump()}"


def short_hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_there_are_enough_templates_on_all_sites_and_levels() -> None:
    assert len(TEMPLATES) >= 45
    assert {one.sites for one in TEMPLATES.values()} >= {"shop", "wiki", "issues", "shop, issues", "wiki, issues"}
    fewest = {"train": 16, "validation": 4, "test": 7}
    assert all(len(by_level(level, split)) >= fewest[split] for level in DIFFICULTIES for split in SPLITS)


def test_the_tasks_of_this_version_are_fixed() -> None:
    assert short_hash(*(content(task_of(one.name, one.levels[0])) for one in TEMPLATES.values())) == EVERY_KIND


@each_level
@given(index=st.integers(0, 2**50))
def test_the_company_names_the_split_of_a_task(level: Difficulty, index: int) -> None:
    task = Browser.load_task("train", index, [level])
    assert split_of(f"browser:{task.world}") == "train"
    assert task.world not in {one.world for split in ("validation", "test") for one in Browser.load_tasks(split)}


@pytest.mark.suite("browser", first=12)
@each_kind
@pytest.mark.parametrize("turn", range(4))
def test_nothing_is_reached_at_the_start_and_everything_by_what_is_wanted(
    template: str, level: Difficulty, turn: int
) -> None:
    world, goal = problem_of(task_of(template, level, turn))
    start = judge(goal, world.store(), wanted_state(world, goal), "")
    assert (start.met, start.unexpected) == (0, [])
    assert start.items > 0
    done = judge(goal, wanted_state(world, goal), wanted_state(world, goal), goal.answer)
    assert (done.met, done.missing, done.unexpected) == (done.items, [], [])
    assert goal.answer or not goal.text.endswith("Answer."), "a task asks for an answer, or for changes"
    assert bool(goal.answer) != (goal.act is not None)


@pytest.mark.parametrize("level", ["easy", "medium"])
def test_the_editor_of_a_page_is_not_the_one_whom_the_page_is_about(level: Difficulty) -> None:
    goals = [problem_of(task_of("wiki-editor", level, turn))[1] for turn in range(24)]
    assert len({goal.answer for goal in goals}) > 10
    assert not [goal.text for goal in goals if goal.answer in goal.text]


def test_the_answers_of_many_tasks_are_rarely_the_same() -> None:
    """So no constant answer earns more than a little."""
    answers = [problem_of(Browser.load_task("validation", index))[1].answer for index in range(0, 300, 4)]
    asked = [one for one in answers if one]
    assert len(asked) > 20
    assert max(asked.count(one) for one in asked) <= 2


# ── the sites ────────────────────────────────────────────────────────────────────────────────────────────────────────


def sites_of(task: BrowserTask) -> tuple[World, Any, dict[str, Site]]:
    world, _ = problem_of(task)
    store = world.store()
    return (
        world,
        store,
        {cls.host: cls(store, ME, world.today.isoformat(), world.name) for cls in (Shop, Wiki, Tracker)},
    )


@pytest.fixture(name="sites")
def three_sites() -> tuple[World, Any, dict[str, Site]]:
    return sites_of(task_of("shop-cart", "medium"))


def get(sites: dict[str, Site], url: str) -> Response:
    request = Request.of("GET", url, "")
    return sites[request.host].answer(request)


def post(sites: dict[str, Site], url: str, body: str) -> Response:
    request = Request.of("POST", url, body)
    return sites[request.host].answer(request)


def test_every_link_of_every_page_leads_to_a_page(sites: tuple[World, Any, dict[str, Site]]) -> None:
    _, store, all_sites = sites
    queue = [f"http://{host}/" for host in HOSTS]
    seen = set(queue)
    while queue and len(seen) < 1500:
        url = queue.pop()
        found = get(all_sites, url)
        assert found.status == 200, url
        for path in re.findall(r'href="([^"]+)"', found.body):
            link = url[: url.index(".test") + 5] + path.replace("&amp;", "&")
            if link not in seen and "/static/" not in link:
                seen.add(link)
                queue.append(link)
    assert len(seen) > 300
    assert store.changes() == [], "looking changes nothing"


WORLD = problem_of(task_of("shop-cart", "easy"))[0]


@given(st.sampled_from(HOSTS), st.text(st.characters(codec="utf-8"), max_size=60), st.text(max_size=40), st.booleans())
def test_whatever_is_asked_for_gets_an_answer_and_nothing_of_it_is_html(
    host: str, path: str, value: str, sends: bool
) -> None:
    store = WORLD.store()
    site = next(cls for cls in (Shop, Wiki, Tracker) if cls.host == host)(store, ME, "2026-03-02", WORLD.name)
    mark = f"<b x={value}>"
    known = [route for route in site.routes if route[0] == ("POST" if sends else "GET")]
    method, pattern, _ = known[len(path) % len(known)]
    real = re.sub(r"\(.*?\)", "W-1" if host == "wiki.test" else "1", pattern)
    values = {name: [mark] for name in ("q", "sort", "text", "title", "page", "label", "state", "name")}
    response = site.answer(Request(method, host, real, values, values))
    assert response.status in (200, 303, 400, 404)
    assert mark not in response.body
    assert site.answer(Request("GET", host, "/" + path, {"page": [value]}, {})).status in (200, 303, 400, 404)
    assert site.answer(Request("DELETE", host, "/", {}, {})).status == 404
    store.close()


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_a_text_in_a_page_is_escaped(text: str) -> None:
    shown = render(tag("p", text, title=text))
    assert shown.count("<") == 2
    assert shown.count('"') == 2


def test_orders_and_addresses_of_others_are_not_shown_nor_changed(sites: tuple[World, Any, dict[str, Site]]) -> None:
    world, store, all_sites = sites
    others = [one for one in world.orders if one.person != ME]
    assert others
    for order in others:
        assert get(all_sites, f"http://shop.test/orders/{order.id}").status == 404
        assert post(all_sites, f"http://shop.test/orders/{order.id}/cancel", "").status == 400
        for line in world.lines(order):
            assert get(all_sites, f"http://shop.test/returns/{line.id}").status == 404
            assert post(all_sites, f"http://shop.test/returns/{line.id}", "reason=damaged&wish=refund").status == 400
    assert get(all_sites, "http://shop.test/addresses/A-4").status == 404
    for path in ("addresses/A-4", "addresses/A-4/delete"):
        assert post(all_sites, f"http://shop.test/{path}", "label=a&street=b&city=c&postcode=d").status == 400
    product = next(one for one in world.products if one.stock)
    post(all_sites, "http://shop.test/cart", f"product={product.id}&quantity=1")
    assert post(all_sites, "http://shop.test/checkout", "address=A-4&shipping=express").status == 400
    assert [one.table for one in store.changes()] == ["cart_lines"]


@pytest.mark.parametrize("quantity", ["-1", "0", "21", "1e3", "٣", "", "1.5", "99999"])
def test_a_cart_takes_only_whole_quantities_in_stock(sites: tuple[World, Any, dict[str, Site]], quantity: str) -> None:
    world, store, all_sites = sites
    product = next(one for one in world.products if one.stock)
    assert post(all_sites, "http://shop.test/cart", f"product={product.id}&quantity={quantity}").status == 400
    assert store.changes() == []


def test_an_order_costs_what_the_pages_say_and_takes_the_stock(sites: tuple[World, Any, dict[str, Site]]) -> None:
    world, store, all_sites = sites
    first, second = [one for one in world.products if one.stock][:2]
    for product, count in ((first, 2), (second, 1)):
        assert post(all_sites, "http://shop.test/cart", f"product={product.id}&quantity={count}").status == 303
    placed = post(all_sites, "http://shop.test/checkout", "address=A-1&shipping=express&coupon=")
    order = store.get("orders", placed.location.rpartition("/")[2])
    assert order["total"] == 2 * first.price + second.price + 1290
    assert store.get("products", first.id)["stock"] == first.stock - 2
    assert post(all_sites, "http://shop.test/checkout", "address=A-1&shipping=express").status == 400, "only once"
    assert sum(one.table == "orders" for one in store.changes()) == 1


def test_an_edit_changes_its_section_only_and_reverting_brings_the_page_back() -> None:
    world, store, _ = sites_of(task_of("wiki-fix", "easy"))
    desk, page = Desk(store, ME, "2026-03-02"), world.pages[0]
    before = actions.sections(page.body)
    last = max(one.number for one in world.revisions if one.page == page.id)
    actions.edit_section(desk, page.id, 2, "New notes.\n\nTwo paragraphs.")
    after = actions.sections(store.get("pages", page.id)["body"])
    assert after == [*before[:2], ("Notes", "New notes.\n\nTwo paragraphs.")]
    actions.revert_page(desk, page.id, last)
    assert store.get("pages", page.id)["body"] == page.body
    assert [one.table for one in store.changes()] == ["revisions", "revisions"], (
        "the page is as it was, its history not"
    )
    with pytest.raises(Refusal, match="headings"):
        actions.edit_section(desk, page.id, 2, "== Facts ==\nmine")


# ── grading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("$12.30", "$12.30"), ("12.3", "$12.30"), ("$1,234.50", "$1234.50"), ("$ 12.30", "$12.30"),
     (" ada  MILLER.", "Ada Miller"), ("TR12", "tr12"), ("7, Ada Miller", "Ada Miller, 7"), ("#12", "12"),
     ('"A 5"', "A 5"), ('"A 5".', "A 5"), ("**$12.30**", "$12.30")],
)  # fmt: skip
def test_an_answer_is_right_however_it_is_written(said: str, wanted: str) -> None:
    assert same_answer(said, wanted)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("$12.31", "$12.30"), ("", "$1.00"), ("Ada", "Ada Miller"), ("Ada Miller, Ada Miller", "Ada Miller"),
     ("7", "Ada Miller, 7"), ("Ada Miller or Bo", "Ada Miller"), ("Ada\u200bMiller", "Ada Miller"), ("１２", "12"),
     ("not 12", "12"), ("12" + " " * 400, "12"), ("1,2", "12"), ("12%", "12")],
)  # fmt: skip
def test_an_answer_that_is_another_one_or_more_than_one_is_wrong(said: str, wanted: str) -> None:
    assert not same_answer(said, wanted)


def graded(template: str, level: Difficulty, *deeds: Any, turn: int = 0) -> Any:
    world, goal = problem_of(task_of(template, level, turn))
    store = world.store()
    desk = Desk(store, ME, world.today.isoformat())
    for deed in deeds:
        deed(desk, goal, world)
    return judge(goal, store, wanted_state(world, goal), goal.answer)


def does(desk: Desk, goal: Goal, world: World) -> None:
    assert goal.act is not None
    goal.act(desk)


def comments(desk: Desk, goal: Goal, world: World) -> None:
    actions.comment(desk, world.issues[0].id, "+1")


def watches(desk: Desk, goal: Goal, world: World) -> None:
    actions.watch(desk, world.pages[0].id, True)


def stops_watching(desk: Desk, goal: Goal, world: World) -> None:
    actions.watch(desk, world.pages[0].id, False)


@pytest.mark.parametrize("template", ["shop-buy", "shop-cart", "issue-create", "issue-close"])
def test_anything_besides_the_errand_costs_everything_unless_it_was_undone(template: str) -> None:
    assert graded(template, "easy", does).missing == []
    outcome = graded(template, "easy", does, comments)
    assert (outcome.met, outcome.missing) == (0, [])
    assert outcome.unexpected == ["new comments"]
    assert graded(template, "easy", does, watches).met == 0
    undone = graded(template, "easy", watches, does, stops_watching)
    assert undone.met == undone.items


def test_a_label_or_a_line_of_the_cart_that_was_removed_and_added_again_is_no_difference() -> None:
    def swaps(desk: Desk, goal: Goal, world: World) -> None:
        issue = world.issue_labels[0]
        actions.remove_label(desk, issue.issue, issue.label)
        actions.add_label(desk, issue.issue, issue.label)
        for line in actions.cart(desk):
            actions.set_quantity(desk, line["id"], 0)
            actions.add_to_cart(desk, line["product"], line["quantity"])

    outcome = graded("shop-tidy-cart", "medium", does, swaps)
    assert (outcome.met, outcome.missing, outcome.unexpected) == (outcome.items, [], [])
    assert graded("shop-tidy-cart", "medium", swaps).unexpected == []
    assert graded("shop-tidy-cart", "medium", swaps).met == 0


@pytest.mark.parametrize(
    ("change", "right"),
    [(lambda text: text.replace("\n", " "), False), (lambda text: text.replace(": ", ":  "), False),
     (lambda text: text.replace("\n", "\n\n"), False), (lambda text: text.replace("\n", " \n"), True),
     (lambda text: f"\n{text}\n\n", True)],
)  # fmt: skip
def test_an_edit_of_the_wiki_keeps_the_lines_of_the_page(change: Callable[[str], str], right: bool) -> None:
    def edits(desk: Desk, goal: Goal, world: World) -> None:
        text = next(one.text for one in goal.steps if one.target == 'textbox "Text"')
        title = next(one.target for one in goal.steps if one.tool == "navigate").rpartition("/")[2].replace("_", " ")
        actions.edit_section(desk, world.page(title).id, 1, change(text))

    outcome = graded("wiki-fix", "easy", edits)
    assert outcome.met == (outcome.items if right else 0)


@pytest.mark.parametrize(("gap", "right"), [("\n", True), ("\n\n", True), (" ", False)])
def test_the_lines_of_an_issue_may_have_empty_ones_between_but_are_not_one(gap: str, right: bool) -> None:
    def opens(desk: Desk, goal: Goal, world: World) -> None:
        title, body = (
            next(one.text for one in goal.steps if one.target == f'textbox "{name}"')
            for name in ("Title", "Description")
        )
        assert "\n" in body
        actions.create_issue(desk, title, body.replace("\n", gap), "catalog")

    outcome = graded("across-price-issue", "hard", opens)
    assert outcome.met == (outcome.items if right else 0)


def test_a_right_answer_is_worth_nothing_after_another_change() -> None:
    assert graded("shop-price", "easy").met == 1
    assert graded("shop-price", "easy", comments).met == 0


def test_a_second_order_is_not_the_wanted_one() -> None:
    def orders_again(desk: Desk, goal: Goal, world: World) -> None:
        product = next(one for one in world.products if one.stock > 5)
        actions.add_to_cart(desk, product.id, 1)
        actions.place_order(desk, "A-1", "pickup")

    outcome = graded("shop-buy", "easy", does, orders_again)
    assert outcome.met == 0
    assert "new orders" in outcome.unexpected


def test_a_part_of_several_changes_is_a_part() -> None:
    def closes_one(desk: Desk, goal: Goal, world: World) -> None:
        changed = [one.id for one in wanted_state(world, goal).changes()]
        reason = "completed" if '"completed"' in goal.text else "not planned"
        actions.set_state(desk, changed[0], "closed", reason)

    outcome = graded("issue-close", "hard", closes_one)
    assert outcome.met == 1
    assert outcome.items > 1
    assert module.reward_of(outcome).value == pytest.approx(0.3 / outcome.items)


def test_lines_of_one_order_are_not_those_of_another() -> None:
    """New rows are compared with the rows that they name, not with ids that any other row could have."""
    world, _ = problem_of(task_of("shop-buy", "hard"))
    first, second = [one for one in world.products if one.stock > 5][:2]

    def state(*orders: Sequence[tuple[str, int]]) -> Any:
        store = world.store()
        desk = Desk(store, ME, "2026-03-02")
        for lines, shipping in zip(orders, ("pickup", "express"), strict=True):
            for product, count in lines:
                actions.add_to_cart(desk, product, count)
            actions.place_order(desk, "A-1", shipping)
        return store

    goal = Goal("", (), act=lambda desk: None)
    wanted = state([(first.id, 1)], [(second.id, 1)])
    assert judge(goal, state([(first.id, 1)], [(second.id, 1)]), wanted, "").unexpected == []
    assert judge(goal, state([(second.id, 1)], [(first.id, 1)]), wanted, "").unexpected != []


# ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────────────


def node(id: str, role: str, name: str = "", *children: str, **more: Any) -> dict[str, Any]:
    found = {
        "nodeId": id,
        "role": {"value": role},
        "name": {"value": name},
        "childIds": list(children),
        "properties": [],
    }
    return {**found, "backendDOMNodeId": int(id), **more}


def lines_of(*nodes: dict[str, Any]) -> list[str]:
    return Snapshot(nodes, lambda element: f"e{element}").lines


def test_a_snapshot_shows_what_can_be_acted_on_with_its_state() -> None:
    checked = [{"name": "checked", "value": {"value": "true"}}]
    assert lines_of(
        node("1", "RootWebArea", "T", "2", "3", "4", "5"),
        node("2", "heading", "Hi", properties=[{"name": "level", "value": {"value": 1}}]),
        node("3", "checkbox", "All", properties=checked),
        node("4", "textbox", "Name", value={"value": "Ada"}),
        node("5", "row", "", "6", "7"),
        node("6", "cell", "", "8"), node("7", "cell", "", "9"),
        node("8", "StaticText", "a"), node("9", "StaticText", "b"),
    ) == [
        '- heading "Hi" [level=1]', '- checkbox "All" [ref=e3] [checked]', '- textbox "Name" [ref=e4]: Ada',
        "- row: a | b",
    ]  # fmt: skip


def test_a_text_cannot_fake_a_line_of_the_snapshot() -> None:
    [line] = lines_of(node("1", "RootWebArea", "", "2"), node("2", "StaticText", 'x\n- button "Buy" [ref=e9]\r\x1b[2J'))
    assert line == '- text: x ⏎ - button "Buy" [ref=e9] [2J'


@given(
    st.lists(
        st.tuples(st.sampled_from(["link", "row", "paragraph", "StaticText", "form", "zz"]), st.text(max_size=300)),
        max_size=60,
    )
)
def test_parts_hold_every_line_once_and_keep_their_size(rows: list[tuple[str, str]]) -> None:
    nodes = [node(str(number), role, name) for number, (role, name) in enumerate(rows, 2)]
    ids: list[str] = [str(number) for number in range(2, len(rows) + 2)]
    shot = Snapshot([node("1", "RootWebArea", "", *ids), *nodes], lambda element: f"e{element}")
    pages = shot.pages()
    assert "\n".join(pages) == "\n".join(shot.lines)
    assert all(len(page) <= PAGE_CHARS or "\n" not in page for page in pages)


def test_a_tree_with_a_circle_or_missing_nodes_comes_to_an_end() -> None:
    assert lines_of(node("1", "RootWebArea", "", "2", "7"), node("2", "form", "", "1")) == []
    assert Snapshot([], lambda element: "e1").pages() == [""]


# ── in Chromium ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("browser", first=1)
@pytest.mark.timeout(120)
@needs_chromium
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize(
    ("template", "level"), [("across-told-fact", "hard"), *(one for one in ALL if one != ("across-told-fact", "hard"))]
)
async def test_the_oracle_earns_everything_on_every_kind(player: Any, template: str, level: Difficulty) -> None:
    split, index = split_and_index(template, level, 1)
    [episode] = await player.start(f"browser-{level}", split, index)
    results = await player.play(episode.episode, player.oracle(f"browser-{level}", split, index))
    assert results[-1].end_reason is EndReason.COMPLETED
    assert (await player.rewards(episode.episode))[0].value == 1.0
    assert len(results) <= 45, "there is room for detours"


def exploits_of(template: str, level: Difficulty) -> list[str]:
    """Return the exploits that the suite tries on a kind and level: a third, since all on each are 5,310 episodes."""
    names = list(Browser.exploits(task_of(template, level)))
    assert len(names) >= 50
    return names[ALL.index((template, level)) % 3 :: 3]


def test_the_suite_tries_each_exploit_on_at_least_a_quarter_of_its_kinds() -> None:
    possible = Counter(name for template, level in ALL for name in Browser.exploits(task_of(template, level)))
    tried = Counter(name for template, level in ALL for name in exploits_of(template, level))
    assert all(tried[name] >= number / 4 for name, number in possible.items())


def test_the_card_says_how_many_exploits_there_are_and_which_templates_are_held_out() -> None:
    card = (Path(module.__file__).parent / "README.md").read_text("utf-8")
    counts = [len(Browser.exploits(task_of(template, "easy"))) for template in ("shop-price", "shop-cart")]
    assert f"The class lists {counts[0]} for tasks with an answer and {counts[1]} for others" in card
    assert f"There are {len(TEMPLATES)} templates" in card
    for split in ("validation", "test"):
        [row] = re.findall(rf"^\| `{split}` \| (.+) \|$", card, re.MULTILINE)
        assert set(row.replace("`", "").split(", ")) == {one.name for one in TEMPLATES.values() if one.split == split}


@pytest.mark.suite("browser")
@pytest.mark.timeout(900)
@needs_chromium
@NEEDS_BUBBLEWRAP
@each_kind
async def test_no_exploit_earns_anything(player: Any, template: str, level: Difficulty) -> None:
    split, index = split_and_index(template, level)
    task = player.task(f"browser-{level}", split, index)
    for name in exploits_of(template, level):
        [episode] = await player.start(f"browser-{level}", split, index)
        await player.play(episode.episode, Browser.exploits(task)[name])
        info = await player.info(episode.episode)
        assert info.end_reason in (EndReason.COMPLETED, EndReason.STEP_LIMIT), name
        assert (await player.rewards(episode.episode))[0].value == 0.0, name


@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_exploits_with_real_pages_earn_nothing(player: Any) -> None:
    """A sample for each run; the suite tries all of them, on a third of the kinds each."""
    split, index = split_and_index("shop-cart", "easy")
    task = player.task("browser-easy", split, index)
    for name in ("the errand, and a comment besides",):
        [episode] = await player.start("browser-easy", split, index)
        await player.play(episode.episode, Browser.exploits(task)[name])
        assert (await player.rewards(episode.episode))[0].value == 0.0, name


@pytest.fixture(name="box")
async def a_box() -> Any:
    provider = Bubblewrap()
    await provider.open()
    try:
        async with await provider.create(chromium_settings().but(warm=0)) as box:
            yield box
    finally:
        await provider.aclose()


PAGES = {
    "/": "<title>T</title><script src='/static/x.js'></script><h1>Hi</h1><a href='/next'>on</a>"
    "<form action='/sent' method='post'>"
    "<label>Name <input name='n'></label><select aria-label='Size' name='s'><option>Small<option>Large</select>"
    "<button>Go</button></form>",
    "/next": "<title>N</title><a href='http://other.test/x'>away</a><a href='file:///etc/passwd'>file</a>"
    "<a href='javascript:document.title=1'>script</a><a href='/pop' target='_blank'>pop</a>"
    "<input aria-label='Off' disabled>"
    "<img src='http://127.0.0.1/x'><script>document.title = 'inline script ran'</script>",
    "/pop": "<title>P</title>popped",
}  # fmt: skip


class Answers:
    """A site for the tests of the driver."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Response:
        self.asked.append(request)
        if request.method == "POST":
            return Response(303, "", location="http://shop.test/next")
        return Response(200, PAGES.get(request.path, ""))


def ref(shown: str, element: str) -> str:
    found = re.search(rf"- {re.escape(element)} \[ref=(e\d+)\]", shown)
    assert found is not None, shown
    return found[1]


@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_the_driver_fills_forms_goes_back_and_stays_on_its_sites(box: Any) -> None:
    answers = Answers()
    tab = Tab(box, answers, HOSTS)
    await tab.open("http://shop.test/")
    shown = await tab.snapshot()
    await tab.fill(ref(shown, 'textbox "Name"'), 'Äda <b>&"', False)
    await tab.select(ref(shown, 'combobox "Size"'), "Large")
    with pytest.raises(ToolError, match="There are: Small; Large"):
        await tab.select(ref(shown, 'combobox "Size"'), "Huge")
    old = ref(shown, 'button "Go"')
    await tab.click(old)
    [sent] = [one for one in answers.asked if one.method == "POST"]
    assert dict(sent.form) == {"n": ['Äda <b>&"'], "s": ["Large"]}
    with pytest.raises(ToolError, match="was on an earlier page"):
        await tab.click(old)
    with pytest.raises(ToolError, match="There is no element e9999"):
        await tab.click("e9999")
    shown = await tab.snapshot()
    assert "Page title: N" in shown, "scripts in pages do not run"
    with pytest.raises(ToolError, match="cannot be changed"):
        await tab.fill(re.findall(r'textbox "Off" \[ref=(e\d+)\]', shown)[0], "x", False)
    for name in ("file", "script", "pop"):
        await tab.click(ref(shown, f'link "{name}"'))
        again = await tab.snapshot()
        assert "Page URL: http://shop.test/next" in again
        assert "Page title: N" in again, name
    await tab.click(ref(await tab.snapshot(), 'link "away"'))
    assert "other.test" not in str([one.host for one in answers.asked])
    await tab.open("http://shop.test/")
    await tab.go_back()
    assert {one.host for one in answers.asked} == {"shop.test"}
    assert (await tab.screenshot()).startswith(b"\x89PNG")
    await tab.aclose()


@pytest.mark.suite("browser")
@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_a_page_that_crashes_is_opened_again(box: Any) -> None:
    tab = Tab(box, Answers(), HOSTS)
    await tab.open("http://shop.test/next")
    assert (devtools := tab._devtools) is not None
    devtools.post("Page.crash", tab._session)
    await wait_until(lambda: devtools.gone)  # a snapshot that overtakes the crash is of the page as it was
    with pytest.raises(ToolError, match="was started again"):
        await tab.snapshot()
    assert "Page URL: http://shop.test/next" in await tab.snapshot()
    await tab.aclose()


def running(tab: Tab) -> Process:
    assert tab._process is not None
    return tab._process


@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_a_browser_that_is_killed_comes_back_at_its_page_and_at_last_the_episode_is_unscored(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tab_module, "_RESTARTS", 1)
    tab = Tab(box, Answers(), HOSTS)
    await tab.open("http://shop.test/next")
    await running(tab).kill()
    with pytest.raises(ToolError, match="was started again at the same address"):
        await tab.snapshot()
    assert "Page URL: http://shop.test/next" in await tab.snapshot()
    await running(tab).kill()
    with pytest.raises(InfrastructureFailed, match="has ended 2 times"):
        await tab.snapshot()
    await tab.aclose()


@pytest.mark.suite("browser")
@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_an_episode_goes_on_after_a_kill_and_leaves_no_process(
    player: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, index), processes = split_and_index("shop-price", "easy"), list[Process]()
    made = Tab._connect

    async def connect(self: Tab) -> None:
        await made(self)
        assert self._process is not None
        processes.append(self._process)

    monkeypatch.setattr(Tab, "_connect", connect)
    [episode] = await player.start("browser-easy", "train", index)
    await player.step(episode.episode, "navigate", url="http://shop.test/")
    await processes[-1].signal(9)
    await processes[-1].wait()
    lost = await player.step(episode.episode, "snapshot")
    assert "started again" in text_of(lost.content)
    await player.play(episode.episode, player.oracle("browser-easy", "train", index))
    assert (await player.rewards(episode.episode))[0].value == 1.0
    async with asyncio.timeout(20):
        ends = await asyncio.gather(*(one.wait() for one in processes), return_exceptions=True)
    assert len(ends) > 1
    assert all(isinstance(one, ProcessEnd | SandboxFailed) for one in ends)


@NEEDS_BUBBLEWRAP
async def test_without_chromium_the_environment_is_listed_and_its_start_says_why(
    player: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "missing_chromium", lambda: "Chromium is not installed (apt-get install chromium)")
    assert "browser-hard" in player.host.catalog
    with pytest.raises(InfrastructureFailed, match=r"Chromium is not installed \(apt-get install chromium\)"):
        await player.start("browser", "train", 0)


@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_the_prompt_says_how_a_line_break_in_a_field_is_shown(player: Any) -> None:
    [shown] = lines_of(node("1", "textbox", "Text", value={"value": "one\ntwo"}))
    assert shown.endswith(": one ⏎ two")
    [episode] = await player.start("browser-easy", "train", 0)
    assert "⏎ is shown between them" in str(episode.prompt)


@needs_chromium
@NEEDS_BUBBLEWRAP
async def test_a_final_message_is_an_answer_too(player: Any) -> None:
    _, index = split_and_index("shop-price", "easy")
    answer = problem_of(player.task("browser-easy", "train", index))[1].answer
    for text, value in (
        (f"Answer: {answer}", 1.0),
        (answer, 1.0),
        (f"Answer: {answer}\nAnswer: $1.00", 0.0),
        ("Done.", 0.0),
    ):
        [episode] = await player.start("browser-easy", "train", index)
        await player.play(episode.episode, iter_of(Answer(text)))
        assert (await player.rewards(episode.episode))[0].value == value, text


def iter_of(*moves: Call | Answer) -> Any:
    yield from moves


@pytest.mark.suite("browser")
@pytest.mark.timeout(3000)
@needs_chromium
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("name", ["browser", "browser-easy", "browser-medium", "browser-hard"])
async def test_validation_finds_nothing(name: str) -> None:
    (report,) = await validate("browser", environments={name})
    assert [(one.kind, one.message) for one in report.findings] == []
