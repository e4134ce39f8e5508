"""Parcels are to be weighed and the heaviest named: a taskset of verifiers' v1 API with tools and a state."""

import verifiers.v1 as vf

__all__ = ["ParcelScale"]


class ParcelData(vf.TaskData):
    """The weights of some parcels."""

    weights: dict[str, int]


class ScaleState(vf.State):
    """What the tools have done."""

    weighed: int = 0


class Scale(vf.Toolset[vf.ToolsetConfig, ScaleState]):
    """The tools of an episode."""

    async def setup_task(self, task: ParcelData) -> None:
        self.weights = task.weights

    @vf.tool
    async def weigh(self, parcel: str) -> str:
        """Weigh a parcel.

        Args:
            parcel: its name.
        """
        self.state.weighed += 1
        if parcel not in self.weights:
            return f"There is no parcel {parcel!r}."
        return f"{self.weights[parcel]} g"


class ParcelTask(vf.Task[ParcelData, ScaleState]):
    """Rewards the right name, and few weighings."""

    @classmethod
    def toolsets(cls, config):
        return [Scale(vf.ToolsetConfig())]

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == max(self.data.weights, key=self.data.weights.__getitem__))

    @vf.reward(weight=0.1)
    async def weighed_each_once(self, trace: vf.Trace) -> float:
        return 1.0 if trace.state.weighed == len(self.data.weights) else 0.0


class ParcelScale(vf.Taskset[ParcelTask, vf.TasksetConfig]):
    """Ten groups of parcels."""

    def load(self):
        """Return the tasks."""
        for number in range(10):
            weights = {"red": 100 + 37 * number % 90, "green": 120 + 53 * number % 70, "blue": 110 + 29 * number % 110}
            prompt = f"The parcels are {', '.join(weights)}. Which one is the heaviest? Answer with its name."
            yield ParcelTask(ParcelData(prompt=prompt, weights=weights), self.config.task)


if __name__ == "__main__":
    Scale.run()
