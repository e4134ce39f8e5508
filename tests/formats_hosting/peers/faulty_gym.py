"""Gymnasium environments with faults. They run in the peer's interpreter."""

import os
import sys
import time

import gymnasium
import numpy
from gymnasium.spaces import Discrete, Text


class Faulty(gymnasium.Env):
    """Does what the action says."""

    metadata = {"render_modes": ["ansi", "rgb_array"]}

    def __init__(self, render_mode=None, at_reset=""):
        self.action_space = Text(max_length=20)
        self.observation_space = Discrete(100)
        self.render_mode = render_mode
        self.at_reset = at_reset

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        if self.at_reset:
            getattr(self, self.at_reset)()
        return 0, {}

    def step(self, action):
        self.count += 1
        found = getattr(self, action, lambda: None)()
        observation, reward = found if isinstance(found, tuple) else (self.count, 1.0)
        if action == "four":
            return observation, reward, False, False
        return observation, reward, action == "finish", False, {"odd": object()}

    def prints(self):
        print("this is no frame")
        os.write(1, b'{"id": 1, "value": 3}\n')
        sys.stderr.write("nor is this\n")

    def inf(self):
        return 0, float("inf")

    def nan(self):
        return 0, float("nan")

    def none(self):
        return 0, None

    def word(self):
        return 0, "one"

    def big(self):
        return numpy.int64(7), numpy.float32(0.5)

    def raw(self):
        return b"raw", numpy.array(0.25)

    def object(self):
        return object(), 1.0

    def raises(self):
        raise KeyError("the state is broken")

    def exits(self):
        sys.exit(3)

    def dies(self):
        os._exit(7)

    def hangs(self):
        time.sleep(3600)

    def forks(self):
        os.fork()


class NoReset(gymnasium.Env):
    """Has no reset of its own."""

    action_space = Text(max_length=20)
    observation_space = Discrete(100)


class Oddly(Faulty):
    """Renders what is no text and no image."""

    def render(self):
        return 3


gymnasium.register("Flaky-v0", entry_point=Faulty, nondeterministic=True)
