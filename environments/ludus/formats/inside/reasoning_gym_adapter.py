"""reasoning-gym: one environment per generator, whose final message is scored by the generator's `score_answer`.

How this works:

- A task holds its number only. The episode makes the problem from it, with the dataset of its generator and split,
  which `prepare` makes once, in the process that all episodes are forked from.
- Scores are those of `score_answer`. If it raises for an answer of the agent, or takes too long, and does not for the
  reference answer, the answer caused that and earns 0. If it raises for both, the error is the generator's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import signal
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Dict, Iterator, List, Tuple

from .adapter import Adapter, HostedEpisode, MissingPackage, NotUsable, description, need, split
from .values import number, result

TEST_SEED = 2_000_000_000
"""What is added to the seed of the train split for that of the test split."""
NEEDS_CONFIG = {"composite": "it has no problems of its own and mixes those of other generators"}
"""Generators that `all` leaves out."""
EXAMPLE_ANSWERS = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Generators whose problems have several right answers, with the field of the metadata that holds one of them."""
NO_ANSWERS = ("boxnet", "rush_hour")
"""Generators whose problems come without an answer, so that nothing here can solve them."""


class ReasoningGymAdapter(Adapter):
    """The generators that a target names: one, several with `+` between them, or `all`."""

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self.factory = need("reasoning_gym.factory", "reasoning-gym")
        self.utils = need("reasoning_gym.utils", "reasoning-gym")
        need("reasoning_gym", "reasoning-gym")
        self.level = options.get("level")
        self.fields = dict(options.get("config") or {})
        self.names = self._names()
        self._datasets: Dict[Tuple[str, str], Any] = {}
        self._lock = threading.Lock()
        if self.fields and len(self.names) != 1:
            raise NotUsable("the option config is for one generator: write reasoning-gym:NAME#config=…")
        usable = []
        for name in self.names:
            try:
                self.config(name, "train")
                usable.append(name)
            except NotUsable:
                if target != "all":
                    raise
        self.names = usable

    def _names(self) -> List[str]:
        known = sorted(self.factory.DATASETS)
        if self.target == "all":
            return [name for name in known if name not in NEEDS_CONFIG]
        names = self.target.split("+")
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise NotUsable(
                    f"there is no generator {name!r}{f'; did you mean {near[0]!r}?' if near else ''}; "
                    f"there are {len(known)}, such as {', '.join(known[:5])}; `reasoning-gym:all` serves all of them"
                )
            if name in NEEDS_CONFIG:
                raise NotUsable(f"the generator {name!r} cannot be served: {NEEDS_CONFIG[name]}")
        return names

    def config(self, name: str, part: str) -> Any:
        """Return the configuration of a generator for a split.

        Raises:
            NotUsable: a field is unknown, the generator refuses a value, or it has no curriculum for `level`.
        """
        made: Any = self.factory.DATASETS[name][1]
        own = {"seed": self.options.get("seed", 0), "size": self.options.get("size", 500)}
        if part == "test":
            own["seed"] += TEST_SEED
        known = [field.name for field in dataclasses.fields(made)]
        for field in self.fields:
            if field in own:
                raise NotUsable(f"{field!r} is an option of its own: write #{field}=… instead of in config")
            if field not in known:
                raise NotUsable(f"the generator {name!r} has no field {field!r}; its fields are: {', '.join(known)}")
        try:
            if self.level is None:
                config = made(**{**own, **self.fields})
            else:
                config = self._leveled(name, own)
            if hasattr(config, "validate"):
                config.validate()
        except (AssertionError, ValueError, TypeError) as error:
            where = "" if self.level is None else f" at level {self.level}"
            raise NotUsable(f"the generator {name!r} refuses its configuration{where}: {error}") from None
        return config

    def _leveled(self, name: str, own: Dict[str, Any]) -> Any:
        if not self.factory.has_curriculum(name):
            raise NotUsable(f"the generator {name!r} has no curriculum, so the option level cannot be used")
        curriculum = self.factory.create_curriculum(name)
        curriculum.set_global_level(self.level)
        config = curriculum.generate_configuration(own)
        return dataclasses.replace(config, **self.fields) if self.fields else config

    def dataset(self, name: str, part: str) -> Any:
        """Return the dataset of a generator for a split, which is made once."""
        with self._lock:
            if (name, part) not in self._datasets:
                self._datasets[name, part] = self.factory.DATASETS[name][0](config=self.config(name, part))
            return self._datasets[name, part]

    def describe(self) -> List[Dict[str, Any]]:
        try:
            release = version("reasoning-gym")
        except PackageNotFoundError:
            raise MissingPackage("reasoning-gym") from None
        size = self.options.get("size", 500)
        return [
            description(
                name,
                f"Problems of reasoning-gym's generator {name}. {self._about(name)}",
                [split("train", size), split("test", size)],
                version=release,
                package=f"reasoning-gym {release}",
                gradable=True,
                solvable=name not in NO_ANSWERS,
                reward_range=(0.0, 1.0),
                forkable=True,
                prepared=True,
                not_promised={
                    "distinct problems": "two tasks, also of different splits, can have the same problem, "
                    "because a generator with few problems repeats them"
                },
            )
            for name in self.names
        ]

    def _about(self, name: str) -> str:
        return (self.factory.DATASETS[name][0].__doc__ or "").strip()

    def task(self, environment: str, split: str, index: int) -> Dict[str, Any]:
        return {"id": f"{split}-{index}", "private": {"split": split, "index": index}}

    def prepare(self, environment: str, task: Dict[str, Any]) -> None:
        self.dataset(environment, task["private"]["split"])

    def open(self, environment: str, task: Dict[str, Any], seed: int) -> HostedEpisode:
        return Problem(self, self.dataset(environment, task["private"]["split"]), task["private"]["index"])

    def solution(self, environment: str, task: Dict[str, Any]) -> List[Dict[str, Any]]:
        entry = self.dataset(environment, task["private"]["split"])[task["private"]["index"]]
        right = entry["answer"]
        if right is None:
            right = entry["metadata"].get(EXAMPLE_ANSWERS.get(environment, ""))
        if right is None:
            raise ValueError(f"the generator {environment!r} gives no reference answer for this problem")
        text = right if isinstance(right, str) else json.dumps(right)
        return [{"answer": f"<answer>{text}</answer>" if self.options.get("answer") == "tags" else text}]


