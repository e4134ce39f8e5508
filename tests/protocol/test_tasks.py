"""Private fields never leave: not in any dump, at any depth, in any form."""

from __future__ import annotations

import json
import pickle
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from ludus.protocol import Private, Task

SECRET = "the-answer-is-forty-two"


class Plain(Task):
    question: str
    answer: Private[str]


class Inner(BaseModel):
    shown: int = 1
    hidden: Private[str] = SECRET


class Deep(Task):
    inner: Inner
    many: list[Inner]
    by_name: dict[str, Inner]
    either: Inner | None = None
    pair: tuple[Inner, Inner]
    answer: Private[Inner] = Inner()


class Child(Plain):
    extra: Private[list[str]] = [SECRET]


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


PLAIN = Plain(id="p", question="?", answer=SECRET)
DEEP = Deep(id="d", inner=Inner(), many=[Inner()], by_name={"x": Inner()}, either=Inner(), pair=(Inner(), Inner()))
CHILD = Child(id="c", question="?", answer=SECRET)


@pytest.mark.requirement("CRED-12")
@pytest.mark.parametrize("task", [PLAIN, DEEP, CHILD], ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("mode", ["json", "python"])
@pytest.mark.parametrize("options", [{}, {"by_alias": True}, {"exclude_none": True}, {"round_trip": True}], ids=str)
def test_no_dump_holds_a_private_field(task: Task, mode: Any, options: Any) -> None:
    assert SECRET not in repr(task.model_dump(mode=mode, **options))
    assert SECRET not in task.model_dump_json(**options)


@pytest.mark.requirement("CRED-12")
@pytest.mark.parametrize("task", [PLAIN, DEEP, CHILD], ids=lambda task: type(task).__name__)
def test_nothing_that_holds_a_task_shows_its_private_fields(task: Task) -> None:
    kind = type(task)
    holders: list[tuple[Any, Any]] = [
        (list[kind], [task]),  # type: ignore[valid-type]
        (dict[str, kind], {"a": task}),  # type: ignore[valid-type]
        (kind | None, task),
        (Any, task),
        (Box[kind], Box[kind](content=task)),  # type: ignore[valid-type]
        (RootModel[kind], RootModel[kind](task)),  # type: ignore[valid-type]
    ]
    for annotation, value in holders:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        assert SECRET not in adapter.dump_json(value).decode()
        assert SECRET not in repr(adapter.dump_python(value, mode="json"))


def test_even_naming_a_private_field_does_not_show_it() -> None:
    assert PLAIN.model_dump(include={"answer"}) == {}
    assert PLAIN.model_dump_json(include={"answer"}) == "{}"


@pytest.mark.parametrize("task", [PLAIN, DEEP, CHILD], ids=lambda task: type(task).__name__)
def test_reprs_and_texts_show_no_private_field(task: Task) -> None:
    assert SECRET not in repr(task)
    assert SECRET not in str(task)
    assert SECRET not in f"{task!r:>10}"


def test_the_author_reads_private_fields_and_pickling_keeps_them() -> None:
    assert PLAIN.answer == SECRET
    assert pickle.loads(pickle.dumps(PLAIN)).answer == SECRET
    assert PLAIN.model_copy().answer == SECRET


@given(st.text(min_size=1), st.text())
def test_public_holds_exactly_the_public_fields_without_the_id(question: str, answer: str) -> None:
    task = Plain(id="t", question=question, answer=answer)
    assert task.public() == {"question": question}
    assert json.loads(json.dumps(task.public())) == task.public()


def test_private_fields_are_known_by_name_in_subclasses_too() -> None:
    assert Plain.private_fields() == {"answer"}
    assert Child.private_fields() == {"answer", "extra"}


def test_the_schema_of_serialized_tasks_does_not_tell_of_private_fields() -> None:
    assert "answer" not in json.dumps(Plain.model_json_schema(mode="serialization")["properties"])


def test_tasks_are_closed_frozen_and_have_an_id() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Plain.model_validate({"id": "x", "question": "?", "answer": "!", "hint": 1})
    with pytest.raises(ValidationError, match="at least 1 character"):
        Plain(id="", question="?", answer="!")
    with pytest.raises(ValidationError, match="frozen"):
        PLAIN.question = "other"  # type: ignore[misc]
