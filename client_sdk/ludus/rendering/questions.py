"""What a chat template can ask about the texts of a conversation, found in its source.

Rendering only the end of a conversation is right only if what the template decides is known from a key of each text.
The key has the template's marks in the text: which ones, in which order, and whether there is anything between them. It
answers whether a text contains, begins or ends with a mark, whether it is empty, and the same of its parts between
marks. A template that asks anything else of a text, such as its length or its first letter, is rendered whole each time
(`simple` is false), and so is one whose source cannot be analyzed.

The analysis follows texts through variables, macros and namespaces (`_Analysis`). It does not follow what is asked of
the ids of calls, which templates compare with each other and write.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from ludus.forms.tool_calls import THOUGHT_CLOSE

_NAMING: Final = ("get", "raise_exception", "strftime_now")
"""Functions whose arguments are not texts that a template looks for."""
_PLAIN: Final = re.compile(r"[\w\s]*")
_TEXTS: Final = frozenset({"content", "text", "reasoning_content", "reasoning", "thinking", "arguments"})
"""The fields of messages whose values are texts, or contain them."""
_FILTERS: Final = frozenset({
    "trim", "string", "tojson", "safe", "default", "d", "items", "dictsort", "join", "list", "indent", "escape", "e",
    "upper", "lower",
})  # fmt: skip
"""Filters that keep what the key says about a text; upper and lower do, because keys ignore case."""
_METHODS: Final = frozenset({"get", "items", "keys", "values", "upper", "lower"})
_CUTTING: Final = frozenset({"split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"})
"""Methods that look for marks."""
_STRIPPING: Final = frozenset({"strip", "lstrip", "rstrip"})
_TESTS: Final = frozenset({
    "string", "defined", "undefined", "none", "mapping", "iterable", "sequence", "boolean", "number", "integer",
    "float", "true", "false",
})  # fmt: skip
_FUNCTIONS: Final = frozenset({"raise_exception", "namespace", "dict"})


class Questions:
    """The questions of one template.

    Args:
        source: the Jinja text.
    """

    def __init__(self, source: str) -> None:
        self._marks, self.literals = marks_of(source)
        """The texts that the template looks for, and all texts in its source, in lower case."""
        longest = sorted(self._marks, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest)) or "(?!)")
        self.simple: Final = _is_simple(source, self._marks)
        """Whether the keys of the texts answer all that the template can ask."""

    def key(self, text: str) -> Hashable:
        """Return what the template can find out about a text; 0 if it has no marks and is no text of the source."""
        folded = text.casefold()
        bare = folded.strip()
        if not bare:
            return len(text) > 0, ""
        if bare in self.literals:
            return text
        present = tuple([number for number, mark in enumerate(self._marks) if mark in folded])
        if not present:
            return 0
        return present, tuple(self._skeleton(text, folded))

    def _skeleton(self, text: str, folded: str) -> Iterator[str]:
        """Yield the marks in a text, and what is known of the parts between them."""
        at = 0
        for mark in self._any.finditer(folded):
            yield self._part(folded[at : mark.start()])
            yield text[mark.start() : mark.end()] if len(text) == len(folded) else mark[0]
            at = mark.end()
        yield self._part(folded[at:])

    def _part(self, part: str) -> str:
        bare = part.strip()
        if not bare:
            return " " if part else ""
        return bare if bare in self.literals else "x"


def key_of(questions: Questions, value: Any) -> Hashable:
    """Return the key of a field's value: of a text, or of an object with texts in it, with its names and types."""
    if isinstance(value, str):
        return questions.key(value)
    if isinstance(value, Mapping):
        return tuple([(name, key_of(questions, entry)) for name, entry in value.items()])
    if isinstance(value, (list, tuple)):
        return tuple([key_of(questions, entry) for entry in value])
    return type(value).__name__, bool(value)


