"""`@reward` and `@metric`, which make checks of methods of an environment, and `check`, for any function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, overload

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.nodes import Check, Judged, Offload, Pending

F = TypeVar("F", bound=Callable[..., Any])
When = Literal["end", "turn", "step"]
_MARK: Final = "__ludus_reward__"
_INJECTED: Final = ("attempt", "answer", "task", "steps")


@dataclass(frozen=True, slots=True)
class RewardOptions:
    """The options of `@reward(…)`."""

    name: str | None = None
    weight: float = 1.0
    optional: bool = False
    when: When = "end"


@overload
def reward(function: F, /) -> F: ...
@overload
def reward(
    *, weight: float = 1.0, name: str | None = None, optional: bool = False, when: When = "end"
) -> Callable[[F], F]: ...
def reward(
    function: F | None = None,
    /,
    *,
    weight: float = 1.0,
    name: str | None = None,
    optional: bool = False,
    when: When = "end",
) -> F | Callable[[F], F]:
    """Make a method part of the reward: its value times `weight` is added.

    The method returns a number, a bool or a `Verdict`. It takes, by name, any of `answer` (the final message), `steps`
    (the tool calls so far), `task` and `attempt` (all of it); with `when="step"` also `step` (the last one), and with
    `when="turn"` also `turn` (its text and its tool calls).

    Args:
        function: the method, when used without parentheses.
        weight: how much it counts; negative for unwanted behavior.
        name: the name of its component; the method's name by default.
        optional: whether the reward still has a value if this part cannot be judged.
        when: `end` judges the whole episode once. Process rewards: `step` judges each tool call when it is done, and
            `turn` the calls that the policy made together, when all of them are done.
    """

    def mark(target: F) -> F:
        setattr(target, _MARK, RewardOptions(name, weight, optional, when))
        return target

    return mark if function is None else mark(function)


@overload
def metric(function: F, /) -> F: ...
@overload
def metric(*, name: str | None = None, when: When = "end") -> Callable[[F], F]: ...
def metric(function: F | None = None, /, *, name: str | None = None, when: When = "end") -> F | Callable[[F], F]:
    """Report a method's number with the reward, without counting it; otherwise like `reward`."""
    decorate = reward(weight=0.0, name=name, optional=True, when=when)
    return decorate if function is None else decorate(function)


@dataclass(frozen=True)
class MethodCheck(Check):
    """A method marked with `@reward` or `@metric`, called on the attempt's environment."""

    attribute: str
    parameters: tuple[str, ...] = ()
    offloaded: bool = False

    def check(self, attempt: Attempt) -> Judged:
        """Call the method."""
        judged: Judged = getattr(attempt.environment, self.attribute)(
            **{name: _find(name, attempt) for name in self.parameters}
        )
        return judged

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate, in a thread if the environment is `blocking`; its methods then run one after another."""
        return self._wait(self._in_turn(attempt, offload)) if self.offloaded else super().evaluate(attempt, offload)

    async def _in_turn(self, attempt: Attempt, offload: Offload) -> Any:
        # Methods of one instance share its state; authors do not expect two of them to run at once.
        async with attempt.lock:
            return await (attempt.in_its_thread or offload)(self.check, attempt)


@dataclass(frozen=True)
class FunctionCheck(Check):
    """A check that calls a function of the attempt; see `check`."""

    function: Callable[[Attempt], Judged]

    @property
    def label(self) -> str:
        """The name, or the function's name."""
        return self.name or getattr(self.function, "__name__", "check")

    def check(self, attempt: Attempt) -> Judged:
        """Call the function."""
        return self.function(attempt)


def check(
    function: Callable[[Attempt], Judged],
    *,
    name: str = "",
    weight: float = 1.0,
    optional: bool = False,
) -> FunctionCheck:
    """Return a check that calls `function`. A plain `def` runs on the event loop, so it must not block."""
    return FunctionCheck(function, name=name, weight=weight, optional=optional)


def methods_of(cls: type, when: When) -> tuple[MethodCheck, ...]:
    """Return the marked methods of a class in the order of their definition, base classes first.

    Raises:
        AuthoringError: a method has a parameter that cannot be supplied.
    """
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names.update(dict.fromkeys(base.__dict__))
    checks = []
    for name in names:
        function = inspect.getattr_static(cls, name)
        options = getattr(function, _MARK, None)
        if isinstance(options, RewardOptions) and options.when == when:
            offloaded = getattr(cls, "blocking", False) and not inspect.iscoroutinefunction(function)
            checks.append(
                MethodCheck(
                    name, _parameters(cls, function, when), offloaded,
                    name=options.name or name, weight=options.weight, optional=options.optional,
                )
            )  # fmt: skip
    return tuple(checks)


def _parameters(cls: type, function: Callable[..., Any], when: When) -> tuple[str, ...]:
    names: Sequence[str] = list(inspect.signature(function).parameters)[1:]
    injectable = _INJECTED if when == "end" else (*_INJECTED, when)
    for name in names:
        if name not in injectable:
            raise AuthoringError(
                f"{cls.__qualname__}.{function.__name__} takes {name!r}; a @reward or @metric method takes any of "
                f"{', '.join(injectable)}, by these names"
            )
    return tuple(names)


def _find(name: str, attempt: Attempt) -> Any:
    if name == "attempt":
        return attempt
    return attempt.steps[-1] if name == "step" else getattr(attempt, name)
