"""Roman numerals are to be read: a taskset of verifiers' v1 API, one turn, with two rewards and a metric."""

import verifiers.v1 as vf

__all__ = ["RomanNumerals"]

NUMERALS = {
    "IV": 4,
    "IX": 9,
    "XIV": 14,
    "XXI": 21,
    "XL": 40,
    "LXXX": 80,
    "XCIX": 99,
    "CD": 400,
    "MIX": 1009,
    "MMXXVI": 2026,
}


class NumeralData(vf.TaskData):
    """A numeral and its value."""

    value: int


class NumeralTask(vf.Task[NumeralData]):
    """Rewards the value, and an answer that holds nothing else."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(str(self.data.value) in trace.last_reply.split())

    @vf.reward(weight=0.5)
    async def brief(self, trace: vf.Trace) -> float:
        return 1.0 if trace.last_reply.isdigit() else 0.0

    @vf.metric
    async def words(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply.split()))


class NumeralsConfig(vf.TasksetConfig):
    """The config of the taskset."""

    largest: int = 5000
    """Numerals with larger values are left out."""


class RomanNumerals(vf.Taskset[NumeralTask, NumeralsConfig]):
    """Ten numerals."""

    def load(self):
        """Return the tasks."""
        for text, value in NUMERALS.items():
            if value <= self.config.largest:
                prompt = f"Which number is {text}? Answer with digits."
                yield NumeralTask(NumeralData(prompt=prompt, value=value, system_prompt="Be brief."), self.config.task)
