"""Checks of the answer's text: exact, normalized, numbers with units, patterns, JSON, mathematics."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import unicodedata
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ludus.protocol.errors import AuthoringError
from ludus.server.authoring.schema_tool import SchemaTool
from ludus.server.authoring.tools import InvalidArguments
from ludus.server.rewards import (
    Attempt,
    Exact,
    Fields,
    JsonSchema,
    MathEqual,
    NormalizedMatch,
    Numeric,
    Pattern,
    Rubric,
    Scale,
    units,
)
from ludus.server.rewards import schema as schemas
from ludus.server.rewards.code import code_of
from ludus.server.rewards.judges.verdict import Unreadable, read_score
from ludus.server.rewards.mathematics import Helper
from ludus.server.rewards.structure import NotJson, fenced, read_json
from ludus.server.rewards.text import TooLong, search_within
from ludus.server.rewards.units import read_quantities, read_unit

pytestmark = pytest.mark.timeout(600)  # a longer run is a hang


def value(check: Any, answer: str) -> float:
    verdict = check.check(Attempt(answer=answer))
    if inspect.isawaitable(verdict):
        verdict = asyncio.run(wait_for(verdict))
    return float(verdict.value)


async def wait_for(verdict: Any) -> Any:
    return await verdict


@pytest.mark.parametrize(
    ("answer", "exact", "normalized"),
    [
        ("Paris", 1, 1),
        ("  Paris\n", 1, 1),
        ("paris", 0, 1),
        ("the Paris.", 0, 1),
        ("Ｐａｒｉｓ", 0, 1),
        ("Paris, London", 0, 0),
        ("Not Paris", 0, 0),
        ("", 0, 0),
    ],
)
def test_exact_and_normalized_match_take_the_whole_answer(answer: str, exact: int, normalized: int) -> None:
    assert value(Exact("Paris"), answer) == exact
    assert value(NormalizedMatch("Paris"), answer) == normalized


def test_any_of_several_expected_texts_will_do() -> None:
    assert value(Exact(["4", "four"]), "four") == 1
    assert value(NormalizedMatch(["4", "four"]), "FOUR!") == 1


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("36 km/h", True),
        ("It is 10 m/s.", True),
        ("10 m s⁻¹", True),
        ("about 10 metres/second", True),
        ("1,000 cm/s", True),
        ("1e1 m/s", True),
        ("0.01×10^3 m/s", True),
        ("20/2 m/s", True),
        ("36", False),
        ("10 m", False),
        ("10 m/s^2", False),
        ("12 m/s or 10 m/s or 11 m/s", False),
        ("between 5 and 10 m/s", True),
        ("-10 m/s", False),
        ("no idea", False),
        ("NaN m/s", False),
        ("1e999 m/s", False),
    ],
)
def test_numbers_are_read_in_any_notation_and_unit_and_the_last_one_counts(answer: str, right: bool) -> None:
    assert value(Numeric(10.0, "m/s"), answer) == right


def test_tolerances_are_relative_or_absolute_whichever_is_greater() -> None:
    assert value(Numeric(100.0, relative=0.01), "100.9") == 1
    assert value(Numeric(100.0, relative=0.01), "101.2") == 0
    assert value(Numeric(0.0, absolute=0.5), "0.4") == 1


def test_temperatures_are_converted_with_their_zero() -> None:
    assert value(Numeric(25.0, "°C", relative=1e-3), "298.15 K") == 1
    assert value(Numeric(212.0, "°F", relative=1e-3), "100 °C") == 1


def test_a_missing_unit_may_be_allowed_and_a_wrong_one_never_is() -> None:
    assert value(Numeric(5.0, "kg", unit_required=False), "5") == 1
    assert value(Numeric(5.0, "kg", unit_required=False), "5 m") == 0
    assert value(Numeric(5.0, "kg", unit_required=False), "5000 g") == 1


NUMBERS = (
    ("–5", -5), ("−5", -5), ("‑5", -5), ("It is –5.", -5), ("3–5", 5), (r"\frac{1}{2}", 0.5), (r"\dfrac12", 0.5),
    (r"-\frac{3}{4}", -0.75), (r"\frac{-3}{4}", -0.75), (r"1\frac{1}{2}", 1.5), (r"$-1\tfrac12$", -1.5), ("1 1/2", 1.5),
    ("-1 1/2", -1.5), ("½", 0.5), ("2½", 2.5), ("x = ¾", 0.75), (r"1.5 \times 10^6", 1.5e6),
    (r"1.5 \times 10^{-6}", 1.5e-6),
    (r"$6.02 \cdot 10^{23}$", 6.02e23), ("1.5·10^3", 1500), ("1.5 × 10⁶", 1.5e6), ("10^6", 1e6), (r"10^{6}", 1e6),
    ("2^10", 1024), ("2**10", 1024), ("2⁵", 32), (r"12\,345", 12345), (r"12{,}345", 12345), (r"12,\!345", 12345),
    ("**73**", 73), (r"\boxed{73}", 73), (r"\(73\)", 73), (r"\text{13}", 13), (r"\$32", 32), ("7/2", 3.5), ("5!", 5),
    (r"\sqrt{25} = 5", 5), ("x^2 + 1 = 5", 5), ("x_1 = 5", 5), ("5 (see step 3)", 3),
)  # fmt: skip


@pytest.mark.parametrize(("answer", "number"), NUMBERS)
def test_a_number_is_read_as_a_whole_in_plain_text_and_in_latex(answer: str, number: float) -> None:
    assert value(Numeric(float(number)), answer) == 1


def test_no_rewriting_of_numbers_searches_white_space_without_bound() -> None:
    """Such a search takes quadratic time in an answer of 100,000 spaces, on the event loop."""
    assert units._REWRITTEN
    assert [written.pattern for written, _ in units._REWRITTEN if re.search(r"\\s[*+]", written.pattern)] == []


@pytest.mark.parametrize(
    ("answer", "unit", "number"),
    [
        (r"$5$ km", "km", 5),
        (r"5 \text{ km}", "km", 5),
        (r"25\%", "%", 25),
        (r"45^\circ", "°", 45),
        ("**5** km", "km", 5),
    ],
)
def test_a_unit_is_read_behind_a_number_in_latex(answer: str, unit: str, number: float) -> None:
    assert value(Numeric(float(number), unit), answer) == 1


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (r"\sqrt{2}", 2), ("√2", 2), (r"x^{\frac{1}{2}}", 0.5), (r"3\sqrt{2}", 3), (r"2\pi", 2), ("2π", 2),
        (r"\frac{\pi}{2}", 2), ("x^2", 2), ("x_1", 1), (r"\log_2 8", 8), (r"\frac{x}{3}", 3), ("e^{-3}", -3),
        (r"\sin 2", 2),
    ],
)  # fmt: skip
def test_a_part_of_an_expression_is_not_read_as_its_number_and_the_evidence_says_so(answer: str, part: float) -> None:
    verdict = Numeric(float(part)).check(Attempt(answer=answer))
    assert verdict.value == 0
    assert "part of an expression" in verdict.evidence or "no number" in verdict.evidence


@pytest.mark.parametrize(
    "check",
    [
        Exact("sesame"),
        NormalizedMatch(["sesame", "open"]),
        Numeric(31337.0, "m"),
        Fields({"word": "sesame", "n": 31337}),
    ],
)
@pytest.mark.parametrize("answer", ["no", "12 m", "12 kg", '{"word": "x", "n": 1, "m": 2}'])
def test_what_is_expected_appears_in_no_evidence(check: Any, answer: str) -> None:
    verdict = check.check(Attempt(answer=answer))
    assert verdict.value < 1
    assert "sesame" not in verdict.evidence
    assert "31337" not in verdict.evidence


@given(st.text())
def test_any_text_can_be_searched_for_numbers(text: str) -> None:
    assert all(math.isfinite(found.value) for found in read_quantities(text))


@given(st.floats(-1e12, 1e12, allow_nan=False), st.sampled_from(["m", "km/h", "kg*m^2/s^2", "°C", "%", "MB", "µs"]))
def test_a_number_written_with_a_unit_is_read_back(number: float, unit: str) -> None:
    assert value(Numeric(number, unit, relative=1e-6), f"x = {number!r} {unit}") == 1


@pytest.mark.parametrize("text", ["furlong", "m//s", "m^x", "k", "", "m" * 50, "1"])
def test_what_is_no_unit_is_not_taken_for_one(text: str) -> None:
    assert read_unit(text) is None
    if text:
        with pytest.raises(AuthoringError, match="no unit known here"):
            Numeric(1.0, text)


@pytest.mark.parametrize(
    ("expected", "wrong", "right"),
    [
        ("A", ["", "The", "!!!", "an"], ["a", "(A)", "A."]),
        ("5", ["-5", "5.0", "5%"], ["5", "5.", "(5)", "“5”"]),
        ("-5", ["5", "3-5"], ["-5", "−5", " -5."]),
        ("1/2", ["1.2", "12", "1 2"], ["1/2", "1/2."]),
        ("C#", ["C"], ["c#", "C#!"]),
        ("the end", ["", "the"], ["End", "an end"]),
        ("2020-05-01", ["20200501"], ["2020 05 01"]),
    ],
)
def test_what_distinguishes_answers_is_not_punctuation(expected: str, wrong: list[str], right: list[str]) -> None:
    assert [value(NormalizedMatch(expected), answer) for answer in wrong] == [0] * len(wrong)
    assert [value(NormalizedMatch(expected), answer) for answer in right] == [1] * len(right)


def test_of_endless_marks_few_are_left_to_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unicode's normal forms sort the marks of one letter, which takes quadratic time."""
    sorted_texts: list[str] = []
    original = unicodedata.normalize

    def normalize(form: Any, text: str) -> str:
        sorted_texts.append(text)
        return original(form, text)

    monkeypatch.setattr("ludus.server.rewards.text.unicodedata.normalize", normalize)
    assert value(NormalizedMatch("x"), "x" + "\u0300\u0316" * 49_000) == 0
    assert max(map(len, sorted_texts)) < 100


