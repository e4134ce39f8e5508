"""Answer a question about a graph that is given by its edges."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

STORIES: Final = (
    ("roads", "places", "roads between places"), ("links", "pages", "links between pages"),
    ("wires", "devices", "wires between devices"), ("tunnels", "caves", "tunnels between caves"),
    ("friends", "people", "acquaintances of people"),
)  # fmt: skip
_LEVELS: Final = """\
{name} = {{{start}: 0}}
queue = [{start}]
for node in queue:
    for other, length in near.get(node, []):
        if other not in {name}:
            {name}[other] = {name}[node] + 1
            queue.append(other)"""
_DIJKSTRA: Final = """\
cost = {}
waiting = [(0, start)]
while waiting:
    waiting.sort()
    total, node = waiting.pop(0)
    if node in cost:
        continue
    cost[node] = total
    for other, length in near.get(node, []):
        if other not in cost:
            waiting.append((total + length, other))"""
_COMPONENTS: Final = """\
groups = []
for node in nodes:
    if any(node in group for group in groups):
        continue
    group = [node]
    for member in group:
        for other, length in near.get(member, []):
            if other not in group:
                group.append(other)
    groups.append(sorted(group))"""
_ORDER: Final = """\
order = []
while len(order) < len(nodes):
    ready = [node for node in nodes if node not in order
             and all(a in order for a, b, length in edges if b == node)]
    if not ready:
        return {nothing}
    order.append({choice}(ready))"""


def prepare(rng: random.Random, directed: bool) -> list[Rule]:
    """Return rules that change the edges."""
    limit, m, plus = rng.randint(5, 7), rng.randint(2, 3), rng.randint(1, 3)
    same = "a == c and b == d" if directed else "{a, b} == {c, d}"
    rules = [
        Rule("no-loops", "Ignore edges from a node to itself.",
             "edges = [[a, b, length] for a, b, length in edges if a != b]"),
        Rule("short-only", f"Ignore edges that are longer than {limit}.",
             f"edges = [[a, b, length] for a, b, length in edges if length <= {limit}]"),
        Rule("shortest-twin", "Of several edges "
             + ("from one node to another" if directed else "between the same two nodes")
             + ", keep only the shortest, or the first of the shortest ones.",
             "kept = []\nfor place, (a, b, length) in enumerate(edges):\n"
             f"    twins = [(other, at) for at, (c, d, other) in enumerate(edges) if {same}]\n"
             "    if min(twins) == (length, place):\n        kept.append([a, b, length])\nedges = kept"),
        Rule("no-multiples", f"Ignore edges of which both nodes are divisible by {m}.",
             f"edges = [[a, b, length] for a, b, length in edges if a % {m} or b % {m}]"),
        Rule("toll", f"Add {plus} to the length of each edge of which at least one node is even.",
             f"edges = [[a, b, length + {plus} * (a % 2 == 0 or b % 2 == 0)] for a, b, length in edges]"),
    ]  # fmt: skip
    if directed:
        rules.append(Rule("backward", "Reverse the direction of each edge.",
                          "edges = [[b, a, length] for a, b, length in edges]"))  # fmt: skip
        rules.append(Rule("upward", "Reverse the direction of each edge that leads from a greater to a smaller number.",
                          "edges = [[min(a, b), max(a, b), length] for a, b, length in edges]"))  # fmt: skip
    return rules


def questions(rng: random.Random, directed: bool) -> list[tuple[str, Rule]]:
    """Return questions, each with the types of its parameters after the edges and of the result."""
    k = rng.randint(2, 3)
    hops = _LEVELS.format(name="hops", start="start")
    found = [
        ("start: int) -> dict[int, int]", Rule("hops", "Return a dictionary with each node that can be reached from "
         "start (start itself included), and the least number of edges on a way to it.", f"{hops}\nreturn hops")),
        ("start: int) -> dict[int, int]", Rule("cost", "Return a dictionary with each node that can be reached from "
         "start (start itself included), and the least total length of a way to it.", f"{_DIJKSTRA}\nreturn cost")),
        ("start: int) -> list[int]", Rule("within", f"Return the nodes that can be reached from start by {k} edges or "
         "fewer, without start itself, in increasing order.",
         f"{hops}\nreturn sorted(node for node in hops if 0 < hops[node] <= {k})")),
        ("start: int, goal: int) -> int", Rule("way", "Return the least total length of a way from start to goal, or "
         "-1 if there is none.", f"{_DIJKSTRA}\nreturn cost.get(goal, -1)")),
        ("start: int, goal: int) -> list[int]", Rule("path", "Return the nodes on a way from start to goal with as few "
         "edges as possible, both included. Of several such ways, go at each node to the smallest next node that is "
         "on one of them. Return an empty list if there is no way.",
         "back = {}\nfor a, b, length in edges:\n    back.setdefault(b, []).append((a, length))\n"
         + ("" if directed else "    back.setdefault(a, []).append((b, length))\n")
         + _LEVELS.format(name="left", start="goal").replace("near.get", "back.get")
         + "\nif start not in left:\n    return []\npath = [start]\nwhile path[-1] != goal:\n"
         "    path.append(min(other for other, length in near.get(path[-1], [])\n"
         "                    if left.get(other, -1) == left[path[-1]] - 1))\nreturn path")),
        ("start: int) -> list[list[int]]", Rule("layers", "Return a list of lists: first the nodes that are one edge "
         "away from start, then those two edges away, and so on (always by the least number of edges), each list in "
         "increasing order.",
         f"{hops}\nreturn [sorted(node for node in hops if hops[node] == step)\n"
         "        for step in range(1, max(hops.values()) + 1)]")),
        (") -> dict[int, int]", Rule("degrees", "Return a dictionary with each node of the edges and the total length "
         "of the edges that " + ("leave it." if directed else "it belongs to; an edge from a node to itself counts "
         "twice."),
         "totals = {node: 0 for node in nodes}\nfor a, b, length in edges:\n    totals[a] += length\n"
         + ("" if directed else "    totals[b] += length\n") + "return totals")),
    ]  # fmt: skip
    if directed:
        found += [
            (") -> list[int]", Rule("order-small", "Return all nodes of the edges in an order in which each edge leads "
             "forward: at each place, the smallest node that is possible there. Return an empty list if there is no "
             "such order.", _ORDER.format(nothing="[]", choice="min") + "\nreturn order")),
            (") -> list[int]", Rule("order-large", "Return all nodes of the edges in an order in which each edge leads "
             "forward: at each place, the greatest node that is possible there. Return [-1] if there is no such order.",
             _ORDER.format(nothing="[-1]", choice="max") + "\nreturn order")),
            (") -> list[list[int]]", Rule("ends", "Return a list of two lists: the nodes that no edge leads to, and "
             "the nodes that no edge leaves, both in increasing order.",
             "return [[node for node in nodes if all(b != node for a, b, length in edges)],\n"
             "        [node for node in nodes if all(a != node for a, b, length in edges)]]")),
        ]  # fmt: skip
    else:
        found += [
            (") -> list[list[int]]", Rule("components", "Two nodes are in one group if there is a way between them. "
             "Return the groups, each as a list in increasing order: the largest first, and of equal size the one "
             "with the smallest node first.",
             f"{_COMPONENTS}\nreturn sorted(groups, key=lambda group: (-len(group), group))")),
            (") -> list[int]", Rule("weights", "Two nodes are in one group if there is a way between them. Return the "
             "total length of the edges of each group, in increasing order.",
             f"{_COMPONENTS}\nreturn sorted(sum(length for a, b, length in edges if a in group) for group in groups)")),
            (") -> list[int]", Rule("prune", "A leaf is a node from which edges lead to exactly one other node. Remove "
             f"all leaves with their edges at once, and repeat this {k} times in all. Return the nodes that still have "
             "an edge then, in increasing order.",
             f"for turn in range({k}):\n"
             "    leaves = [node for node in nodes\n"
             "              if len({other for other, length in near.get(node, []) if other != node}) == 1]\n"
             "    edges = [[a, b, length] for a, b, length in edges if a not in leaves and b not in leaves]\n"
             "    near = {}\n    for a, b, length in edges:\n        near.setdefault(a, []).append((b, length))\n"
             "        near.setdefault(b, []).append((a, length))\n"
             "return sorted({node for a, b, length in edges for node in (a, b)})")),
        ]  # fmt: skip
    return found


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    directed = rng.random() < 0.5
    word, nodes, story = rng.choice(STORIES)
    counts = {"easy": (0, 1), "medium": (1, 2), "hard": (2, 4)}[difficulty]
    chosen = pick_distinct(rng, prepare(rng, directed), *counts)
    pool = questions(rng, directed)
    head, question = rng.choice([pool[0], pool[2], pool[6], pool[-1], pool[-3]] if difficulty == "easy" else pool)
    name = f"{rng.choice(('explore', 'study', 'answer', 'check'))}_{word}"
    comma = "" if head.startswith(")") else ", "
    signature = f"def {name}(edges: list[list[int]]{comma}{head}:"
    build = "near = {}\nfor a, b, length in edges:\n    near.setdefault(a, []).append((b, length))"
    if not directed:
        build += "\n    near.setdefault(b, []).append((a, length))"
    build += "\nnodes = sorted({node for a, b, length in edges for node in (a, b)})"
    if question.name == "degrees":
        build = build.rpartition("\n")[2]
    elif "nodes" not in question.code:
        build = build.rpartition("\n")[0]
    if "near" not in question.code:
        build = build.rpartition("\n")[2]

    def sample(rng: random.Random, size: int) -> tuple[object, ...]:
        count = rng.randint(*((4, 5), (6, 9), (14, 20))[size])
        edges: list[list[int]] = []
        for _ in range(int(count * rng.choice((0.9, 1.3, 1.7)))):
            a, b = rng.randint(1, count), rng.randint(1, count)
            if question.name.startswith("order") and rng.random() < 0.93:
                a, b = (a, b) if a * 7 % 11 < b * 7 % 11 else (b, a)
            if a != b or rng.random() < 0.3:
                edges.append([a, b, rng.randint(1, 9)])
        if edges and rng.random() < 0.5:
            edges.append([*rng.choice(edges)[:2], rng.randint(1, 9)])
        start = rng.choice(edges)[0] if edges else 1
        return (edges, *([start] if "start" in head else []), *([rng.randint(1, count)] if "goal" in head else []))

    extra = ([1] if "start" in head else []) + ([3] if "goal" in head else [])
    way = "one-way, from a to b" if directed else "two-way, between a and b"
    return Problem(
        key=key_of("graphs", "directed" if directed else "undirected", *chosen, question),
        entry=name, signature=signature,
        intro=f"The {nodes} of a graph are numbered, and its edges are {story}: each edge [a, b, length] is {way}. A "
        "way is a chain of edges"
        + (", each in its own direction" if directed else "") + ". Follow these rules in order:",
        rules=tuple(rule.text for rule in (*chosen, question)),
        reference=function_source(signature, *(rule.code for rule in chosen), build, question.code),
        edges=(([], *extra), ([[1, 2, 3], [2, 3, 1]], *extra), ([[1, 1, 2], [1, 3, 9], [3, 1, 4], [1, 3, 2]], *extra)),
        sample=sample,
    )  # fmt: skip
