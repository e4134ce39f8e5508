"""Small Gymnasium environments with one kind of action space each. They run in the peer's interpreter."""

import gymnasium
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple

SPACES = {
    "discrete": Discrete(3, start=-1),
    "box": Box(-1.0, 1.0, (2, 2)),
    "whole": Box(0, 5, (3,), dtype="int32"),
    "binary": MultiBinary(4),
    "multi": MultiDiscrete([3, 2, 4], start=[1, 0, 0]),
    "text": Text(min_length=1, max_length=6, charset="abcü"),
    "dict": Dict({"move": Discrete(4), "speed": Box(0.0, 1.0, (1,))}),
    "tuple": Tuple((Discrete(2), Text(max_length=3), MultiBinary(2))),
    "choice": OneOf((Discrete(2), Box(-1.0, 1.0, (2,)))),
    "sequence": Sequence(Discrete(3)),
    "nested": Dict({"pair": Tuple((Discrete(2), Dict({"x": Box(-2.0, 2.0, ())})))}),
}


class Small(gymnasium.Env):
    """Adds up what it draws, and shows the last action."""

    metadata = {"render_modes": ["ansi"]}

    def __init__(self, kind="discrete", length=6, render_mode=None):
        self.action_space = SPACES[kind]
        self.observation_space = Dict({"drawn": Box(-100.0, 100.0, (2,)), "count": Discrete(100), "last": Text(500)})
        self.length = length
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.total = 0, 0.0
        return self._shown("nothing"), {}

    def step(self, action):
        assert self.action_space.contains(action), repr(action)
        self.count += 1
        shown = self._shown(repr(action))
        self.total += float(shown["drawn"][0])
        ended = bool(self.np_random.random() < 0.1)
        return shown, shown["drawn"].sum(), ended, self.count >= self.length, {"total": self.total}

    def render(self):
        return "step %d, total %.3f" % (self.count, self.total)

    def _shown(self, last):
        return {"drawn": self.np_random.normal(size=2).astype("float32"), "count": self.count, "last": last}


def make(kind="discrete"):
    """Return an environment; a function can stand for a class."""
    return Small(kind)


class Graphs(Small):
    """Its actions have no JSON form."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Graph(Discrete(2), None)


NOT_CALLABLE = 3


def number():
    """Return what is no environment."""
    return 3


gymnasium.register("Small-v0", entry_point=Small, max_episode_steps=4)
