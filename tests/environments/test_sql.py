"""The environment `sql`: its questions, its databases, what a query may do, and how it is judged."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.protocol import text_of
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.dice import QuickRandom
from ludus.server.authoring.partition import SplitType, split_of
from ludus_sql import Sql
from ludus_sql.data import HIDDEN, PROFILES, VISIBLE, focus, image, rows_of
from ludus_sql.domains import DOMAINS
from ludus_sql.engine import FUNCTIONS, LONGEST, STEPS, Database, QueryError, check_query
from ludus_sql.environment import SHOWN_ROWS
from ludus_sql.exploits import messages
from ludus_sql.find_unsound import find
from ludus_sql.grading import judge, read_query, same_rows
from ludus_sql.mutants import mutants
from ludus_sql.recipes import Plan, make_plan
from ludus_sql.schema import VARIANTS, Schema, schema_of
from ludus_sql.soundness import VERIFIED, faults, hidden, unsound
from ludus_sql.tasks import HELD_OUT, Series

GOLDEN = {
    "easy": "9dac54c69a55d29f",
    "medium": "7311635b6674c53a",
    "hard": "fc56bb9448be620f",
}
"""Hashes of the first tasks of each level, of what their tools show, and of rewards. A change raises `version`."""

HELD_OUT_SPLITS: tuple[SplitType, ...] = ("validation", "test")
each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)
seeds = st.integers(0, 2**63)


def plan_of(seed: int, difficulty: Difficulty) -> Plan:
    return make_plan(QuickRandom(seed), difficulty)


def shop() -> Schema:
    return schema_of("shop", 0)


def run(sql: str, schema: Schema | None = None) -> list[Any]:
    """The rows of a query as a policy runs it."""
    schema = schema or shop()
    names = [table.name for table in schema.tables.values()]
    with closing(Database(image(schema.domain, schema.variant, VISIBLE), names)) as database:
        database.lock()
        return database.query(check_query(sql), 1000)[1]


async def shown(player: Any, episode: str, tool: str, **arguments: str) -> str:
    return text_of((await player.step(episode, tool, **arguments)).content)


@each_difficulty
async def test_the_first_tasks_of_this_version_are_fixed(player: Any, difficulty: Difficulty) -> None:
    found: list[Any] = []
    for index in range(4):
        [episode] = await player.start(f"sql-{difficulty}", "validation", index)
        task = player.task(f"sql-{difficulty}", "validation", index)
        table = schema_of(task.domain, task.variant).asked[-1].name
        looks = [await shown(player, episode.episode, "describe", table=table)]
        looks.append(await shown(player, episode.episode, "query", sql=task.solution))
        info = await player.answer(episode.episode, task.solution)
        prompt = [text_of(message.content) for message in episode.prompt]
        found.append([prompt, task.question, task.solution, looks, info.reward.value])
    digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
    assert digest == GOLDEN[difficulty]


def test_there_are_a_dozen_domains_with_three_to_eight_tables_each() -> None:
    assert len(DOMAINS) >= 12
    for domain in DOMAINS:
        variants = [schema_of(domain, variant) for variant in range(VARIANTS)]
        assert all(3 <= len(schema.tables) <= 8 for schema in variants)
        assert len({"".join(schema.statements) for schema in variants}) == VARIANTS


def test_equal_questions_about_a_schema_have_equal_solutions() -> None:
    rng = QuickRandom(3)
    solutions: dict[tuple[str, int, str], str] = {}
    questions: dict[tuple[str, int, str], str] = {}
    for number in range(4000):
        plan = make_plan(rng, DIFFICULTIES[number % 3])
        place = (plan.schema.domain, plan.schema.variant)
        assert solutions.setdefault((*place, plan.question), plan.solution) == plan.solution
        questions[(*place, plan.solution)] = plan.question
    assert len(questions) > 3900


@each_difficulty
@given(seed=seeds)
def test_a_question_is_a_sentence_that_hides_its_query(difficulty: Difficulty, seed: int) -> None:
    plan = plan_of(seed, difficulty)
    assert plan.question[0].isupper()
    assert plan.question[-1] in ".?"
    assert "{" not in plan.question
    assert "_" not in plan.question.replace("DENSE_RANK", "")
    assert "  " not in plan.question
    assert plan.solution not in plan.question


@each_difficulty
@given(seed=seeds)
@settings(max_examples=25)
def test_solutions_run_on_every_database_and_are_right(difficulty: Difficulty, seed: int) -> None:
    plan = plan_of(seed, difficulty)
    verdict = judge(plan.solution, plan.solution, plan.schema)
    assert verdict.correct
    assert verdict.runs
    assert run(plan.solution, plan.schema) is not None


@each_difficulty
@given(index=st.integers(0, 2**50))
def test_the_text_without_constants_names_the_split(difficulty: Difficulty, index: int) -> None:
    plan = Series("train", difficulty).plan(index)
    assert split_of(plan.identity) == "train"
    assert not any(char.isdigit() for char in plan.identity.partition(":")[2])


def test_held_out_tasks_differ_in_more_than_constants_and_are_in_their_splits() -> None:
    for split in HELD_OUT_SPLITS:
        for difficulty in DIFFICULTIES:
            series = Series(split, difficulty)
            plans = [series.plan(index) for index in range(100)]
            assert {split_of(plan.identity) for plan in plans} == {split}
            assert len({plan.identity for plan in plans}) == len(plans)


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_hidden_databases_tell_solutions_from_wrong_queries(difficulty: Difficulty) -> None:
    counts: dict[SplitType, int] = {"train": 40, "validation": 20, "test": 20}
    for split, count in counts.items():
        series = Series(split, difficulty)
        for index in range(count):
            plan = series.plan(index)
            assert faults(plan) == [], plan.solution


@pytest.mark.suite("sql")
def test_the_list_of_plans_that_are_not_sound_is_complete() -> None:
    found = find(verified=150, held_out=30)
    assert found
    assert found <= unsound()


@each_difficulty
@given(seed=seeds)
@settings(max_examples=25)
def test_wrong_queries_are_queries(difficulty: Difficulty, seed: int) -> None:
    plan = plan_of(seed, difficulty)
    made = list(mutants(plan))
    with hidden(plan) as databases:
        for _, query in made:
            assert query != plan.solution
            for database, _ in databases:
                database.query(query, 1000)


def test_the_hidden_databases_have_other_rows_than_the_visible_one() -> None:
    for domain in DOMAINS:
        schema = schema_of(domain, 0)
        visible = rows_of(schema, VISIBLE)
        alike = rows_of(schema, 1)
        assert PROFILES[1].name == "alike"
        assert {key: len(rows) for key, rows in alike.items()} == {key: len(rows) for key, rows in visible.items()}
        for number in HIDDEN:
            hidden_rows = rows_of(schema, number)
            assert all(rows != visible[key] for key, rows in hidden_rows.items())


def test_databases_have_missing_values_ties_and_parents_without_children() -> None:
    for domain in DOMAINS:
        schema = schema_of(domain, 1)
        rows = rows_of(schema, VISIBLE)
        values = [
            (table, i, [row[i] for row in rows[table.key]]) for table in schema.asked for i in range(len(table.columns))
        ]
        assert any(None in found for _, _, found in values)
        assert any(len(set(found)) < len(found) for _, _, found in values)
        assert all(None not in found for table, i, found in values if not table.columns[i].nullable)
        childless = [
            set(row[0] for row in rows[parent.key]) - {row[child.columns.index(key)] for row in rows[child.key]}
            for parent in schema.asked
            for child, key in schema.children(parent)
        ]
        assert any(childless)


def test_the_values_of_a_solution_are_common_in_the_databases_that_are_changed_for_it() -> None:
    solution = "SELECT status FROM orders WHERE shipping_fee > 8.5 AND status LIKE 'p%'"
    with closing(Database(image("shop", 0, 3), (), focus(solution, shop()))) as database:
        tests = ("shipping_fee = 8.5", "status LIKE 'p%'")
        shares = [
            database.trusted(f"SELECT COUNT(*) * 10 > (SELECT COUNT(*) FROM orders) FROM orders WHERE {one}")
            for one in tests
        ]
    assert shares == [[(1,)], [(1,)]]


@pytest.mark.parametrize(
    ("expected", "found", "ordered", "same"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], False, True),
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True, False),
        ([(1,), (1,)], [(1,)], False, False), ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),
        ([(1,)], [(1.0,)], True, True), ([(1,)], [("1",)], True, False), ([(None,)], [(0,)], True, False),
        ([(None,)], [(None,)], True, True), ([(None,)], [("",)], True, False), ([("a",)], [("A",)], True, False),
        ([("a",)], [("a ",)], True, False), ([("a",)], [(b"a",)], True, False),
        ([(1, 2)], [(2, 1)], False, False), ([(1,)], [(1, 1)], False, False), ([], [], True, True),
        ([(0.1 + 0.2,)], [(0.3,)], True, True), ([(0.3,)], [(0.301,)], True, False),
        ([(1e9,)], [(1e9 + 1,)], True, True),
        ([(0.3,), (0.1 + 0.2,)], [(0.1 + 0.2,), (0.3,)], False, True), ([(1,)], [(float("inf"),)], True, False),
        ([(2,), ("2",), (None,)], [(None,), (2,), ("2",)], False, True),
    ],
)  # fmt: skip
def test_results_are_compared_by_value(expected: Any, found: Any, ordered: bool, same: bool) -> None:
    assert same_rows(expected, found, ordered) is same


@pytest.mark.parametrize(
    ("found", "same"), [(2.68, True), (2.67, True), (2.675, False), (2.66, False), (2.6849, False), (3, False)]
)
def test_a_rounded_number_may_be_rounded_the_other_way(found: float, same: bool) -> None:
    assert same_rows([(2.68,)], [(found,)], ordered=True, rounded=True) is same


REWORDED: list[tuple[str, Callable[[str], str]]] = [
    ("as it is", lambda sql: sql),
    ("on one line", lambda sql: " ".join(sql.split())),
    ("with a semicolon", lambda sql: f"{sql} ;\n;"),
    ("with comments", lambda sql: f"-- a comment; with a semicolon\n/* another; one */ {sql} -- the end"),
    ("with names", lambda sql: sql.replace("\nFROM", " AS last_name\nFROM", 1)),
    ("in a code block", lambda sql: f"Here it is:\n```sql\n{sql}\n```\nDone."),
    ("after another one", lambda sql: f"```sql\nSELECT 1\n```\nNo:\n```\n{sql};\n```"),
]


@pytest.mark.parametrize(("what", "change"), REWORDED)
async def test_the_same_query_in_another_form_earns_the_same(
    player: Any, what: str, change: Callable[[str], str]
) -> None:
    task = player.task("sql-easy", "train", 5)
    [episode] = await player.start("sql-easy", "train", 5)
    info = await player.answer(episode.episode, change(task.solution))
    assert info.reward.value == 1.0, what


def test_the_last_code_block_is_the_query_or_else_the_whole_message() -> None:
    assert read_query(" SELECT 1\n") == "SELECT 1"
    assert read_query("```\nSELECT 1\n```") == "SELECT 1"
    assert read_query("a ```sql\nSELECT 1\n``` b ```SQL\nSELECT 2;\n``` c") == "SELECT 2;"


@each_difficulty
def test_no_exploit_earns_anything(difficulty: Difficulty) -> None:
    for index in range(12):
        task = Sql.load_task("train", index, [difficulty])
        schema = schema_of(task.domain, task.variant)
        found = messages(task.domain, task.variant, task.solution)
        assert len(found) >= 40
        for what, message in found.items():
            assert not judge(read_query(message), task.solution, schema).correct, (what, task.solution)


REFUSED = {
    "": "is empty",
    "-- nothing": "is empty",
    ";": "is empty",
    "SELECT 1; SELECT 2": "one statement",
    "INSERT INTO orders VALUES (1)": "Only SELECT",
    "EXPLAIN SELECT 1": "Only SELECT",
    "VALUES (1)": "Only SELECT",
    "PRAGMA table_info(orders)": "Only SELECT",
    "ATTACH 'x' AS y": "Only SELECT",
    "BEGIN": "Only SELECT",
    "WITH x AS (SELECT 1) DELETE FROM orders": "Only reading",
    "WITH x AS (SELECT 1) UPDATE orders SET id = 1": "Only reading",
    "WITH x AS (SELECT 1) INSERT INTO orders SELECT * FROM orders": "Only reading",
    "SELECT * FROM sqlite_master": "must not be read",
    "SELECT * FROM sqlite_schema": "must not be read",
    "SELECT COUNT(*) FROM sqlite_master": "must not be read",
    "SELECT COUNT(*) FROM main.sqlite_master": "must not be read",
    "SELECT COUNT(*) FROM sqlite_temp_schema": "must not be read",
    "SELECT 1 FROM (SELECT 1 FROM sqlite_master)": "must not be read",
    "WITH orders AS (SELECT name FROM sqlite_master) SELECT * FROM orders": "must not be read",
    "SELECT COUNT(*) FROM pragma_database_list": "Only reading|must not be read",
    "SELECT COUNT(*) FROM json_each('[1]')": "Only reading|must not be read|no such",
    "SELECT COUNT(*) FROM json_tree": "Only reading|must not be read|no such",
    "SELECT COUNT(*) FROM dbstat": "Only reading|must not be read|no such",
    "SELECT * FROM pragma_table_info('orders')": "Only reading",
    "SELECT * FROM pragma_function_list": "Only reading",
    "SELECT load_extension('x')": "not allowed",
    "SELECT random()": "not allowed",
    "SELECT hex(randomblob(9))": "not allowed",
    "SELECT sqlite_version()": "not allowed",
    "SELECT zeroblob(99)": "not allowed",
    "SELECT printf('%9d', 1)": "not allowed",
    "SELECT changes()": "not allowed",
    "SELECT last_insert_rowid()": "not allowed",
    "SELECT CURRENT_DATE": "time of the query",
    "SELECT current_timestamp": "time of the query",
    "SELECT date()": "time of the query",
    "SELECT date('NOW ')": "time of the query",
    "SELECT strftime('%Y')": "time of the query",
    "SELECT julianday('n' || 'ow')": "time of the query",
    "SELECT datetime('2022-01-01', 'localtime')": "time of the query",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n": "Recursive",
    "WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n": "too complex|Recursive",
    "SELECT COUNT(*) FROM orders a, orders b, orders c, orders d, orders e": "too many steps",
    "SELECT replace(replace(replace('aaaaaaaaaaaa','a','aaaaaaaaaaaa'),'a','aaaaaaaaaaaa'),'a','b')": "too big",
    "SELECT group_concat(a.status) FROM orders a, orders b": "too big",
    "SELECT " + "(" * 900 + "1" + ")" * 900: "parser stack|too large",
    "SELECT 1" + " + 1" * 200: "too large",
    "SELECT '" + "a" * LONGEST + "'": "at most 4000",
    "SELECT 1\x00": "no text may have",
    "SELECT '\ud800'": "no text may have",
    "SELECT no_such FROM orders": "no such column",
    "SELECT FROM": "syntax error",
    "SELECT * FROM missing": "no such table",
    "SELECT abs(-9223372036854775807 - 1)": "overflow",
    " UNION ALL ".join(["SELECT 1"] * 20): "too many terms",
    "SELECT * FROM orders WHERE id = ?": "variable|binding|parameter",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_a_query_must_not_do_is_refused_and_the_message_says_why(sql: str) -> None:
    with pytest.raises(QueryError, match=REFUSED[sql]) as refused:
        run(sql)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("form", ["a{}", '"A{}"', "[a{}]", "`a{}`"])
def test_ctes_that_double_are_refused_before_sqlite_reads_them(form: str, forward: bool) -> None:
    def part(number: int) -> str:
        to = form.format(number + 1 if forward else number - 1)
        return f"a{number} AS NOT MATERIALIZED (SELECT p.x FROM {to} AS p, {to} AS q)"

    last = 16 if forward else 0
    parts = [f"a{last}(x) AS (SELECT id FROM orders)" if n == last else part(n) for n in range(17)]
    with pytest.raises(QueryError, match="too complex"):
        check_query(f"WITH {', '.join(parts)} SELECT COUNT(*) FROM a{0 if forward else 16}")


def test_ctes_in_usual_numbers_are_allowed() -> None:
    sql = (
        "WITH a AS (SELECT id, status FROM orders), b(n) AS (SELECT COUNT(*) FROM a JOIN a AS other USING (id)), "
        'c AS (SELECT * FROM a UNION ALL SELECT * FROM "a") SELECT COUNT(*), (SELECT n FROM b) FROM c'
    )
    [(count, once)] = run(sql)
    assert count == 2 * once


@pytest.mark.parametrize(
    "call",
    [
        "date('2022-01-31', '+1 month')", "strftime('%Y', '2022-05-06')", "julianday('2022-05-06')", "date(NULL)",
        "datetime('2022-05-06 07:08')", "time('07:08')", "strftime('%m', NULL)", "date('now or never')",
    ],
)  # fmt: skip
def test_functions_of_dates_give_what_sqlite_gives(call: str) -> None:
    with closing(sqlite3.connect(":memory:")) as plain:
        assert run(f"SELECT {call}") == plain.execute(f"SELECT {call}").fetchall()


def test_the_functions_are_those_of_sqlite_and_do_not_follow_chance() -> None:
    assert FUNCTIONS.isdisjoint(
        {"random", "randomblob", "changes", "total_changes", "last_insert_rowid", "sqlite_version"}
    )
    assert run(
        "SELECT COUNT(*), iif(1, UPPER('a'), 'b'), round(2.5), coalesce(NULL, 3), substr('abc', 2, 1) FROM orders"
    )


def test_nothing_outlives_a_query() -> None:
    with pytest.raises(QueryError):
        run("DELETE FROM orders")
    before = image("shop", 0, VISIBLE)
    run("SELECT * FROM orders")
    assert image("shop", 0, VISIBLE) == before


async def test_the_tools_show_the_visible_database_within_bounds(player: Any) -> None:
    [episode] = await player.start("sql", "train", 0)
    task = player.task("sql", "train", 0)
    schema = schema_of(task.domain, task.variant)
    table = max(schema.asked, key=lambda one: len(rows_of(schema, VISIBLE)[one.key]))
    described = await shown(player, episode.episode, "describe", table=f' "{table.name.upper()}"')
    assert schema.create(table) in described
    assert f"{len(rows_of(schema, VISIBLE)[table.key])} rows" in described
    found = await shown(player, episode.episode, "query", sql=f"SELECT * FROM {table.name}")
    assert len(found.splitlines()) == SHOWN_ROWS + 2
    assert f"more than {SHOWN_ROWS} rows" in found
    one = await shown(player, episode.episode, "query", sql="SELECT NULL AS missing, 0.1 + 0.2, 'a\nb' AS text")
    assert one.splitlines() == ["missing | 0.1 + 0.2 | text", "NULL | 0.3 | a b", "(1 row)"]
    wrong = await player.step(episode.episode, "describe", table="nothing")
    assert wrong.error.code == "refused"
    assert table.name in text_of(wrong.content)
    wrong = await player.step(episode.episode, "query", sql="SELECT missing FROM nowhere")
    assert wrong.error.code == "refused"
    assert "no such table: nowhere" in text_of(wrong.content)


async def test_a_query_that_fails_earns_nothing_and_one_that_runs_is_marked(player: Any) -> None:
    for answer, runs in (("SELECT missing FROM nowhere", 0.0), ("SELECT 1", 1.0), ("I do not know.", 0.0)):
        [episode] = await player.start("sql", "train", 0)
        reward = (await player.answer(episode.episode, answer)).reward
        assert reward.value == 0.0
        assert reward.components["runs"].value == runs


def test_the_splits_have_more_than_a_thousand_different_tasks() -> None:
    tasks = [Sql.load_task("train", index) for index in range(1500)]
    assert len({(task.domain, task.variant, task.question) for task in tasks}) > 1400
    assert HELD_OUT == 300


NESTED: list[tuple[str, Callable[[str], str]]] = [
    ("in a subquery", lambda sql: f"SELECT * FROM ({sql})"),
    ("in a CTE", lambda sql: f"WITH answer AS ({sql}) SELECT * FROM answer"),
    ("in lower case", lambda sql: sql.replace("SELECT", "select").replace("FROM", "from").replace("COUNT", "count")),
]  # fmt: skip


@each_difficulty
@pytest.mark.parametrize(("what", "change"), NESTED)
def test_a_right_query_in_more_words_is_right(difficulty: Difficulty, what: str, change: Callable[[str], str]) -> None:
    for index in range(25):
        task = Sql.load_task("validation", index, [difficulty])
        verdict = judge(change(task.solution), task.solution, schema_of(task.domain, task.variant))
        assert verdict.correct, (what, task.solution)


RIGHT = [
    (
        "SELECT city, COUNT(*)\nFROM customers\nWHERE segment <> 'school'\nGROUP BY city\nHAVING COUNT(*) >= 2",
        "SELECT c.city, n FROM (SELECT city, SUM(1) AS n FROM customers AS c WHERE NOT segment = 'school' GROUP BY 1) "
        "AS c WHERE n > 1",
    ),
    (
        "SELECT customers.name\nFROM customers\nWHERE NOT EXISTS (SELECT 1 FROM orders AS c WHERE "
        "c.customer_id = customers.id)",
        "SELECT name FROM customers WHERE id NOT IN (SELECT customer_id FROM orders)",
    ),
    (
        "SELECT customers.name\nFROM customers\nWHERE NOT EXISTS (SELECT 1 FROM orders AS c WHERE "
        "c.customer_id = customers.id)",
        "SELECT name FROM customers LEFT JOIN orders o ON o.customer_id = customers.id WHERE o.id IS NULL",
    ),
    (
        "SELECT SUBSTR(order_date, 1, 4), AVG(shipping_fee)\nFROM orders\nGROUP BY SUBSTR(order_date, 1, 4)",
        "SELECT STRFTIME('%Y', order_date) AS year, SUM(shipping_fee) / COUNT(*) FROM orders GROUP BY year",
    ),
    (
        "SELECT customer_id, ROUND(AVG(shipping_fee), 2)\nFROM orders\nGROUP BY customer_id",
        "SELECT DISTINCT customer_id, ROUND(AVG(shipping_fee) OVER (PARTITION BY customer_id), 2) FROM orders",
    ),
    (
        "SELECT id, LAG(stock) OVER (ORDER BY price, id)\nFROM products\nORDER BY price, id",
        "SELECT id, (SELECT o.stock FROM products AS o WHERE (o.price, o.id) < (p.price, p.id) ORDER BY o.price DESC, "
        "o.id DESC LIMIT 1) FROM products AS p ORDER BY price, id",
    ),
    (
        "SELECT order_items.quantity, product_x.title\nFROM order_items\nJOIN products AS product_x ON "
        "product_x.id = order_items.product_id",
        "SELECT i.quantity, p.title FROM order_items i, products p WHERE p.id = i.product_id",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("solution", "query"), RIGHT)
def test_another_right_query_is_right(solution: str, query: str) -> None:
    assert judge(query, solution, shop()).correct


WRONG = [
    ("SELECT color\nFROM products\nWHERE color <> 'red'", "SELECT color FROM products WHERE color IS NOT 'red'"),
    (
        "SELECT products.title\nFROM products\nWHERE NOT EXISTS (SELECT 1 FROM reviews AS c WHERE "
        "c.product_id = products.id)",
        "SELECT products.title FROM products LEFT JOIN reviews r ON r.product_id = products.id AND r.id IS NULL",
    ),
    (
        "SELECT categories.title\nFROM categories\nWHERE NOT EXISTS (SELECT 1 FROM products AS c WHERE "
        "c.category_id = categories.id)",
        "SELECT title FROM categories WHERE id NOT IN (SELECT category_id FROM products)",
    ),
    (
        "SELECT price\nFROM products\nORDER BY price DESC, id\nLIMIT 3",
        "SELECT DISTINCT price FROM products ORDER BY 1 DESC LIMIT 3",
    ),
    ("SELECT title\nFROM products\nORDER BY title, id", "SELECT title FROM products"),
    ("SELECT COUNT(color)\nFROM products", "SELECT COUNT(*) FROM products"),
    ("SELECT id, price\nFROM products", "SELECT price, id FROM products"),
    ("SELECT AVG(stock)\nFROM products", "SELECT CAST(AVG(stock) AS INTEGER) FROM products"),
    ("SELECT stock\nFROM products", "SELECT CAST(stock AS TEXT) FROM products"),
    ("SELECT AVG(loyalty_points)\nFROM customers", "SELECT AVG(COALESCE(loyalty_points, 0)) FROM customers"),
    ("SELECT SUM(stock)\nFROM products", "SELECT COALESCE(SUM(stock), 0) FROM products"),
]  # fmt: skip


@pytest.mark.parametrize(("solution", "query"), WRONG)
def test_a_query_that_is_nearly_right_is_wrong(solution: str, query: str) -> None:
    verdict = judge(query, solution, shop())
    assert verdict.runs
    assert not verdict.correct


_KEYWORDS = frozenset(
    "select distinct from join left on where and or not in between is null like group by having order limit asc desc "
    "nulls first last union all intersect except with as case when then else end exists over partition rows preceding "
    "current row count sum avg min max round coalesce substr rank dense_rank row_number lag".split()
)


def shape(solution: str) -> str:
    """A query without its names and constants."""
    masked = re.sub(r"\b\w+\.", "", re.sub(r"'[^']*'|\b\d+(\.\d+)?\b", "?", solution))
    return re.sub(r"[A-Za-z_]\w*", lambda found: found[0] if found[0].lower() in _KEYWORDS else "x", masked)


@pytest.mark.suite("sql")
def test_the_card_counts_the_shapes_of_queries() -> None:
    card = (Path(inspect.getfile(Sql)).parents[1] / "README.md").read_text("utf-8")
    for difficulty in DIFFICULTIES:
        tasks = [Sql.load_task("train", index, [difficulty]) for index in range(6000)]
        assert f"{len({shape(task.solution) for task in tasks}):,}" in card
        assert len({(task.domain, task.question) for task in tasks}) > 0.97 * len(tasks)


def test_the_card_counts_the_exploits_and_the_hidden_databases() -> None:
    card = (Path(inspect.getfile(Sql)).parents[1] / "README.md").read_text("utf-8")
    task = Sql.load_task("train", 0, ["easy"])
    assert f"The class lists {len(messages(task.domain, task.variant, task.solution))} " in card
    assert f"on {len(HIDDEN)} hidden databases" in card
    assert f"{sum(PROFILES[number].focused for number in HIDDEN)} of them are changed" in card
    assert f"{VERIFIED:,} training tasks of each level" in card
    assert f"{STEPS:,} steps" in card