def test_patterns_are_found_or_must_be_absent() -> None:
    assert value(Pattern(r"\bsorry\b", ignore_case=True), "I am Sorry") == 1
    assert value(Pattern(r"\bsorry\b", present=False), "I am sorry") == 0
    assert value(Pattern(r"\d{3}", whole=True), " 123 ") == 1
    assert value(Pattern(r"\d{3}", whole=True), "1234") == 0
    with pytest.raises(AuthoringError, match="no regular expression"):
        Pattern("(")


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("whole", [True, False])
async def test_an_answer_that_a_pattern_searches_forever_earns_nothing_and_stalls_no_other(
    present: bool, whole: bool
) -> None:
    check = Pattern(r"^(a|aa)+$", present=present, whole=whole, seconds=0.5)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    other = asyncio.create_task(tick())
    reward = await Rubric([check]).score(Attempt(answer="a" * 400 + "!"))
    other.cancel()
    assert reward.value == 0
    assert "longer than 0.5 s" in str(reward.components)
    assert ticks > 1


def test_what_others_compute_is_no_time_of_a_search() -> None:
    """`regex` counts the time of all threads: three searches end before this thread has used anything."""
    left = iter([0.5, 0.5, 0.5, 0.1, 0.0])
    given: list[float] = []

    def stall(timeout: float, concurrent: bool) -> None:
        given.append(timeout)
        raise TimeoutError

    with pytest.raises(TooLong):
        search_within(stall, lambda: next(left))
    assert given == [0.5, 1.0, 2.0, 0.1 * 8]


