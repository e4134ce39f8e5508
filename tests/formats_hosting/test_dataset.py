"""`dataset:`: files and folders of every kind become tasks; what is missing or wrong is named with its place."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT, peer_variables, python_of

from ludus.protocol.content import text_of
from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.server import Environment, Split
from ludus.server.tasks.catalog import publish
from ludus.server.tasks.loading import load_environment
from ludus.testing import play

pytestmark = pytest.mark.timeout(120)

EXAMPLES = ROOT / "examples" / "formats" / "dataset"
EXAMPLE_SPECS = {
    "capitals.jsonl#grader=normalized": {"train": 10},
    "conversions.csv#grader=numeric": {"train": 10},
    "word-problems": {"train": 10, "test": 2},
    "planets.parquet": {"train": 10},
    "skyrl.parquet": {"train": 10},
    "algebra#grader=math": {"train": 8, "test": 2},
    "programs.jsonl#grader=code,solution=reference": {"train": 10},
}


def write(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def load(path: Path | str, options: str = "") -> Any:
    return load_environment(f"dataset:{path}{'#' if options else ''}{options}")


def tasks_of(cls: type[Environment[Any]]) -> dict[str, list[Any]]:
    return {name: [split.get(index) for index in range(split.count or 0)] for name, split in splits_of(cls).items()}


def splits_of(cls: type[Environment[Any]]) -> Mapping[str, Split[Any]]:
    return cls.splits  # type: ignore[return-value]


def refused(path: Path | str, options: str = "") -> str:
    with pytest.raises(AuthoringError) as caught:
        load(path, options)
    return caught.value.message


def rows(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {n} + 1?", "answer": str(n + 1), "key": f"k{n}"} for n in range(count)]


# ── what is served ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("formats", first=3)
@pytest.mark.parametrize("spec", EXAMPLE_SPECS)
def test_examples_have_ten_tasks_that_their_oracle_solves(spec: str) -> None:
    if "parquet" in spec or "algebra" in spec:
        pytest.importorskip("pyarrow")
    cls = load_environment(f"dataset:{EXAMPLES / spec}")
    assert {name: split.count for name, split in splits_of(cls).items()} == EXAMPLE_SPECS[spec]
    with play(cls) as served:
        for name, split in splits_of(cls).items():
            assert split.count is not None
            assert [served.oracle(index=index, split=name).reward for index in range(split.count)] == [
                1.0
            ] * split.count


def test_the_same_rows_make_the_same_tasks_in_every_format(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    given = [*rows(150), {"question": 'Two\n"lines", é', "answer": "x,y", "key": "last"}]
    write(tmp_path / "a.jsonl", *given[:70], "", *given[70:])
    for name, delimiter in (("b.csv", ","), ("c.tsv", "\t")):
        with (tmp_path / name).open("w", encoding="utf-8-sig", newline="") as file:
            table = csv.DictWriter(file, list(given[0]), delimiter=delimiter)
            table.writeheader()
            table.writerows(given)
    parquet.write_table(pyarrow.Table.from_pylist(given), tmp_path / "d.parquet", row_group_size=40)
    with pyarrow.ipc.new_stream(str(tmp_path / "e.arrow"), pyarrow.Table.from_pylist(given).schema) as stream:
        stream.write_table(pyarrow.Table.from_pylist(given), max_chunksize=32)
    made = [tasks_of(load(path, "grader=exact,id=key")) for path in sorted(tmp_path.iterdir())]
    assert len(made) == 5
    assert all(one == made[0] for one in made)
    assert [(task.id, task.answer) for task in made[0]["train"]] == [(row["key"], row["answer"]) for row in given]
    order = random.Random(0).sample(range(151), 151)
    for path in sorted(tmp_path.iterdir()):  # any order of access gives the same rows
        split = splits_of(load(path, "grader=exact,id=key"))["train"]
        assert [split.get(index).id for index in order] == [given[index]["key"] for index in order]
        assert split.find("last")[0] == 150
        with pytest.raises(KeyError):
            split.find("k999")


def test_datasets_saved_by_hugging_face_are_read_as_its_own_package_reads_them(tmp_path: Path) -> None:
    python = python_of("learners")
    pytest.importorskip("pyarrow")
    program = """
