"""Gymnasium environments: one tool `act`, whose schema comes from the action space; a task is a reset seed."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import sys
from typing import Any, Callable, Optional

from .adapter import Adapter, HostedEpisode, NotUsable, Refused, description, need, split, tool, tool_errors
from .gymnasium_images import has_images, png, without_images
from .values import UnusableValue, image, number, plain, result

TEST_TASKS = 1000
TEST_SEEDS = 1_000_000_000
"""The first seed of the test split; those of the train split count from 0."""
_encode = json.JSONEncoder(ensure_ascii=False).encode


class GymnasiumAdapter(Adapter):
    """An environment by its id, such as `FrozenLake-v1` or `minigrid:MiniGrid-Empty-5x5-v0`, or by its class.

    A class is `module:Class` or `file.py:Class`; it may also be a function that returns an environment.

    Options: `make`, the keyword arguments of `gymnasium.make` or of the class; `observation`, how observations are
    shown; `render`, what they show in addition; `tool_errors`.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self.gymnasium = need("gymnasium")
        self.arguments: dict[str, Any] = dict(options.get("make") or {})
        self.render = options.get("render", "none")
        self.observation = options.get("observation", "auto")
        if self.render != "none":
            self.arguments["render_mode"] = self.render
        self.maker = self._maker()
        sample = self.make()
        try:
            self._require_render_mode(sample)
            if self.observation == "image" and not has_images(sample.observation_space):
                raise NotUsable(
                    f"observations of {self.target} hold no image (uint8 from 0 to 255): {sample.observation_space}; "
                    "leave out observation=image"
                )
            self.observed = text_of(sample.observation_space)
            self.action = schema_of(sample.action_space)
            self.acted = text_of(sample.action_space)
            self.deterministic = not getattr(getattr(sample, "spec", None), "nondeterministic", False)
            doc = (type(sample.unwrapped).__doc__ or "").strip()
        finally:
            sample.close()
        self.about = doc.partition("\n\n## ")[0][:2000]

    def _maker(self) -> Optional[Callable[..., Any]]:
        """Return the class that the target names; None if it is an id of Gymnasium's registry."""
        place, colon, name = self.target.rpartition(":")
        if not colon:
            return None
        module = load_file(place) if place.endswith(".py") else need(place)
        if name in self.gymnasium.registry:
            return None
        found = getattr(module, name, None)
        if not callable(found):
            raise NotUsable(f"{place} registers no environment {name!r}, and has no class of this name")
        maker: Callable[..., Any] = found
        return maker

    def make(self) -> Any:
        """Make an instance of the environment."""
        if self.maker is not None:
            try:
                made = self.maker(**self.arguments)
            except TypeError as error:
                raise NotUsable(f"{self.target} cannot be made with {self.arguments}: {error}") from None
            if not isinstance(made, self.gymnasium.Env):
                raise NotUsable(f"{self.target} makes a {type(made).__name__}, which is no gymnasium.Env")
            return made
        place, colon, name = self.target.rpartition(":")
        try:
            return self.gymnasium.make(name if place.endswith(".py") else self.target, **self.arguments)
        except (self.gymnasium.error.Error, TypeError, ImportError) as error:
            raise NotUsable(f"gymnasium.make({self.target!r}) failed: {error}") from None

    def _require_render_mode(self, sample: Any) -> None:
        modes = [str(mode) for mode in sample.metadata.get("render_modes") or []]
        if self.render != "none" and self.render not in modes:
            raise NotUsable(
                f"{self.target} does not render {self.render!r}; it renders: {', '.join(modes) or 'nothing'}"
            )

    def describe(self) -> list[dict[str, Any]]:
        act = tool("act", f"Take an action in {self.acted}.", {"action": self.action})
        broken = {} if self.deterministic else {"seeds": "the package registers this environment as nondeterministic"}
        if self.maker is not None:
            broken["equal seeds"] = "the class alone decides whether equal seeds give equal episodes"
        return [
            description(
                self.target.rpartition(":")[2],
                f"The Gymnasium environment {self.target}. {self.about}",
                [split("train", None), split("test", TEST_TASKS)],
                [act],
                package=f"gymnasium {self.gymnasium.__version__}",
                version=str(self.gymnasium.__version__),
                seedable=self.deterministic,
                forkable=self.deterministic and self.maker is None,
                not_promised=broken,
            )
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        seed = index + (TEST_SEEDS if split == "test" else 0)
        return {"id": f"seed-{seed}", "public": {"reset_seed": seed}}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return GymnasiumEpisode(self, int(task["public"]["reset_seed"]))


class GymnasiumEpisode(HostedEpisode):
    """One instance of an environment, from `reset` on."""

    def __init__(self, adapter: GymnasiumAdapter, seed: int) -> None:
        self.env = adapter.make()
        self.options = adapter.options
        self.render = adapter.render
        self.observation = adapter.observation
        observation, info = self.env.reset(seed=seed)
        text = (
            f"You act in the environment {adapter.target}. Call the tool `act` until the episode ends.\n"
            f"Actions: {adapter.acted}\nObservations: {adapter.observed}\nThe first observation:"
        )
        self.prompt = [{"role": "user", "content": [text, *self.shown(observation)]}]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        action = value_of(self.env.action_space, arguments["action"])
        if not self.env.action_space.contains(action):
            raise Refused(f"the action {json.dumps(arguments['action'])} is not in {self.env.action_space}")
        with tool_errors(self.options):
            observation, reward, terminated, truncated, info = self.env.step(action)
        return result(
            self.shown(observation),
            reward=number(reward, "the reward"),
            finished=terminated,
            truncated=truncated,
            metadata={"info": info},
        )

    def shown(self, observation: Any) -> list[Any]:
        """Return an observation as content, with what the environment renders."""
        content = self._seen(observation)
        if self.render == "ansi":
            text = self.env.render()
            if not isinstance(text, str):
                raise UnusableValue(f"the environment rendered {type(text).__name__} as 'ansi', not text")
            content.append(text)
        elif self.render == "rgb_array":
            content.append(image(png(self.env.render())))
        return content or ["The observation is not shown."]

    def _seen(self, observation: Any) -> list[Any]:
        """Return an observation as content, without what the environment renders."""
        if self.observation == "none":
            return []
        images: list[Any] = []
        if self.observation == "text":
            found = plain(observation, "the observation")
        else:
            found, images = without_images(self.env.observation_space, observation)
        if images and (found is None or self.observation == "image"):
            return images
        return [found if isinstance(found, str) else _encode(found), *images]

    def close(self) -> None:
        self.env.close()


_KINDS = ("Discrete", "Box", "MultiBinary", "MultiDiscrete", "Text", "Dict", "Tuple", "OneOf", "Sequence")

_KIND_OF: dict[type, str] = {}
"""What `kind_of` found before; it is asked at each step."""


def load_file(path: str) -> Any:
    """Import a Python file under its own name.

    Raises:
        NotUsable: there is no such file.
    """
    if not os.path.isfile(path):
        raise NotUsable(f"there is no file {path!r} in {os.getcwd()}")
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotUsable(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def kind_of(space: Any) -> str:
    """Return the name of the class of Gymnasium's spaces that a space is of; its own class's name if of none."""
    cls = type(space)
    kind = _KIND_OF.get(cls)
    if kind is None:
        names = [base.__name__ for base in cls.__mro__ if base.__module__.startswith("gymnasium.spaces")]
        kind = _KIND_OF[cls] = next((name for name in names if name in _KINDS), cls.__name__)
    return kind


def schema_of(space: Any) -> dict[str, Any]:
    """Return the JSON Schema of the actions of a space.

    Raises:
        NotUsable: there is none, as for graphs.
    """
    kind = kind_of(space)
    if kind == "Discrete":
        start = int(space.start)
        return {"type": "integer", "minimum": start, "maximum": start + int(space.n) - 1}
    if kind == "Box":
        return _nested(space.shape, _number(space))
    if kind == "MultiBinary":
        return _nested(space.shape, {"type": "integer", "minimum": 0, "maximum": 1})
    if kind == "MultiDiscrete":
        low, high = int(space.start.min()), int((space.start + space.nvec).max()) - 1
        return _nested(space.shape, {"type": "integer", "minimum": low, "maximum": high})
    if kind == "Sequence" and not space.stack:
        return {"type": "array", "items": schema_of(space.feature_space)}
    if kind == "Text":
        return {"type": "string", "minLength": int(space.min_length), "maxLength": int(space.max_length)}
    if kind == "Dict":
        properties = {str(name): schema_of(part) for name, part in space.spaces.items()}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    if kind == "Tuple":
        parts = [schema_of(part) for part in space.spaces]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if kind == "OneOf":
        parts = [schema_of(part) for part in space.spaces]
        return {"type": "array", "prefixItems": [{"type": "integer", "minimum": 0, "maximum": len(parts) - 1}, {}],
                "minItems": 2, "maxItems": 2}  # fmt: skip
    raise NotUsable(f"actions of a {kind} space have no JSON form; wrap the environment to give it another space")


def value_of(space: Any, given: Any) -> Any:
    """Return an action of a space from its JSON form.

    Raises:
        Refused: it has another form.
    """
    kind = kind_of(space)
    try:
        if kind == "Discrete":
            return space.dtype.type(int(given))  # the type that samples of the space have
        if kind in ("Box", "MultiBinary", "MultiDiscrete"):
            return need("numpy").asarray(given, dtype=space.dtype)
        if kind == "Dict":
            return {name: value_of(part, given[name]) for name, part in space.spaces.items()}
        if kind == "Tuple":
            return tuple(value_of(part, item) for part, item in zip(space.spaces, given))
        if kind == "Sequence":
            return tuple(value_of(space.feature_space, item) for item in given)
        if kind == "OneOf":
            number, value = given
            return need("numpy").int64(number), value_of(space.spaces[number], value)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise Refused(f"the action does not have the form of {space}: {error}") from None
    return given


def _number(space: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer" if space.dtype.kind in "iu" else "number"}
    low, high = float(space.low.min()), float(space.high.max())
    if math.isfinite(low):
        schema["minimum"] = low
    if math.isfinite(high):
        schema["maximum"] = high
    return schema


def _nested(shape: Any, item: dict[str, Any]) -> dict[str, Any]:
    for length in reversed(shape):
        item = {"type": "array", "items": item, "minItems": int(length), "maxItems": int(length)}
    return item


def text_of(space: Any) -> str:
    """Return how a space shows itself, with the names of objects for their addresses, which differ in every process."""
    return re.sub(r"<(?:function )?([\w.<>]+)(?: object)? at 0x[0-9a-f]+>", r"\1", str(space))


ADAPTER = GymnasiumAdapter
