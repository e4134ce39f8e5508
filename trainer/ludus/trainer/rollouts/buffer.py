"""How far rollouts may run ahead of learning: slots, and the order in which groups are learned from."""

from __future__ import annotations

from ludus.trainer.samples import RolloutGroup


class StalenessWindow:
    """Which groups may start, and which are learned from next, so that none is ever too old.

    There are (S + 1) · P slots for batches of P groups. A group takes one when it starts. The slot is free again when
    the group was dropped, or when it was learned from *and* the engine holds the weights that came of it. A batch is
    cut from finished groups, oldest first, but only when those left behind can still be learned from in time: the one
    at place i of them, in order of age, is due 1 + i // P batches later. A group of version v may be learned from in
    batches v to v + S, where batch b turns the weights of version b into those of version b + 1.

    With P = 2 and S = 1 there are four slots:

        synced(0)              groups 0 1 2 3 start, of version 0
        2 and 3 finish         cut() gives batch 0: (2, 3). Left behind are 0 and 1, due in batch 1: just in time
        synced(1)              two slots are free: 4 and 5 start, of version 1
        4 and 5 finish         cut() gives None: batch 1 must hold 0 and 1, which are waited for
        0 and 1 finish         cut() gives batch 1: (0, 1), of age 1
        synced(2)              two slots are free: 6 and 7 start, of version 2

    The oldest P are always enough. Open groups are at most (S + 1) · P - P · (batches - version), so one that starts
    now is at place i with i // P ≤ S - (batches - version), which is in time; and each cut moves those that stay
    forward by P. With S = 0 nothing starts between a cut and the update, and a batch is all there is.

    Not safe for threads; knows nothing of time.
    """

    def __init__(self, groups: int, staleness: int) -> None:
        self._groups = groups
        self._staleness = staleness
        self._versions: dict[int, int] = {}
        """Of each group that has started and was neither dropped nor learned from."""
        self._finished: dict[int, RolloutGroup] = {}
        self.version = -1
        """Of the weights that the engine holds; -1 before the first `on_weights_updated`."""
        self.batches = 0
        """Batches cut."""

    @property
    def room(self) -> int:
        """How many groups may start now."""
        if self.version < 0:
            return 0
        learned = self._groups * max(0, self.batches - self.version)
        return (self._staleness + 1) * self._groups - len(self._versions) - learned

    def start(self, number: int) -> int:
        """Take a slot for group `number`; the version it starts with."""
        self._versions[number] = self.version
        return self.version

    def finish(self, group: RolloutGroup) -> None:
        """The group is ready to be learned from."""
        self._finished[group.number] = group

    def drop(self, number: int) -> None:
        """The group will not be learned from; its slot is free."""
        del self._versions[number]

    def on_weights_updated(self, version: int) -> None:
        """The engine holds the weights that `version` batches made."""
        self.version = version

    def cut(self) -> list[RolloutGroup] | None:
        """The next batch, in order of numbers; None when it must be waited for."""
        by_age = sorted(self._versions, key=lambda number: (self._versions[number], number))
        chosen = [number for number in by_age if number in self._finished][: self._groups]
        if len(chosen) < self._groups:
            return None
        behind = [self._versions[number] for number in by_age if number not in chosen]
        due = (self.batches + 1 + place // self._groups for place in range(len(behind)))
        if any(batch > version + self._staleness for version, batch in zip(behind, due, strict=True)):
            return None
        self.batches += 1
        for number in chosen:
            del self._versions[number]
        return [self._finished.pop(number) for number in sorted(chosen)]
