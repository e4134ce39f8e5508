"""Each grader of `dataset:` against a reference of its own: GSM8K's convention, SkyRL itself, sets, fractions."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from peer_clients import peer_variables, python_of
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.formats.dataset.choices import chosen_letter
from ludus.server.tasks.loading import load_environment
from ludus.testing import play

pytest.importorskip("pyarrow")

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(180)]

HERE = Path(__file__).parent


def write(folder: Path, rows: Sequence[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rewards_of(spec: str, plays: Sequence[tuple[int, str]]) -> list[float | None]:
    """The rewards of messages, each for the task at an index, from a server."""
    found: list[float | None] = []
    with play(load_environment(spec)) as served:
        for index, message in plays:
            episode = served.start(index=index)
            episode.answer(message)
            found.append(episode.reward)
    return found


def differences(
    spec: str, plays: Sequence[tuple[int, str]], expected: Callable[[int, str], float]
) -> list[tuple[int, str, float | None]]:
    """The messages whose reward is not the one of the reference; both rewards occur in it."""
    wanted = [expected(index, message) for index, message in plays]
    assert set(wanted) == {0.0, 1.0}
    got = rewards_of(spec, plays)
    return [(*one, value) for one, value, want in zip(plays, got, wanted, strict=True) if value != want]


def number_messages(rng: random.Random, number: int) -> list[str]:
    """Messages around a number, right and wrong ones, in and out of the form."""
    other = number + rng.choice((-10, -1, 1, 7))
    return [
        f"#### {number}", f"#### {number:,}", f"Thinking.\n#### {number}\n", f"#### ${number}", f"####{number}",
        f"#### {number}.", f"#### {number}.0", f"#### {other}", f"#### {other} #### {number}",
        f"#### {number} #### {other}", f"The answer is {number}.", "", "#### ", f"#### -{number}", f"#### {number}0",
        f"####  {number}", f"#### {number} dollars", f"### {number}",
    ]  # fmt: skip


def test_gsm8k_gives_the_scores_of_its_conventional_extraction(tmp_path: Path) -> None:
    rng = random.Random(1)
    numbers = [rng.randint(-50, 50) for _ in range(10)] + [rng.randint(1000, 10**6) for _ in range(10)]
    rows = [{"question": f"How many are {n}?", "answer": f"Work.\n#### {n:,}"} for n in numbers]
    plays = [
        (index, one) for index, number in enumerate(numbers) for one in rng.sample(number_messages(rng, number), 8)
    ]

    def extract(text: str) -> str | None:
        found = re.search(r"#### (\-?[0-9\.\,]+)", text)
        return found.group(1).strip().replace(",", "") if found else None

    def expected(index: int, message: str) -> float:
        gold = extract(str(rows[index]["answer"]))
        return float(gold is not None and extract(message) == gold)

    assert len(plays) == 160
    assert differences(f"dataset:{write(tmp_path, rows)}", plays, expected) == []


def test_skyrl_rows_earn_what_skyrls_own_environment_gives(tmp_path: Path) -> None:
    python = python_of("learners")
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    rng = random.Random(2)
    truths = [str(rng.randint(-99, 10**5)) for _ in range(18)] + ["3.5", "-7"]
    rows = [
        {
            "data_source": "golden",
            "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Question {n}?"}],
            "env_class": "gsm8k",
            "reward_spec": {"method": "rule", "ground_truth": truth},
            "extra_info": {"answer": truth, "index": n},
        }
        for n, truth in enumerate(truths)
    ]
    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=7)
    plays = [
        (index, message)
        for index, truth in enumerate(truths)
        for message in (*rng.sample(number_messages(rng, int(float(truth.replace(",", "")))), 8), f"#### {truth}")
    ]
    done = subprocess.run(
        [python, str(HERE / "peers" / "dataset_golden.py")],
        input=json.dumps([[rows[index], message] for index, message in plays]),
        capture_output=True, text=True, check=False, env=peer_variables(), timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = rewards_of(f"dataset:{path}", plays)
    assert len(plays) == 180
    assert set(theirs) == {0.0, 1.0}
    assert [(*one, a, b) for one, a, b in zip(plays, ours, theirs, strict=True) if a != b] == []


def test_exact_and_normalized_give_the_scores_of_their_definitions(tmp_path: Path) -> None:
    words = ["Lima", "the Nile", "New Delhi", "Été", "C#", "3.5 km"]
    rows: list[dict[str, Any]] = [{"question": f"Q{n}?", "answer": words[n % len(words)]} for n in range(16)]
    rows += [{"question": f"Several {n}?", "answer": ["Bern", "Berne", f"city {n}"]} for n in range(4)]
    plays = []
    for index, row in enumerate(rows):
        one = row["answer"] if isinstance(row["answer"], str) else row["answer"][-1]
        forms = (one, f"  {one}\n", one.upper(), f"{one}.", f'"{one}"', f"It is {one}", "Lima or Bern", "", one[:-1])
        plays += [(index, form) for form in forms]
    path = write(tmp_path, rows)

    def accepted(index: int) -> list[str]:
        answer = rows[index]["answer"]
        return [answer] if isinstance(answer, str) else list(answer)

    def plain(text: str) -> str:
        return " ".join(word for word in text.casefold().strip(' ".\n').split() if word != "the")

    exact = differences(f"dataset:{path}#grader=exact", plays, lambda i, said: float(said.strip() in accepted(i)))
    assert exact == []
    normalized = differences(
        f"dataset:{path}#grader=normalized", plays, lambda i, said: float(plain(said) in map(plain, accepted(i)))
    )
    assert normalized == []


def test_numeric_gives_the_scores_of_exact_arithmetic(tmp_path: Path) -> None:
    rng = random.Random(3)
    values = [Fraction(rng.randint(-9999, 9999), rng.choice((1, 2, 4, 5, 8))) for _ in range(20)]
    answers: list[Any] = [f"{v.numerator}/{v.denominator}" if n % 2 else float(v) for n, v in enumerate(values)]
    path = write(tmp_path, [{"question": "?", "answer": answer} for answer in answers])
    plays: list[tuple[int, str]] = []
    meant: dict[tuple[int, str], Fraction | None] = {}
    for index, value in enumerate(values):
        said: dict[str, Fraction | None] = {
            f"{float(value)}": value, f"It is {value.numerator}/{value.denominator}": value, f"{float(value):,}": value,
            f"First 12, then {float(value)}": value, f"{float(value)} or {float(value + 1)}": value + 1,
            f"{float(value + 1)}": value + 1, f"{float(-value)}": -value, "none": None, "": None,
            f"{float(value * 100)}e-2": value,
        }  # fmt: skip
        for text, number in said.items():
            plays.append((index, text))
            meant[index, text] = number

    def expected(index: int, text: str) -> float:
        number = meant[index, text]
        return float(number is not None and abs(number - values[index]) <= abs(values[index]) / 10**6)

    assert differences(f"dataset:{path}#grader=numeric", plays, expected) == []


def test_math_gives_the_scores_of_exact_fractions(tmp_path: Path) -> None:
    rng = random.Random(4)
    values = [Fraction(rng.randint(1, 60), rng.randint(2, 9)) for _ in range(20)]
    path = write(tmp_path, [{"question": "?", "answer": rf"\frac{{{v.numerator}}}{{{v.denominator}}}"} for v in values])
    plays: list[tuple[int, str]] = []
    for index, value in enumerate(values):
        n, d = value.numerator, value.denominator
        said = (rf"\boxed{{\frac{{{2 * n}}}{{{2 * d}}}}}", f"So it is $\\boxed{{{n}/{d}}}$.", rf"\boxed{{{n + d}/{d}}}",
                rf"\boxed{{-\frac{{{n}}}{{{d}}}}}", "I do not know.")  # fmt: skip
        plays += [(index, one) for one in said]

    def expected(index: int, message: str) -> float:
        found = re.search(r"boxed\{(-?)(?:\\frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))\}", message)
        if found is None:
            return 0.0
        number = Fraction(int(found[2] or found[4]), int(found[3] or found[5])) * (-1 if found[1] else 1)
        return float(number == values[index])

    assert differences(f"dataset:{path}#grader=math", plays, expected) == []


def test_choice_gives_the_scores_of_the_letters_that_messages_name(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows: list[dict[str, Any]] = []
    for n in range(24):
        texts = rng.sample(["Oslo", "Rome", "Paris", "Bern", "Cairo", "Quito", "Accra"], 4)
        right = rng.randrange(4)
        form = (right, "ABCD"[right], texts[right])[n % 3]
        rows.append({"question": f"Q{n}?", "choices": texts, "answer": form, "right": right})
    path = write(tmp_path, rows)
    plays: list[tuple[int, str]] = []
    meant: dict[tuple[int, str], str | None] = {}
    for index, row in enumerate(rows):
        for at in (row["right"], (row["right"] + 1) % 4):
            letter, text, other = "ABCD"[at], row["choices"][at], "ABCD"[(at + 2) % 4]
            for message in (
                letter, letter.lower(), f"({letter})", f"{letter}.", f"**{letter}**", f"Answer: {letter}", text,
                f"The answer is ({letter}).", f"**Answer:** {letter}", f"{letter}. {text}", f"{text}.",
                f"I think so.\n{letter}) {text}", rf"Thus \boxed{{{letter}}}.", rf"\boxed{{\text{{{letter}}}}}",
                f"Answer: {other}. No: the correct answer is {letter}", f"{other} is wrong. Answer: {letter}",
                f"The answer is option {letter} because {other} is wrong.", f"Answer: {letter.lower()}",
                f"Answer: {text}", f"Answer:\n{letter}", f"**Answer:**\n\n({letter})", f"The answer is {text}.",
                f"I choose {letter}.", rf"\boxed{{{letter.lower()}}}", rf"\boxed{{{letter}. {text}}}",
                f"Answer: {letter} ({text})", rf"\boxed{{{text}}}", f"The capital of that country is {text}.",
                f"Answer: {letter}, not {other}",
            ):  # fmt: skip
                plays.append((index, message))
                meant[index, message] = letter
        for message in (
            "", "I do not know", "Answer: none", "It is a bad question", "Z", "ABCD", "Answer: B and C",
            "Answer: B or C", "Answer: A, B", "Answer: (A) or (D)", r"\boxed{A} or \boxed{B}", r"\boxed{A, C}",
            "The answer is not B.", "B/C", "Answer: a bad one", "Answer:",
        ):  # fmt: skip
            plays.append((index, message))
            meant[index, message] = None
    choices: list[dict[str, str]] = [dict(zip("ABCD", row["choices"], strict=True)) for row in rows]
    assert [(one, letter) for one, letter in meant.items() if chosen_letter(one[1], choices[one[0]]) != letter] == []
    assert len(meant) > 800
    plays = rng.sample(plays, 160)

    def expected(index: int, message: str) -> float:
        return float(meant[index, message] == "ABCD"[rows[index]["right"]])

    assert differences(f"dataset:{path}", plays, expected) == []


def test_checklist_gives_the_share_of_items_that_its_patterns_meet(tmp_path: Path) -> None:
    patterns = {"greets": r"(?i)\bhello\b", "short": r"^.{0,40}$", "signs": r"Ludus$"}
    items = [{"id": name, "check": "pattern", "arguments": {"pattern": text}} for name, text in patterns.items()]
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"name": "mail", "version": "1", "items": items}), encoding="utf-8")
    path = write(tmp_path, [{"prompt": f"Write mail {n}."} for n in range(20)])
    said = ["Hello, Ludus", "Good day", "hello " * 20, "x" * 90 + "Ludus", "", "Yours, Ludus"]
    plays = [(index, one) for index in range(20) for one in said]
    got = rewards_of(f"dataset:{path}#grader=checklist,checklist={file}", plays)
    met = [sum(re.search(pattern, one) is not None for pattern in patterns.values()) / 3 for _, one in plays]
    assert got == pytest.approx(met)


@NEEDS_BUBBLEWRAP
def test_programs_are_run_in_a_sandbox_and_earn_the_share_of_their_tests(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for n in range(10):
        pairs = {"inputs": [f"{k}\n" for k in range(4)], "outputs": [f"{k * n}\n" for k in range(4)]}
        rows.append({"problem": f"Times {n}.", "tests": json.dumps(pairs)})
        calls = [{"arguments": [k], "returns": k + n} for k in range(4)]
        rows.append({"problem": f"Plus {n}.", "tests": calls, "entry_point": "plus"})
    rows[0]["entry_point"] = "unused"
    plays: list[tuple[int, str]] = []
    wanted: list[float] = []
    for index in range(20):
        n, function = divmod(index, 2)
        right = f"def plus(k):\n    return k + {n}" if function else f"print(int(input()) * {n})"
        half = f"def plus(k):\n    return k + {n} if k < 2 else None" if function else (
            f"k = int(input())\nprint(k * {n} if k < 2 else 'no')"
        )  # fmt: skip
        plays += [(index, f"Here:\n```python\n{right}\n```\n"), (index, half)]
        wanted += [1.0, 0.5]
    plays += [(0, "```python\nimport os\nos._exit(0)\n```"), (1, "import os\nos._exit(0)"), (1, "I cannot.")]
    wanted += [0.0, 0.0, 0.0]
    path = write(tmp_path, rows)
    assert rewards_of(f"dataset:{path}#grader=code", plays) == wanted
    whole = rewards_of(f"dataset:{path}#grader=code,all_or_nothing=true", plays[:4])
    assert whole == [1.0, 0.0, 1.0, 0.0]