def marks_of(source: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the marks of a template, which are all but plain words and what it only writes, and all texts in its
    source, in lower case."""
    try:
        tokens = list(Environment().lexer.tokenize(source))
    except TemplateError:  # rendering will say so
        tokens = []
    marks, literals = {THOUGHT_CLOSE}, set[str]()
    for number, token in enumerate(tokens):
        if token.type != "string":
            continue
        text, before, after = str(token.value).strip(), tokens[max(0, number - 2) : number], tokens[number + 1].value
        literals.add(text.casefold())
        argument = len(before) > 1 and before[1].type in ("lparen", "comma") and before[0].value not in _NAMING
        written = before and before[-1].type in ("variable_begin", "add", "tilde")
        telling = len(text) > 1 and not written and not _PLAIN.fullmatch(text)
        if text and (argument or telling or after in ("in", "not")):
            marks.add(text.casefold())
    return tuple(sorted(marks)), frozenset(literals)


# ── the analysis ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Generation(Extension):
    """The block around what the assistant writes, which transformers adds to the language."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the content of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _is_simple(source: str, marks: tuple[str, ...]) -> bool:
    try:
        tree = Environment(extensions=[_Generation, "jinja2.ext.loopcontrols"]).parse(source)
    except (TemplateError, RecursionError):
        return False
    try:
        return _Analysis(tree, marks).simple()
    except RecursionError:
        return False


class _Analysis:
    """Follows texts through a template.

    Names and fields that may hold a text of the conversation are collected until there are no more. Then each use of
    one must be a question that the keys answer.
    """

    def __init__(self, tree: nodes.Template, marks: tuple[str, ...]) -> None:
        self._marks = marks
        self._names: set[tuple[str, str]] = set()
        """Variables that hold texts, with the macros that they belong to ("" for none)."""
        self._objects: set[tuple[str, str]] = {("", "messages")}
        """Names of messages, of lists of them and of their calls."""
        self._speaking: set[str] = set()
        """Macros that write a text of the conversation."""
        self._fields: set[str] = set(_TEXTS)
        self._macros: dict[str, nodes.Macro] = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
        self._nodes: list[nodes.Node] = []
        self._parents: dict[int, nodes.Node] = {}
        self._scopes: dict[int, str] = {}
        self._declared = {name: {found.name for found in _declared(macro)} for name, macro in self._macros.items()}
        self._collect(tree, "")

    def simple(self) -> bool:
        """Return whether the keys of texts answer all questions."""
        count = -1
        while count != (count := self._followed()):
            for node in self._nodes:
                self._follow(node)
        return all(map(self._allowed, self._nodes))

    def _followed(self) -> int:
        return len(self._names) + len(self._fields) + len(self._objects) + len(self._speaking)

    def _collect(self, node: nodes.Node, scope: str) -> None:
        """Collect the nodes that can be reached where contents are texts, which they always are here."""
        self._nodes.append(node)
        self._scopes[id(node)] = scope
        children = list(node.iter_child_nodes())
        if isinstance(node, nodes.If) and (certain := _is_text(node.test)) is not None:
            children = [node.test, *(node.body if certain else [*node.elif_, *node.else_])]
        elif isinstance(node, nodes.CondExpr) and (certain := _is_text(node.test)) is not None:
            children = [node.test, *([node.expr1] if certain else [node.expr2] if node.expr2 else [])]
        for child in children:
            self._parents[id(child)] = node
            self._collect(child, node.name if isinstance(node, nodes.Macro) else scope)

    def _variable(self, name: nodes.Name) -> tuple[str, str]:
        scope = self._scopes.get(id(name), "")
        return (scope if name.name in self._declared.get(scope, ()) else ""), name.name

    # ── where texts are ─────────────────────────────────────────────────────────────────────────────────────────────

    def _holds(self, node: nodes.Node | None) -> bool:
        """Return whether an expression may have a text of the conversation as its value, or in it."""
        if node is None or isinstance(node, (nodes.Const, nodes.Compare, nodes.Test, nodes.Not, nodes.TemplateData)):
            return False
        if isinstance(node, nodes.Name):
            return self._variable(node) in self._names
        if isinstance(node, nodes.Getattr):
            return node.attr in self._fields or self._holds(node.node)
        if isinstance(node, nodes.Getitem):
            key = node.arg.value if isinstance(node.arg, nodes.Const) else None
            named = isinstance(node.arg, nodes.Name) and self._holds(node.arg)
            return key in self._fields or (named and self._is_object(node.node)) or self._holds(node.node)
        if isinstance(node, nodes.Call):
            return self._call_holds(node)
        if isinstance(node, nodes.Filter) and node.name in ("items", "dictsort", "map", "tojson", "string", "join"):
            return self._is_object(node.node) or self._holds(node.node)
        return any(map(self._holds, node.iter_child_nodes()))

    def _call_holds(self, node: nodes.Call) -> bool:
        function = node.node
        if isinstance(function, nodes.Getattr) and function.attr in ("items", "values", "pop"):
            return self._is_object(function.node) or self._holds(function.node)
        named = [argument.value for argument in node.args if isinstance(argument, nodes.Const)]
        if isinstance(function, nodes.Getattr) and function.attr in ("startswith", "endswith"):
            return False
        if isinstance(function, nodes.Name) and function.name in self._macros:
            return function.name in self._speaking
        parts = [function, *node.args, *(keyword.value for keyword in node.kwargs)]
        return any(value in self._fields for value in named) or any(map(self._holds, parts))

    def _is_object(self, node: nodes.Node | None) -> bool:
        """Return whether an expression may be a message, a list of them, or a part of one that is no text."""
        if isinstance(node, nodes.Name):
            return self._variable(node) in self._objects
        if isinstance(node, (nodes.Getattr, nodes.Getitem, nodes.Filter)):
            neighbor = isinstance(node, nodes.Getattr) and node.attr in ("previtem", "nextitem")
            return neighbor or self._is_object(node.node)
        if isinstance(node, nodes.Call):
            return isinstance(node.node, nodes.Getattr) and self._is_object(node.node.node)
        if isinstance(node, (nodes.CondExpr, nodes.Or, nodes.And, nodes.Add)):
            return any(map(self._is_object, node.iter_child_nodes()))
        return False

    def _follow(self, node: nodes.Node) -> None:
        """Add the names and fields that a node gives a text to, and those that it gives a message to."""
        if isinstance(node, (nodes.Assign, nodes.For)) and self._is_object(
            node.node if isinstance(node, nodes.Assign) else node.iter
        ):
            self._objects |= {self._variable(name) for name in _names_in(node.target)}
        elif isinstance(node, nodes.Macro):
            outputs = (output for output in node.find_all(nodes.Output) if id(output) in self._scopes)
            if any(self._holds(part) for output in outputs for part in output.nodes):
                self._speaking.add(node.name)
        if isinstance(node, nodes.Assign) and self._holds(node.node):
            self._add(node.target)
        elif isinstance(node, nodes.AssignBlock):
            if any(self._holds(part) for inner in node.body for output in _outputs(inner) for part in output.nodes):
                self._add(node.target)
        elif isinstance(node, nodes.For) and self._holds(node.iter):
            self._add(node.target)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
            given = [*node.args, *(keyword.value for keyword in node.kwargs)]
            if node.node.name in self._macros:
                parameters = {(node.node.name, argument.name) for argument in self._macros[node.node.name].args}
                self._names |= parameters if any(map(self._holds, given)) else set()
                self._objects |= parameters if any(map(self._is_object, given)) else set()
            elif node.node.name == "namespace":
                self._fields |= {keyword.key for keyword in node.kwargs if self._holds(keyword.value)}

    def _add(self, target: nodes.Node) -> None:
        if isinstance(target, nodes.Name):
            self._names.add(self._variable(target))
        elif isinstance(target, nodes.NSRef):
            self._fields.add(target.attr)
        elif isinstance(target, nodes.Tuple):
            for item in target.items:
                self._add(item)

    # ── what is asked of them ───────────────────────────────────────────────────────────────────────────────────────

    def _allowed(self, node: nodes.Node) -> bool:
        """Return whether the keys answer what a node asks."""
        if isinstance(node, nodes.Compare):
            return self._compares(node)
        if isinstance(node, nodes.Test):
            return not self._holds(node.node) or node.name in _TESTS
        if isinstance(node, nodes.Filter):
            return self._filters(node)
        if isinstance(node, nodes.Call):
            return self._calls(node)
        if isinstance(node, nodes.Getitem) and not (
            isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str)
        ):
            # Of the parts between marks any may be taken, but of a text no letters.
            base = node.node
            cut = isinstance(base, nodes.Call) and isinstance(base.node, nodes.Getattr) and base.node.attr in _CUTTING
            return cut or not self._holds(base) or self._is_mapping_entry(node)
        if isinstance(node, nodes.For):
            iterated = node.iter
            return not self._holds(iterated) or _splits(iterated) or _names_entries(iterated) or self._is_guarded(node)
        if isinstance(node, (nodes.Add, nodes.Concat)):
            return self._joins(node)
        if isinstance(node, (nodes.BinExpr, nodes.UnaryExpr)) and not isinstance(
            node, (nodes.And, nodes.Or, nodes.Not)
        ):
            return not any(map(self._holds, node.iter_child_nodes()))
        return not isinstance(node, nodes.CallBlock | nodes.FilterBlock | nodes.Include | nodes.Import | nodes.Extends)

    def _is_guarded(self, node: nodes.For) -> bool:
        """Return whether a loop goes over no text, because a condition around it has asked that."""
        child: nodes.Node = node
        parent = self._parents.get(id(node))
        while parent is not None:
            if isinstance(parent, nodes.If):
                asked = [
                    test for test in (parent.test, *parent.test.find_all(nodes.Test)) if _asks_text(test, node.iter)
                ]
                if asked and not (asked[0] is parent.test and any(child is inner for inner in parent.body)):
                    return True
            child, parent = parent, self._parents.get(id(parent))
        return False

    def _is_mapping_entry(self, node: nodes.Getitem) -> bool:
        """Return whether an item is taken by a name in a variable: of an object, not of a text."""
        return isinstance(node.arg, nodes.Name) and self._holds(node.arg)

    def _compares(self, node: nodes.Compare) -> bool:
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        if not any(map(self._holds, sides)):
            return True
        if len(node.ops) != 1:
            return False
        left, right, operator = node.expr, node.ops[0].expr, node.ops[0].op
        if isinstance(left, nodes.Filter) and left.name in ("length", "count") and not self._holds(right):
            return True  # see `_filters`
        if operator in ("in", "notin"):
            return self._is_mark(left) if self._holds(right) else _are_texts(right)
        if operator in ("eq", "ne"):
            other = right if self._holds(left) else left
            return isinstance(other, nodes.Const) and (other.value in (None, True, False, "") or self._is_mark(other))
        return False

    def _is_mark(self, node: nodes.Node) -> bool:
        return isinstance(node, nodes.Const) and isinstance(node.value, str) and bool(node.value.strip()) and (
            node.value == node.value.strip()
        )  # fmt: skip

    def _filters(self, node: nodes.Filter) -> bool:
        if not self._holds(node.node):
            return True
        if node.name in ("length", "count"):  # whether a text is empty is known, and nothing else of its length
            parent = self._parents[id(node)]
            if isinstance(parent, nodes.Compare):
                operand = parent.ops[0]
                return (
                    parent.expr is node
                    and len(parent.ops) == 1 and operand.op in ("gt", "eq", "ne")
                    and isinstance(operand.expr, nodes.Const) and operand.expr.value == 0
                )  # fmt: skip
            return isinstance(parent, (nodes.If, nodes.And, nodes.Or, nodes.Not))
        return node.name in _FILTERS

    def _calls(self, node: nodes.Call) -> bool:
        function = node.node
        parts = [*node.args, *(keyword.value for keyword in node.kwargs)]
        if isinstance(function, nodes.Getattr) and self._holds(function.node):
            if function.attr in _CUTTING:
                return len(node.args) >= 1 and self._is_mark(node.args[0])
            if function.attr in _STRIPPING:
                return all(isinstance(part, nodes.Const) and not str(part.value).strip() for part in parts)
            return function.attr in _METHODS
        if not any(map(self._holds, parts)):
            return True
        return isinstance(function, nodes.Name) and (function.name in self._macros or function.name in _FUNCTIONS)

    def _joins(self, node: nodes.Add | nodes.Concat) -> bool:
        """Return whether no mark can arise where a text of the source is joined to one of the conversation."""
        if not self._holds(node):
            return True
        for part in node.iter_child_nodes():
            if isinstance(part, nodes.Const):
                text = str(part.value).casefold()
                if any(_overlap(mark, text) for mark in self._marks):
                    return not self._is_asked(node)
        return True

    def _is_asked(self, node: nodes.Node) -> bool:
        """Return whether the value of an expression is more than written."""
        while isinstance(node, (nodes.Add, nodes.Concat, nodes.Filter, nodes.CondExpr, nodes.Or)):
            node = self._parents[id(node)]
        return not isinstance(node, nodes.Output)