import json, sys
import datasets
whole = datasets.Dataset.from_list([
    {"question": f"Q{n}", "choices": ["x", "y", f"z{n}"], "answer": n % 3} for n in range(100)
], features=datasets.Features({"question": datasets.Value("string"),
    "choices": datasets.Sequence(datasets.Value("string")),
    "answer": datasets.ClassLabel(names=["A", "B", "C"])}))
parts = datasets.DatasetDict({"train": whole.shuffle(seed=1).select(range(80)), "validation": whole.select([3, 99])})
parts.save_to_disk(sys.argv[1] + "/both", num_shards={"train": 3, "validation": 1})
parts["validation"].save_to_disk(sys.argv[1] + "/one")
print(json.dumps({name: list(part) for name, part in datasets.load_from_disk(sys.argv[1] + "/both").items()}))
"""
    done = subprocess.run(
        [python, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False, env=peer_variables()
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    made = tasks_of(load(tmp_path / "both"))
    assert list(made) == ["train", "validation"]
    for name, part in theirs.items():
        assert [(list(task.choices.values()), task.answer) for task in made[name]] == [
            (row["choices"], "ABC"[row["answer"]]) for row in part
        ]
        assert all(row["question"] in task.prompt for row, task in zip(part, made[name], strict=True))
    assert [task.answer for task in tasks_of(load(tmp_path / "one"))["train"]] == ["A", "A"]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train.jsonl", "test.jsonl"], {"train": 3, "test": 3}),
        (["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "dev.jsonl"], {"train": 6, "dev": 3}),
        (["math_test.jsonl", "math_train.jsonl"], {"train": 3, "test": 3}),
        (["train/a.jsonl", "train/b.jsonl", "validation/a.jsonl"], {"train": 6, "validation": 3}),
        (["data/train-00000-of-00001.jsonl", "data/test-00000-of-00001.jsonl"], {"train": 3, "test": 3}),
        (["questions.jsonl"], {"train": 3}),
    ],
)
def test_splits_are_found_by_the_names_of_files_and_folders(
    tmp_path: Path, names: list[str], splits: dict[str, int]
) -> None:
    for name in names:
        write(tmp_path / name, *rows(3))
    cls = load(tmp_path, "grader=exact")
    assert {name: split.count for name, split in splits_of(cls).items()} == splits
    assert "Tasks: " + ", ".join(f"{name} {count}" for name, count in splits.items()) in (cls.__doc__ or "")


def test_a_share_of_the_tasks_becomes_the_test_split_by_a_hash_of_their_ids(tmp_path: Path) -> None:
    given = rows(400)
    path = write(tmp_path / "all.jsonl", *given)
    options = "grader=exact,id=key,test_fraction=0.25"
    made = tasks_of(load(path, options))
    assert 70 < len(made["test"]) < 130
    assert len(made["train"]) + len(made["test"]) == 400
    tested = {task.id for task in made["test"]}
    random.Random(0).shuffle(given)
    again = tasks_of(load(write(tmp_path / "more.jsonl", *given, *rows(450)[400:]), options))
    assert tested == {task.id for task in again["test"]} - {f"k{n}" for n in range(400, 450)}


def test_a_column_divides_the_rows_into_splits(tmp_path: Path) -> None:
    given = [{**row, "split": ("train", "test", "hard")[n % 3]} for n, row in enumerate(rows(30))]
    path = write(tmp_path / "all.jsonl", *given)
    assert "the name of the split 'hard' does not show its type; say it with split_types=" in refused(
        path, "grader=exact"
    )
    cls = load(path, 'grader=exact,split_types={"hard":"validation"}')
    assert [(name, split.type, split.count) for name, split in splits_of(cls).items()] == [
        ("train", "train", 10), ("hard", "validation", 10), ("test", "test", 10)
    ]  # fmt: skip
    split = splits_of(cls)["test"]
    assert split.find("row-4") == (1, split.get(1))
    with pytest.raises(KeyError):
        split.find("row-3")
    assert splits_of(load(path, "grader=exact,split="))["train"].count == 30


def test_templates_systems_and_messages_make_the_prompt(tmp_path: Path) -> None:
    row = {"topic": "sums", "question": "1+1?", "answer": "2", "system": "Be brief.", "options": ["1", "2"]}
    chat = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "?"},
    ]
    path = write(tmp_path / "a.jsonl", row)
    options = "grader=choice,answer_as=text,template=About {topic} {{ }}: {question}%2C\n{options}"
    with play(load(path, options)) as served:
        messages = served.start().remote.prompt
        assert [(one.role, text_of(one.content)) for one in messages] == [
            ("system", "Be brief."), ("user", "About sums { }: 1+1?,\nA. 1\nB. 2")
        ]  # fmt: skip
    with play(load(write(tmp_path / "b.jsonl", {"messages": chat, "answer": "2"}), "grader=exact")) as served:
        messages = served.start().remote.prompt
        assert [{"role": one.role, "content": text_of(one.content)} for one in messages] == chat


def test_answers_reach_neither_the_catalog_nor_the_agent(tmp_path: Path) -> None:
    given = [{"question": f"Q{n}?", "answer": f"secret-{n}", "key": "s", "level": n % 2} for n in range(5)]
    cls = load(write(tmp_path / "a.jsonl", *given), "grader=exact,solution=key")
    published = publish(cls.name, cls)
    shown = [str(published.info.model_dump()), repr(cls.splits["train"].get(0))]
    for index in range(5):
        task = published.split("train").get(index)
        row = published.row("train", index, task)
        assert row.fields["level"] == index % 2
        shown += [row.model_dump_json(), task.model_dump_json(), repr(task)]
    with play(cls) as served:
        episode = served.start()
        episode.answer("wrong")
        shown += [episode.prompt, str(episode.components)]
    assert [one for one in shown if "secret" in one] == []


def test_the_description_says_what_was_found_and_the_version_changes_with_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", *rows(3))
    cls = load(path, "grader=exact")
    assert "prompt 'question' (found); answer 'answer' (found)" in cls.__doc__
    assert "graded by exact." in cls.__doc__
    assert (cls.name, cls.version) == ("sums", load(path, "grader=exact").version)
    versions = {cls.version, load(path, "grader=numeric").version}
    write(path, *rows(4))
    versions.add(load(path, "grader=exact").version)
    assert len(versions) == 3
    assert load(path, "grader=exact,name=mine").name == "mine"


# ── how much is held ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("formats")
def test_large_files_are_read_one_part_at_a_time(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    filler = "x" * 20_000
    size = 64 * 20_000 * 30
    path = tmp_path / "large.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for n in range(64 * 30):
            file.write(json.dumps({"question": f"Q{n} {filler}", "answer": str(n), "id": f"i{n}"}) + "\n")
    large = tmp_path / "large.parquet"
    texts, numbers = [random.randbytes(10_000).hex() for _ in range(4000)], [str(n) for n in range(4000)]
    whole = pyarrow.table({"question": texts, "answer": numbers})
    parquet.write_table(whole, large, row_group_size=4000, compression=None)  # one row group of 80 MB
    del texts, whole
    assert path.stat().st_size > size
    assert large.stat().st_size > 2 * size
    for one in (path, large):
        tracemalloc.start()
        before = pyarrow.total_allocated_bytes()
        split = splits_of(load(one, "grader=exact"))["train"]
        order = random.Random(0).sample(range(64 * 30), 40)
        assert [split.get(index).answer for index in order] == [str(index) for index in order]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        held = pyarrow.total_allocated_bytes() - before
        assert peak < size / 3, f"{one.name}: {peak} bytes at once"
        assert held < size, f"{one.name}: {held} bytes of Arrow"


def test_the_index_of_ids_holds_sixteen_bytes_for_each_row() -> None:
    from ludus.formats.dataset.rows import IdIndex

    index = IdIndex()
    tracemalloc.start()
    for n in range(20_000):
        index.add(f"a rather long id of a task, number {n}", n)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20_000 * 24
    assert list(index.candidates("a rather long id of a task, number 777")) == [777]
    assert list(index.repeated()) == []


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = {"question": "1+1?", "answer": "2", "id": "one"}


@pytest.mark.parametrize(
    ("bad", "options", "said"),
    [
        ("{", "grader=exact", "line 3: it is no JSON object"),
        ("[1]", "grader=exact", "line 3: it is no JSON object but list"),
        ('{"question": NaN, "answer": "2", "id": "x"}', "grader=exact", "line 3: it is no JSON object: NaN"),
        ('{"question": "q", "answer": 1e999, "id": "x"}', "grader=numeric", "line 3: it is no JSON object: 1e999"),
        ({"question": "q", "id": "x"}, "grader=exact", "line 3: it has no 'answer'"),
        ({"answer": "q", "id": "x"}, "grader=exact", "line 3: it has no 'question'"),
        ({"question": "q", "answer": " ", "id": "x"}, "grader=exact", "line 3: its 'answer' is empty"),
        ({"question": " ", "answer": "2", "id": "x"}, "grader=exact", "line 3: its 'question' is empty"),
        ({"question": "q", "answer": "2", "id": "one"}, "grader=exact",
         "line 3: its id 'one' is also the id of bad.jsonl, line 1"),
        ({"question": "q", "answer": "2", "id": 1.5}, "grader=exact", "line 3: its 'id' must be a text"),
        ({"question": "q", "answer": True, "id": "x"}, "grader=exact", "line 3: its answer must be text, not bool"),
        ({"question": "q", "answer": "nan", "id": "x"}, "grader=numeric", "line 3: its answer 'nan' is no number"),
        ({"question": "q", "answer": "2 or 3", "id": "x"}, "grader=numeric",
         "line 3: its answer '2 or 3' is no number"),
        ({"question": "q", "answer": "2", "id": "x"}, "grader=gsm8k", "line 1: its answer has no number after ####"),
        ({"question": "q\ud800", "answer": "2", "id": "x"}, "grader=exact", "line 3: its prompt holds what is not"),
        ({"question": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "2"}],
          "answer": "2", "id": "x"},
         "grader=exact", "line 3: its 'question' ends with a message of the assistant"),
        ({"question": [{"from": "human", "value": "q"}], "answer": "2", "id": "x"}, "grader=exact",
         "a message has a role"),
        ({"question": "q", "answer": "assert f(1)", "id": "x"}, "grader=code,answer=answer",
         "line 1: its tests must be"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_its_file_and_line(tmp_path: Path, bad: Any, options: str, said: str) -> None:
    assert said in refused(write(tmp_path / "bad.jsonl", GOOD, "", bad), options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("question,answer\na,b\nc\n", "bad.csv, line 3: it has 1 values, and there are 2 columns"),
        ('question,answer\na,b\n"c\nd,e\n', "bad.csv, line 3: it is no CSV"),
        ("question,answer,answer\na,b,c\n", "bad.csv, line 1: two columns are named 'answer'"),
        ("question,answer\n", "bad.csv has no rows"),
        ("", "bad.csv is empty"),
        ("question,answer\na,\xff\n", "bad.csv, line 2: it is not UTF-8"),
        ('question,answer\n"a\nb",c\nd, \n', "bad.csv, line 4: its 'answer' is empty"),
    ],
)
def test_a_bad_csv_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    assert said in refused(path, "grader=exact")


def test_a_bad_parquet_row_is_named_with_its_number(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bad.parquet"
    values = [1.0, float("nan"), None]
    parquet.write_table(pyarrow.table({"question": ["a", "b", "c"], "answer": values}), path)
    assert refused(path, "grader=numeric") == "bad.parquet, row 2: its answer nan is no finite number"
    path.write_bytes(b"PAR1 and no more")
    assert "bad.parquet cannot be read as Parquet" in refused(path, "grader=numeric")
    skyrl = {"prompt": [{"role": "user", "content": "q"}], "env_class": "search", "reward_spec": {"ground_truth": "1"}}
    parquet.write_table(pyarrow.Table.from_pylist([skyrl]), path)
    assert "bad.parquet, row 1: its env_class is 'search'; only 'gsm8k'" in refused(path)


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"q": "1?", "a": "2"}, "grader=exact,prompt=q",
         "hold the answer; its columns are: q, a; name it with answer=COLUMN"),
        ({"q": "1?", "a": "2"}, "grader=exact,answer=a",
         "hold the prompt; its columns are: q, a; name it with prompt=COLUMN"),
        ({"question": "1?", "prompt": "1?", "answer": "2"}, "grader=exact",
         "several columns that may hold the prompt: question, prompt; choose one with prompt=question"),
        ({"question": "1?", "answer": "2", "solution": "2"}, "grader=exact", "choose one with answer=answer"),
        ({"question": "1?", "answer": "2"}, "", "say it with grader=exact, normalized"),
        ({"question": "1?", "answer": "2"}, "grader=exact,id=questoin",
         "no column 'questoin', which the option 'id' names; did you mean 'question'?"),
        ({"question": "1?", "answer": "2"}, "grader=exact,template={questoin}",
         "did you mean 'question'?; the columns are: question, answer"),
        ({"question": "1?", "answer": "2"}, "grader=exact,template={answer}", "would show the agent the answer"),
        ({"question": "1?", "answer": "2"}, "grader=exact,show=answer", "would show the agent the answer"),
        ({"question": "1?", "answer": "2"}, "grader=exact,template={", "the template cannot be read"),
        ({"question": "1?", "answer": "2"}, "grader=right", "option grader"),
        ({"question": "1?", "answer": "2"}, "graders=exact", "has no option 'graders'; did you mean 'grader'?"),
        ({"question": "1?", "answer": "2"}, "grader=choice", "hold the choices"),
        ({"question": "1?", "answer": "2"}, "grader=checklist", "checklist=FILE"),
        ({"question": "1?", "answer": "2"}, "grader=exact,function=f", "goes with grader=code"),
        ({"question": "1?", "answer": "2"}, "grader=exact,test_fraction=0.000001", "puts all 1 tasks into 'train'"),
        ({"question": "1?", "answer": "1", "choices": ["1", "2"]}, "",
         "say which with answer_as=index or answer_as=text"),
        ({"question": "1?", "answer": "3", "choices": ["1", "2"]}, "", "is no letter, number or text of its choices"),
    ],
)  # fmt: skip
def test_what_is_missing_or_ambiguous_is_named_with_the_option_to_give(
    tmp_path: Path, row: dict[str, Any], options: str, said: str
) -> None:
    assert said in refused(write(tmp_path / "a.jsonl", row), options)


def test_a_wrong_target_is_named(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", *rows(2))
    with pytest.raises(EnvironmentNotFound, match=r"did you mean .*train\.jsonl"):
        load(tmp_path / "tran.jsonl", "grader=exact")
    (tmp_path / "empty").mkdir()
    assert "holds no data" in refused(tmp_path / "empty")
    assert "has no format that is known here" in refused(write(tmp_path / "a.txt", "x"))
    write(tmp_path / "train.csv", "question,answer", "a,b")
    assert "in several formats (train.csv, train.jsonl); name one file" in refused(tmp_path, "grader=exact")
    (tmp_path / "hub").mkdir()
    write(tmp_path / "hub" / "main" / "train.jsonl", *rows(1))
    assert "'main' is not the name of a split; name one folder" in refused(tmp_path / "hub", "grader=exact")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    command = "which needs the package pyarrow; install it with: pip install 'ludus-rl[datasets]'"
    assert refused(EXAMPLES / "planets.parquet") == f"planets.parquet is a Parquet file, {command}"
    assert command in refused(EXAMPLES / "algebra", "grader=math")
    load(EXAMPLES / "word-problems")  # text files need nothing


def test_a_file_that_changes_while_it_is_served_is_refused_and_not_misread(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *rows(3))
    split = splits_of(load(path, "grader=exact"))["train"]
    assert split.get(1).answer == "2"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(rows(1)[0]) + "\n")
    with pytest.raises(AuthoringError, match=r"a\.jsonl has changed since it was read; start the server again"):
        split.get(1)