def test_a_text_that_a_schemas_pattern_searches_forever_is_not_accepted() -> None:
    check = JsonSchema({"type": "string", "pattern": r"^(a|aa)+$"}, seconds=0.5)
    assert value(check, json.dumps("aaa")) == 1
    assert value(check, json.dumps("abc")) == 0
    assert value(check, json.dumps("a" * 400 + "!")) == 0


@pytest.mark.parametrize(("pauses", "accepted"), [(0, True), (1, True), (2, False)])
def test_a_pause_of_the_machine_during_a_validation_refuses_neither_an_answer_nor_arguments(
    monkeypatch: pytest.MonkeyPatch, pauses: int, accepted: bool
) -> None:
    async def run(arguments: dict[str, Any], context: Any) -> str:
        return ""

    schema = {**SCHEMA, "minProperties": 1}  # which the quick check of plain schemas does not know
    judge, tool = JsonSchema(schema), SchemaTool("late", "A tool.", schema, run)
    clock = PausingClock(pauses)
    monkeypatch.setattr(schemas, "time", clock)
    assert value(judge, '{"n": 1}') == accepted
    clock.pauses = pauses
    with nullcontext() if accepted else pytest.raises(InvalidArguments, match="takes too long"):
        assert tool.arguments({"n": 1}) == {"arguments": {"n": 1}}