class Problem(HostedEpisode):
    """One problem of a dataset."""

    def __init__(self, adapter: ReasoningGymAdapter, dataset: Any, index: int) -> None:
        self._dataset = dataset
        self._entry = dataset[index]
        self._tags = adapter.options.get("answer") == "tags"
        self._extract = adapter.utils.extract_answer
        self._seconds = float(adapter.options.get("score_seconds", 20.0))
        self.prompt = str(self._entry["question"])
        if self._tags:
            system = adapter.utils.SYSTEM_PROMPTS["default"]
            self.prompt = [{"role": "system", "content": system}, {"role": "user", "content": self.prompt}]

    def grade(self, answer: str) -> Dict[str, Any]:
        scored = self._extract(answer) if self._tags else answer
        try:
            return result("", reward=self._score(scored))
        except (Exception, TooSlow) as error:
            self._score(self._entry["answer"])  # raises if the generator is at fault
            return result("", reward=0.0, metadata={"scoring_failed": f"{type(error).__name__}: {error}"[:500]})

    def _score(self, answer: Any) -> float:
        with time_limit(self._seconds):
            return number(self._dataset.score_answer(answer, self._entry), "the score")


class TooSlow(BaseException):
    """Scoring took too long. No `Exception`, which the code that scores could catch."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` after some CPU time; in the main thread only, since signals arrive there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise TooSlow(f"it took more than {seconds:g} s of CPU time")

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


ADAPTER = ReasoningGymAdapter
