"""How new tasks of an environment are made from data: the form of a proposal, and tasks with all of their fields.

`ludus generate` reads and writes the private fields of tasks, which no serializer does; only files that stay with the
author's own code may hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_jsonable_python

from ludus.protocol.errors import AuthoringError, Unsupported
from ludus.protocol.messages import describe_invalid
from ludus.protocol.tasks import PRIVATE, Task
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.splits import Split

_FORM: Final = ConfigDict(extra="forbid", allow_inf_nan=False)


class HeldOutTask(ValueError):
    """A proposal that belongs to a split that is not for training, so a training set must not have it."""


def task_class(cls: type[Environment[Any]]) -> type[Task]:
    """Return the class of an environment's tasks: the parameter of `Environment[…]`, or that of its first task.

    Raises:
        AuthoringError: neither says it.
    """
    for base in cls.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            origin, arguments = get_origin(generic), get_args(generic)
            if isinstance(origin, type) and issubclass(origin, Environment) and arguments:
                if isinstance(arguments[0], type) and issubclass(arguments[0], Task):
                    return arguments[0]
    for split in cls.splits.values():
        first = split.get(0) if isinstance(split, Split) else next(iter(split), None)
        if isinstance(first, Task):
            return type(first)
    raise AuthoringError(f"{cls.__qualname__} does not say what its tasks are: derive it from Environment[YourTask]")


def proposal_form(cls: type[Environment[Any]]) -> type[BaseModel]:
    """Return the form in which new tasks are proposed: `cls.proposals`, or the fields of the task's class.

    The fields of the task's class are those without the id, private ones included.
    """
    if cls.proposals is not None:
        return cls.proposals
    model = task_class(cls)
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name == "id":
            continue
        rest = [one for one in field.metadata if one is not PRIVATE]
        kind: Any = field.annotation
        if rest:
            kind = Annotated[(kind, *rest)]  # pyrefly: ignore[not-a-type] (known at run time only)
        given = {} if field.is_required() else {"default": field.get_default(call_default_factory=True)}
        fields[name] = (kind, Field(description=field.description, **given))
    form: type[BaseModel] = create_model(f"{model.__name__}Proposal", __config__=_FORM, **fields)
    return form


def make_task(cls: type[Environment[Any]], id: str, proposal: Mapping[str, Any]) -> Task:
    """Return the task of a proposal.

    Raises:
        HeldOutTask: the environment says that it belongs to a split that is not for training.
        ValueError: the proposal has another form, or makes no good task; the message says why.
    """
    form = proposal_form(cls)
    try:
        read = form.model_validate(proposal)
        if defines(cls, "task_from_proposal"):
            task: Task = cls.task_from_proposal(id, read)
        else:
            task = task_class(cls).model_validate(
                {"id": id, **{name: getattr(read, name) for name in read.model_fields_set}}
            )
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    return task


def whole_fields(task: Task) -> dict[str, Any]:
    """Return all fields of a task except its id as JSON values, private ones included.

    Raises:
        ValueError: a value cannot be written as JSON.
    """
    return {name: _open(getattr(task, name)) for name in type(task).model_fields if name != "id"}


def read_task(model: type[Task], id: str, fields: Mapping[str, Any]) -> Task:
    """Return a task from fields that `whole_fields` returned.

    Raises:
        ValueError: they are not fields of such a task.
    """
    try:
        return model.model_validate({"id": id, **fields})
    except ValidationError as error:
        raise ValueError(_first(error)) from None


def defines(cls: type[Environment[Any]], hook: str) -> bool:
    """Return whether a class defines a method of `Environment` itself."""
    own, base = getattr(cls, hook), getattr(Environment, hook)
    return getattr(own, "__func__", own) is not getattr(base, "__func__", base)


def require(cls: type[Environment[Any]], *hooks: str) -> None:
    """Raise `Unsupported` unless a class defines these methods itself."""
    if missing := [name for name in hooks if not defines(cls, name)]:
        raise Unsupported(
            f"{cls.__qualname__} does not define {', '.join(missing)}, which this way of generating tasks needs; "
            "docs/generate.md says what they return",
            environment=cls.name or cls.__name__,
        )


def _open(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _open(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): _open(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_open(part) for part in value]
    return to_jsonable_python(value)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    what = describe_invalid(first)
    return f"{place}: {what}" if place else what
