"""Intervals of whole numbers, as pairs (first, last) with both ends included."""


def merge(intervals):
    """Return the intervals in order, with those that overlap or touch made one."""
    merged = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