class PausingClock:
    """Processor time that jumps by an hour at every second reading, as often as there are pauses."""

    def __init__(self, pauses: int) -> None:
        self.pauses = pauses
        self._now = 0.0
        self._readings = 0

    def thread_time(self) -> float:
        self._readings += 1
        if self.pauses and self._readings % 2 == 0:
            self.pauses -= 1
            self._now += 3600
        return self._now


@pytest.mark.parametrize("check", [NormalizedMatch("x"), Numeric(1.0), Pattern("x")])
def test_an_endless_answer_earns_nothing_without_being_searched(check: Any) -> None:
    assert value(check, "x 1 " * 50_000) == 0


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ('{"n": 1}', True),
        ('Here it is:\n```json\n{"n": 1}\n```\nDone.', True),
        ('```\n{"n": 1}\n```\n```\n{"n": 2}\n```', False),
        ('{"n": "1"}', False),
        ('{"n": 1, "m": 2}', False),
        ('{"n": 1, "n": 2}', False),
        ('{"n": NaN}', False),
        ('{"n": 1e999}', False),
        ("[" * 5000, False),
        ("[" * 200 + "]" * 200, False),
        ('{"n": ' + "9" * 5000 + "}", False),
        ("", False),
    ],
)
def test_a_json_schema_judges_the_answer_or_its_only_block(answer: str, right: bool) -> None:
    assert value(JsonSchema(SCHEMA), answer) == right


def test_a_schema_that_is_none_is_refused_and_one_elsewhere_is_not_fetched() -> None:
    with pytest.raises(AuthoringError, match="not a JSON Schema"):
        JsonSchema({"type": "objekt"})
    remote = Rubric([JsonSchema({"$ref": "http://127.0.0.1:9/schema.json"})])
    assert asyncio.run(remote.score(Attempt(answer="1"))).value is None


def test_fields_earn_their_share_place_by_place() -> None:
    expected = {"name": "Ada", "born": {"year": 1815, "place": "London"}, "tags": ["a", "b"]}
    check = Fields(expected)
    assert value(check, json.dumps(expected)) == 1
    assert value(check, json.dumps({**expected, "tags": ["a", "c"]})) == 0.8
    assert value(check, json.dumps({**expected, "more": 1})) == pytest.approx(5 / 6)
    assert value(Fields(expected, extra_allowed=True), json.dumps({**expected, "more": 1})) == 1
    assert value(Fields(expected, ignore=["/born"]), json.dumps({"name": "Ada", "tags": ["a", "b"]})) == 1
    assert value(check, "{}") == 0
    assert value(check, "no JSON") == 0


def test_fields_tell_true_from_1_and_compare_numbers_within_a_tolerance() -> None:
    assert value(Fields({"a": True}), '{"a": 1}') == 0
    assert value(Fields({"a": 1}), '{"a": 1.0000000001}') == 1
    assert value(Fields({"a": None}), '{"a": 0}') == 0
    assert value(Fields({"a": "Ada L."}, normalized=True), '{"a": "ada l"}') == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_json_value_equals_itself_field_by_field(data: Any) -> None:
    assert value(Fields(data), json.dumps(data)) == 1


@given(JSON, st.text())
def test_any_text_is_judged_without_an_exception(data: Any, text: str) -> None:
    assert 0 <= value(Fields(data), text) <= 1


@given(st.text(alphabet='{}[]",:0123456789eE.-tfn`\n ', max_size=60))
@example("1E310")
def test_what_is_read_as_json_is_json(text: str) -> None:
    try:
        data = read_json(text)
    except NotJson:
        return
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize("text", ["```x\n", "```\n{", "<think>", "1,111", "9" * 50, "[", '{"a":'])
def test_no_text_keeps_a_check_busy_for_long(text: str) -> None:
    answer = text * (400_000 // len(text))
    for check in (Fields({"a": 1}), JsonSchema({}), Numeric(1.0, "m"), NormalizedMatch("x"), Exact("x")):
        assert value(check, answer) == 0
        assert value(check, answer[:90_000]) == 0
    assert code_of(Attempt(answer=answer))
    with pytest.raises(Unreadable):
        read_score(answer, Scale(), "c")


def test_blocks_are_found_between_their_fences() -> None:
    assert fenced("a\n```python\nx = 1\n\ny\n```\nb\n```\r\nz\r\n```  \n``` not one\n```\nopen") == [
        "x = 1\n\ny\n",
        "z\n",
    ]


# ── mathematics ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("expected", "answer", "right"),
    [
        ("1/2", r"The answer is $\frac{2}{4}$.", True),
        ("(x+1)^2", "$x^2+2x+1$", True),
        ("0.5", r"\boxed{\frac12}", True),
        ("7", "Either 6 or 8", False),
        ("7", "", False),
    ],
)
def test_mathematics_is_compared_by_what_it_means(expected: str, answer: str, right: bool) -> None:
    assert value(MathEqual(expected), answer) == right


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("endless", ["$9^{9^{9^{9^9}}}$", "$10^{10^{10}}$"])
async def test_an_answer_that_never_ends_earns_0_and_the_next_comparison_works(endless: str) -> None:
    hard = await Rubric([MathEqual("2", seconds=0.5)]).score(Attempt(answer=endless))
    assert hard.value == 0.0
    assert "took more than 0.5 s of processor time" in str(hard.components)
    assert (await Rubric([MathEqual("2", seconds=10.0)]).score(Attempt(answer="$1+1$"))).value == 1


