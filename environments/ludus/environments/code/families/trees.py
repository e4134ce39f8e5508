"""Walk, change and measure trees and nested lists by recursion."""

from __future__ import annotations

import random
from typing import Any

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    return (_nested if rng.random() < 0.35 else _tree)(rng, difficulty)


def _changes(rng: random.Random) -> list[Rule]:
    """Return rules that change a tree [value, child, …]; each is the body of a function of `tree` and `depth`."""
    k, limit, m = rng.randint(2, 4), rng.randint(2, 3), rng.randint(2, 3)
    return [
        Rule("prune-negative", "Remove each part of the tree whose top node has a negative value; the root always "
             "stays.",
             "return [tree[0]] + [NAME(child, depth + 1) for child in tree[1:] if child[0] >= 0]"),
        Rule("cut-depth", f"Remove all nodes whose depth is greater than {limit}; the root has depth 0.",
             f"return [tree[0]] + [NAME(child, depth + 1) for child in tree[1:] if depth < {limit}]"),
        Rule("mirror", "Reverse the order of the children of each node.",
             "return [tree[0]] + [NAME(child, depth + 1) for child in reversed(tree[1:])]"),
        Rule("add-depth", "Add to each value the depth of its node; the root has depth 0.",
             "return [tree[0] + depth] + [NAME(child, depth + 1) for child in tree[1:]]"),
        Rule("add-children", f"Add to each value {k} times the number of children of its node.",
             f"return [tree[0] + {k} * len(tree[1:])] + [NAME(child, depth + 1) for child in tree[1:]]"),
        Rule("sort-children", "Sort the children of each node by their values, the smallest first; children with equal "
             "values keep their order.",
             "children = [NAME(child, depth + 1) for child in tree[1:]]\n"
             "return [tree[0]] + sorted(children, key=lambda child: child[0])"),
        Rule("sum-up", "From the leaves to the root, add to the value of each node the (new) values of its children.",
             "children = [NAME(child, depth + 1) for child in tree[1:]]\n"
             "return [tree[0] + sum(child[0] for child in children)] + children"),
        Rule("max-down", "From the root to the leaves, replace the value of each node by the (new) value of its parent "
             "if that is greater.",
             "return [tree[0]] + [NAME([max(tree[0], child[0])] + child[1:], depth + 1) for child in tree[1:]]"),
        Rule("drop-leaves", "Remove all leaves (nodes without children), except the root.",
             "return [tree[0]] + [NAME(child, depth + 1) for child in tree[1:] if len(child) > 1]"),
        Rule("first-children", f"Of the children of each node, keep only the first {m}.",
             f"return [tree[0]] + [NAME(child, depth + 1) for child in tree[1:{m + 1}]]"),
        Rule("alternate", "Change the sign of the values of all nodes at odd depths; the root has depth 0.",
             "return [-tree[0] if depth % 2 == 1 else tree[0]] + [NAME(child, depth + 1) for child in tree[1:]]"),
    ]  # fmt: skip