def _is_text(test: nodes.Node) -> bool | None:
    """Return whether a condition holds because it asks whether a content is a text; None if it asks something else."""
    if isinstance(test, nodes.Not):
        inner = _is_text(test.node)
        return None if inner is None else not inner
    if not isinstance(test, nodes.Test) or test.name != "string":
        return None
    asked = test.node
    name = (
        asked.name if isinstance(asked, nodes.Name)
        else asked.attr if isinstance(asked, nodes.Getattr)
        else asked.arg.value if isinstance(asked, nodes.Getitem) and isinstance(asked.arg, nodes.Const)
        else None
    )  # fmt: skip
    return True if name == "content" else None


def _asks_text(test: nodes.Node, value: nodes.Node) -> bool:
    return isinstance(test, nodes.Test) and test.name == "string" and test.node == value


def _names_in(target: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(target, nodes.Name):
        yield target
    yield from target.find_all(nodes.Name)


def _declared(macro: nodes.Macro) -> Iterator[nodes.Name]:
    """Yield the names that a macro sets: its parameters, and what its statements assign."""
    yield from macro.args
    yield from (name for name in macro.find_all(nodes.Name) if name.ctx == "store")


def _outputs(node: nodes.Node) -> Iterator[nodes.Output]:
    if isinstance(node, nodes.Output):
        yield node
    yield from node.find_all(nodes.Output)


def _splits(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.node.attr in ("split", "rsplit")
    )


def _names_entries(node: nodes.Node) -> bool:
    """Return whether a loop goes over the entries of an object, of which keys say all."""
    if isinstance(node, nodes.Filter):
        return node.name in ("items", "dictsort")
    return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.node.attr in ("items", "keys")


def _are_texts(node: nodes.Node) -> bool:
    """Return whether a node is a list of texts."""
    items = node.items if isinstance(node, (nodes.List, nodes.Tuple)) else []
    return bool(items) and all(isinstance(item, nodes.Const) and str(item.value).strip() for item in items)


def _overlap(mark: str, text: str) -> bool:
    """Return whether a part of a mark is at the beginning or the end of a text, so that the rest may come before or
    after it."""
    return any(text.endswith(mark[:size]) or text.startswith(mark[-size:]) for size in range(1, len(mark)))