@pytest.mark.parametrize("expected", ["", "$9^{9^{9^{9^9}}}$"], ids=["nothing", "endless"])
async def test_what_is_expected_cannot_be_the_answers_fault(expected: str) -> None:
    unread = await Rubric([MathEqual(expected, seconds=0.3)]).score(Attempt(answer="$1+1$"))
    assert unread.value is None
    assert "expected" in (unread.reason or "")


@pytest.mark.suite("breadth")
@pytest.mark.timeout(600)  # a longer run is a hang
def test_endless_answers_hold_up_no_other_and_processes_end_with_the_helper() -> None:
    """Slow answers wait for the slow lane; the honest ones that were asked after them need none of its places."""
    helper = Helper()
    order: list[str] = []

    def ask(kind: str, expected: str, answer: str, seconds: float) -> Any:
        reply = helper.ask(expected, answer, seconds)
        reply.add_done_callback(lambda _: order.append(kind))
        return reply

    hard = [ask("hard", "5", f"$9^{{9^{{9^9}}}}+{number}$", 1.0) for number in range(8)]
    plain = [ask("plain", str(number), f"${number}$", 10.0) for number in range(50)]
    assert all(one.result(600)["equal"] for one in plain)
    assert all(one.result(600) == {"gave_up": True} for one in hard), "and none of those is unscored"
    assert "hard" in order[-1:], "the honest ones did not wait for all of the slow ones"
    process = helper._process
    assert process is not None
    helper.close()
    assert process.returncode == 0


@pytest.mark.suite("breadth")
@pytest.mark.timeout(600)
def test_a_comparison_that_needs_more_than_the_quick_lane_gives_is_decided_in_the_slow_one() -> None:
    helper = Helper()
    long = " + ".join(f"\\sqrt{{{n}}} x^{n}" for n in range(2, 12))
    assert helper.ask(f"$({long})^6$", f"$({long})^5 ({long})$", 60.0).result(300) != {"gave_up": True}
    helper.close()


@pytest.mark.suite("breadth")
@pytest.mark.timeout(600)
def test_a_question_that_is_cancelled_frees_its_place() -> None:
    helper = Helper()
    hard = [helper.ask("5", f"$9^{{9^{{9^9}}}}+{number}$", 1e6) for number in range(6)]
    assert helper.ask("1", "$1$", 10.0).result(300)["equal"]
    assert all(one.cancel() for one in hard)
    last = helper.ask("5", "$9^{9^{9^9}}-1$", 0.5)
    assert last.result(300) == {"gave_up": True}, "six comparisons of 12 days each were before it"
    helper.close()


@pytest.mark.suite("breadth")
@pytest.mark.timeout(600)
def test_when_the_helper_for_mathematics_is_killed_the_answer_is_not_to_blame() -> None:
    helper = Helper()
    assert helper.ask("1", "$1$", 10.0).result(300)["equal"]
    assert helper._process is not None
    asked = helper.ask("5", "$9^{9^{9^9}}$", 1e6)
    assert helper.ask("3", "$3$", 10.0).result(300)["equal"], "the question before it has arrived, too"
    helper._process.kill()
    assert "error" in asked.result(300)
    assert helper.ask("2", "$2$", 10.0).result(300)["equal"]
    helper.close()


def test_without_the_extra_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(AuthoringError, match=r"pip install 'ludus-rl\[math\]'"):
        MathEqual("1")