def _questions(rng: random.Random) -> list[Rule]:
    """Return results of a tree; each defines a helper `visit` where it needs one."""
    m = rng.randint(2, 3)
    return [
        Rule("list[object]:tree", "Return the tree.", "return tree"),
        Rule("list[int]:pre", "Return the values of all nodes in a list: each node before its children, the children "
             "in order.",
             "def visit(node):\n    return [node[0]] + [value for child in node[1:] for value in visit(child)]\n\n"
             "return visit(tree)"),
        Rule("list[int]:post", "Return the values of all nodes in a list: each node after its children, the children "
             "in order.",
             "def visit(node):\n    return [value for child in node[1:] for value in visit(child)] + [node[0]]\n\n"
             "return visit(tree)"),
        Rule("list[int]:levels", "Return the sums of the values at each depth in a list, beginning with the root.",
             "level, sums = [tree], []\nwhile level:\n    sums.append(sum(node[0] for node in level))\n"
             "    level = [child for node in level for child in node[1:]]\nreturn sums"),
        Rule("int:path", "Return the greatest sum of the values on a way from the root to a leaf.",
             "def visit(node):\n    return node[0] + max((visit(child) for child in node[1:]), default=0)\n\n"
             "return visit(tree)"),
        Rule("list[list[int]]:paths", "Return the values on each way from the root to a leaf, as a list of lists, in "
             "the order of the leaves.",
             "def visit(node):\n    if len(node) == 1:\n        return [[node[0]]]\n"
             "    return [[node[0]] + rest for child in node[1:] for rest in visit(child)]\n\nreturn visit(tree)"),
        Rule("dict[str, int]:measure", 'Return a dictionary with the keys "nodes" (their number), "leaves" (the number '
             'of nodes without children), "depth" (the greatest depth, where the root has depth 0) and "sum" (of all '
             "values).",
             "def visit(node, depth):\n    yield node[0], len(node) == 1, depth\n"
             "    for child in node[1:]:\n        yield from visit(child, depth + 1)\n\n"
             "found = list(visit(tree, 0))\n"
             'return {"nodes": len(found), "leaves": sum(leaf for _, leaf, _ in found),\n'
             '        "depth": max(depth for _, _, depth in found), "sum": sum(value for value, _, _ in found)}'),
        Rule("list[int]:inner", f"Return the values of the nodes with at least {m - 1} children, in increasing order.",
             "def visit(node):\n    yield node\n    for child in node[1:]:\n        yield from visit(child)\n\n"
             f"return sorted(node[0] for node in visit(tree) if len(node) > {m - 1})"),
        Rule("str:text", 'Return the tree as a text: the value of a node, followed by its children in parentheses, '
             'separated by spaces, as in "3(4 5(6))"; a leaf has no parentheses.',
             "def visit(node):\n    if len(node) == 1:\n        return str(node[0])\n"
             '    inner = " ".join(visit(child) for child in node[1:])\n    return f"{node[0]}({inner})"\n\nreturn visit(tree)'),
    ]  # fmt: skip


def _tree(rng: random.Random, difficulty: Difficulty) -> Problem:
    counts = {"easy": (0, 1), "medium": (2, 2), "hard": (3, 4)}[difficulty]
    chosen = pick_distinct(rng, _changes(rng), *counts)
    if {"alternate", "prune-negative"} <= {rule.name for rule in chosen}:  # together they may leave only the root
        chosen = [rule for rule in chosen if rule.name != "prune-negative"]
    question = rng.choice(_questions(rng)[1:5] if not chosen else _questions(rng))
    name = rng.choice(("study_tree", "rework_tree", "tree_report", "walk_tree"))
    signature = f"def {name}(tree: list[object]) -> {question.name.partition(':')[0]}:"
    helpers, calls = [], []
    for rule in chosen:
        helper = rule.name.replace("-", "_")
        code = rule.code.replace("NAME", helper)
        if "depth" not in rule.text:
            code = code.replace(", depth + 1)", ")")
            helpers.append(function_source(f"def {helper}(tree):", code).strip())
            calls.append(f"tree = {helper}(tree)")
        else:
            helpers.append(function_source(f"def {helper}(tree, depth):", code).strip())
            calls.append(f"tree = {helper}(tree, 0)")

    def grow(rng: random.Random, depth: int, left: list[int]) -> list[Any]:
        node: list[Any] = [rng.randint(-4, 15)]
        for _ in range(rng.randint(0 if depth else 2, 3)):
            if depth < 4 and left[0] > 0 and rng.random() < 0.8:
                left[0] -= 1
                node.append(grow(rng, depth + 1, left))
        return node

    def sample(rng: random.Random, size: int) -> tuple[list[Any]]:
        return (grow(rng, 0, [rng.randint(*((3, 4), (6, 12), (40, 60))[size])]),)

    return Problem(
        key=key_of("trees", *chosen, question), entry=name, signature=signature,
        intro="A tree is a list: the value of its root, an integer, followed by its children, which are trees of the "
        "same form. So [3, [4], [5, [6]]] is a root 3 with the children 4 and 5, and 6 is a child of 5."
        + " Follow these rules in order:" * bool(chosen),
        rules=tuple(rule.text for rule in (*chosen, question)),
        reference=function_source(signature, *calls, question.code, imports="\n\n\n".join(helpers)),
        edges=(([7],), ([-2, [5]],), ([1, [2, [3, [4, [5]]]]],), ([4, [-1, [2]], [3], [0, [-6], [8]]],)),
        sample=sample,
    )  # fmt: skip


