"""Gymnasium environments whose observations are pixels. They run in the peer's interpreter."""

import gymnasium
import numpy
from gymnasium.spaces import Box, Dict, Discrete


class Pixels(gymnasium.Env):
    """Shows one array, alone or as a part, whose values count from the number of the step on."""

    def __init__(self, shape=(36, 48, 3), high=255, part=False):
        self.shape, self.part = tuple(shape), part
        box = Box(0, high, self.shape, numpy.uint8)
        self.observation_space = Dict({"screen": box, "lives": Discrete(4)}) if part else box
        self.action_space = Discrete(2)
        self.high = high

    def _seen(self):
        values = (numpy.arange(numpy.prod(self.shape)) + self.steps) % (self.high + 1)
        array = values.astype(numpy.uint8).reshape(self.shape)
        return {"screen": array, "lives": numpy.int64(3)} if self.part else array

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        return self._seen(), 1.0, self.steps == 2, False, {}
