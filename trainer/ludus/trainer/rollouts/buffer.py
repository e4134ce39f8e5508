"""The limit on how far rollouts run ahead of learning, and the order in which groups are learned from."""

from __future__ import annotations

from ludus.trainer.core.samples import RolloutGroup


class StalenessWindow:
    """The decision which groups may start and which are learned from next, so that no group is ever too old.

    There are (S + 1) · P slots for batches of P groups. A group takes a slot when it starts. The slot is free again
    when the group was dropped, or when it was learned from *and* the engine holds the resulting weights. A batch is
    taken from finished groups, oldest first, but only if all remaining groups can still be learned from in time: the
    remaining group at place i, in order of age, is due 1 + i // P batches later. A group of version v may be learned
    from in batches v to v + S, where batch b turns the weights of version b into those of version b + 1.

    With P = 2 and S = 1 there are four slots:

        on_weights_updated(0)  groups 0 1 2 3 start, with version 0
        2 and 3 finish         pop_batch() returns batch 0: (2, 3). Groups 0 and 1 remain, due in batch 1: just in time
        on_weights_updated(1)  two slots are free: 4 and 5 start, with version 1
        4 and 5 finish         pop_batch() returns None: batch 1 must hold 0 and 1, which still run
        0 and 1 finish         pop_batch() returns batch 1: (0, 1), of age 1
        on_weights_updated(2)  two slots are free: 6 and 7 start, with version 2

    The oldest P groups can always form the next batch. At most (S + 1) · P - P · (batches - version) groups are open,
    so a group that starts now is at a place i with i // P ≤ S - (batches - version), which is in time. Each batch
    moves the remaining groups forward by P places. With S = 0 nothing starts between a batch and its update, so each
    batch holds all open groups.

    Not safe for threads. Does not depend on time.
    """

    def __init__(self, groups: int, staleness: int) -> None:
        self._groups = groups
        self._staleness = staleness
        self._versions: dict[int, int] = {}
        """The version of each group that has started and was neither dropped nor learned from."""
        self._finished: dict[int, RolloutGroup] = {}
        self.version = -1
        """The version of the engine's weights; -1 before the first `on_weights_updated`."""
        self.batches = 0
        """The number of batches taken."""

    @property
    def room(self) -> int:
        """The number of groups that may start now."""
        if self.version < 0:
            return 0
        learned = self._groups * max(0, self.batches - self.version)
        return (self._staleness + 1) * self._groups - len(self._versions) - learned

    def start(self, number: int) -> int:
        """Take a slot for group `number` and return the version with which it starts."""
        self._versions[number] = self.version
        return self.version

    def finish(self, group: RolloutGroup) -> None:
        """Record that the group is ready to be learned from."""
        self._finished[group.number] = group

    def drop(self, number: int) -> None:
        """Free the slot of a group that will not be learned from."""
        del self._versions[number]

    def on_weights_updated(self, version: int) -> None:
        """Record that the engine holds the weights of `version`, which result from that number of batches."""
        self.version = version

    def pop_batch(self) -> list[RolloutGroup] | None:
        """Take and return the next batch, in order of group numbers; None if it is not ready yet."""
        by_age = sorted(self._versions, key=lambda number: (self._versions[number], number))
        chosen = [number for number in by_age if number in self._finished][: self._groups]
        if len(chosen) < self._groups:
            return None
        behind = [self._versions[number] for number in by_age if number not in chosen]
        due = (self.batches + 1 + index // self._groups for index in range(len(behind)))
        if any(batch > version + self._staleness for version, batch in zip(behind, due, strict=True)):
            return None
        self.batches += 1
        for number in chosen:
            del self._versions[number]
        return [self._finished.pop(number) for number in sorted(chosen)]