def _nested(rng: random.Random, difficulty: Difficulty) -> Problem:
    k, level, m = rng.randint(2, 4), rng.randint(1, 2), rng.randint(2, 3)
    keeps = [
        Rule("all", "Every number counts.", ""),
        Rule("deep", f"Only numbers at depth {level + 1} or deeper count.", f"depth >= {level + 1}"),
        Rule("even-depth", "Only numbers at an even depth count.", "depth % 2 == 0"),
        Rule("positive", "Only numbers greater than 0 count.", "item > 0"),
        Rule("first", "Only numbers that are the first item of the list in which they are count.", "place == 0"),
        Rule("big-list", f"Only numbers in lists of at least {m} items count.", f"len(items) >= {m}"),
        Rule("residue", f"Only numbers that are not divisible by {m + 1} count.", f"item % {m + 1} != 0"),
    ]
    worths = [
        Rule("itself", "itself", "item"),
        Rule("times-depth", "itself times its depth", "item * depth"),
        Rule("plus-place", "itself plus its position in the list in which it is, counted from 0", "item + place"),
        Rule("minus-length", "itself minus the number of items of the list in which it is", "item - len(items)"),
        Rule("power", f"itself times {k} to the power of its depth minus 1", f"item * {k} ** (depth - 1)"),
        Rule("signed", "itself at an odd depth, and itself with the opposite sign at an even depth",
             "item if depth % 2 == 1 else -item"),
    ]  # fmt: skip
    result = rng.choice((
        Rule("list[int]:list", "Return the worths in a list, in the order in which the numbers are written.",
             "return [worth for worth, depth in found]"),
        Rule("int:sum", "Return the sum of the worths.", "return sum(worth for worth, depth in found)"),
        Rule("dict[int, int]:depths", "Return a dictionary from each depth at which a number counts to the sum of the "
             "worths there.",
             "sums = {}\nfor worth, depth in found:\n    sums[depth] = sums.get(depth, 0) + worth\nreturn sums"),
        Rule("list[int]:deepest", "Return the worths in a list, those of the deepest numbers first, and within one "
             "depth in the order in which the numbers are written.",
             "return [worth for worth, depth in sorted(found, key=lambda pair: -pair[1])]"),
        Rule("list[list[int]]:largest", f"Return the {m + 1} greatest worths with their depths as pairs [worth, "
             "depth], the greatest worth first; of equal worths, the smaller depth first.",
             f"return [list(pair) for pair in sorted(found, key=lambda pair: (-pair[0], pair[1]))[:{m + 1}]]"),
    ))  # fmt: skip
    count = {"easy": 1, "medium": 1, "hard": 2}[difficulty]
    chosen = rng.sample(keeps[1:] if difficulty != "easy" else keeps, count)
    worth = rng.choice(worths[:3] if difficulty == "easy" else worths)
    condition = " and ".join(rule.code for rule in chosen if rule.code)
    name = rng.choice(("weigh_lists", "flatten_worth", "nested_report", "collect_numbers"))
    signature = f"def {name}(items: list[object]) -> {result.name.partition(':')[0]}:"
    check = f"elif {condition}:" if condition else "else:"
    helper = (
        "def visit(items, depth):\n    for place, item in enumerate(items):\n        if isinstance(item, list):\n"
        f"            yield from visit(item, depth + 1)\n        {check}\n            yield {worth.code}, depth"
    )
    if "place" not in helper.partition("isinstance")[2]:
        helper = helper.replace("for place, item in enumerate(items)", "for item in items")

    def grow(rng: random.Random, depth: int, count: int) -> list[Any]:
        return [
            grow(rng, depth + 1, rng.randint(1, 4)) if depth < 4 and rng.random() < 0.4 else rng.randint(-5, 20)
            for _ in range(count)
        ]

    def sample(rng: random.Random, size: int) -> tuple[list[Any]]:
        return (grow(rng, 1, rng.randint(*((3, 4), (4, 7), (15, 25))[size])),)

    return Problem(
        key=key_of("trees-nested", *sorted(rule.name for rule in chosen), worth, result),
        group=key_of("trees-nested", result),
        entry=name, signature=signature,
        intro="A list holds integers and lists of the same form, nested to any depth. A number directly in the "
        "outermost list has depth 1, a number in a list in it has depth 2, and so on.",
        rules=(*(rule.text for rule in chosen), f"The worth of a number that counts is {worth.text}.", result.text),
        reference=function_source(signature, "found = list(visit(items, 1))", result.code, imports=helper),
        edges=(([],), ([[]],), ([5],), ([[[4]], 3, [2, [7, -1]]],)), sample=sample,
    )  # fmt: skip
