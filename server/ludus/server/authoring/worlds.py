"""Environments whose world outlives the episode: what one task did is there for the next.

How this works:

* A world is one value, `WorldEnvironment.world`: a pydantic model, a dict, an SQLite database. It is all that later
  episodes see of earlier ones.
* A new world comes from `new_world`. Before an episode begins in a world that is kept, `load_world` makes its own copy
  from bytes; when it has ended well, `save_world` makes bytes of it again, and these are the world's next version.
* So an episode never sees what another one does meanwhile, and one that breaks leaves the world as it was.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import TypeAdapter

from ludus.protocol.errors import AuthoringError
from ludus.protocol.tasks import Task
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.seats import SeatedEnvironment
from ludus.server.authoring.splits import Split

TaskT = TypeVar("TaskT", bound=Task)
WorldT = TypeVar("WorldT")


class WorldEnvironment(Environment[TaskT], Generic[TaskT, WorldT]):
    """The base class of environments with worlds. Before `setup` runs, the instance also has `world`.

    An episode that no world was chosen for plays in a new one, which is not kept.
    """

    world_class: ClassVar[Any] = dict[str, Any]
    """The type of `world`, which pydantic can write as JSON. Of no use if `save_world` and `load_world` are defined."""
    chain_length: ClassVar[int] = 1
    """How many tasks form a chain: tasks of a split whose indices follow each other, meant for one world. The sizes of
    the splits are multiples of it. 1 without chains."""

    world: WorldT
    """The world, which the episode may change. Its state at the end is the world's next version."""

    def new_world(self) -> WorldT:
        """Return the state of a new world, for an episode of `task`.

        It may draw from `rng`; afterwards, `rng` begins again.
        """
        raise NotImplementedError

    def save_world(self) -> bytes:
        """Return the state of `world` as bytes: JSON of `world_class`, unless overridden."""
        return _adapter(self.world_class).dump_json(self.world)

    def load_world(self, saved: bytes) -> WorldT:
        """Return a world with the state that `save_world` returned, maybe in another process."""
        loaded: WorldT = _adapter(self.world_class).validate_json(saved)
        return loaded

    @classmethod
    def world_of(cls, task: TaskT) -> str:
        """Return which tasks share a world: those of a split for which it returns the same text.

        By default, these are all tasks. The server refuses to play a task in a world that began with another text.
        """
        return ""


@lru_cache(maxsize=256)
def _adapter(world_class: Any) -> TypeAdapter[Any]:
    return TypeAdapter(world_class)


def check_no_seats_with_worlds(cls: type[Environment[Any]], where: str) -> None:
    """Refuse a class with seats and worlds.

    Raises:
        AuthoringError: it has both.
    """
    if issubclass(cls, WorldEnvironment) and issubclass(cls, SeatedEnvironment):
        raise AuthoringError(f"{where} has seats and worlds, which do not go together; subclass one of the two")


def check_worlds(
    cls: type[Environment[Any]], where: str, splits: dict[str, Split[Any]], *, overlaps: bool
) -> type[WorldEnvironment[Any, Any]] | None:
    """Return a class with worlds; None for other classes. Refuse one that uses what does not go together with worlds.

    Raises:
        AuthoringError: with what to change.
    """
    if not issubclass(cls, WorldEnvironment):
        return None
    if cls.new_world is WorldEnvironment.new_world:
        raise AuthoringError(f"{where} has no new_world(self); return the state of a new world")
    if (cls.save_world is WorldEnvironment.save_world) is not (cls.load_world is WorldEnvironment.load_world):
        raise AuthoringError(f"{where} defines one of save_world and load_world; define both of them, or none")
    if overlaps:
        raise AuthoringError(
            f"{where} has worlds, so its calls must not overlap: leave `concurrent` and `task_tools` out"
        )
    if cls.outside_effects:
        raise AuthoringError(f"{where} has worlds and `outside_effects`, which no version of a world can hold")
    if not isinstance(cls.chain_length, int) or cls.chain_length < 1:
        raise AuthoringError(
            f"{where}.chain_length is {cls.chain_length!r}; give the number of tasks of a chain, 1 or more"
        )
    for name, split in splits.items():
        if split.count is not None and split.count % cls.chain_length:
            raise AuthoringError(
                f"{where}: split {name!r} has {split.count} tasks, which cannot be chains of {cls.chain_length}; "
                "add or remove tasks"
            )
    return cls
