"""Other right ways to write a program and to hand it in; each must earn what the reference earns."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import indent
from typing import Final

from ludus.environments.code.problem import Problem


def programs(problem: Problem) -> Mapping[str, str]:
    """Return right programs in other words, by how they differ from the reference."""
    tree = ast.parse(problem.reference)
    plain = ast.unparse(tree)
    return {
        "renamed variables": ast.unparse(_Renamed(tree).visit(ast.parse(problem.reference))),
        "formatted again": plain,
        "indented by tabs": _indented(plain, "\t"),
        "indented by two spaces": _indented(plain, "  "),
        "a helper does the work": _with_helper(problem),
        "with comments, imports and an example of its use": _with_surroundings(problem),
    }


def messages(problem: Problem) -> Mapping[str, str]:
    """Return final messages with the reference, by their layout."""
    program = problem.reference.rstrip()
    block = f"```python\n{program}\n```"
    draft = f"```python\n{problem.signature.partition(':')[0]}:\n    pass\n```"
    use = f"```python\nprint({problem.entry})\n```"
    return {
        "a block": block,
        "a block in prose": f"I follow the rules in order.\n\n{block}\n\nIt also handles the boundaries, see above.",
        "a draft before": f"My first attempt was:\n\n{draft}\n\nIt does nothing. The whole program:\n\n{block}",
        "an example of its use after": f"{block}\n\nUse it so:\n\n{use}",
        "a block of plain output after": f"{block}\n\n```text\nall examples hold\n```",
        "a block in a list": f"1. The program:\n\n{indent(block, '   ')}\n\n2. That is all.",
        "a block with another name of the language": block.replace("```python", "```py"),
        "a block with a version": block.replace("```python", "```Python3"),
        "a block with a title": block.replace("```python", '```python title="solution.py"'),
        "a block without a language": block.replace("```python", "```"),
        "lines that end as on Windows": block.replace("\n", "\r\n"),
        "only the program": program,
    }


class _Renamed(ast.NodeTransformer):
    """Gives other names to the variables that a program assigns."""

    def __init__(self, tree: ast.AST) -> None:
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        definitions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        self._assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)} - arguments - definitions

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new(node.id), node.ctx)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        return ast.Nonlocal([self._new(name) for name in node.names])

    def _new(self, name: str) -> str:
        return f"{name}_here" if name in self._assigned else name


def _indented(program: str, unit: str) -> str:
    lines = []
    for line in program.splitlines():
        code = line.lstrip(" ")
        lines.append(unit * ((len(line) - len(code)) // 4) + code)
    return "\n".join(lines) + "\n"


def _with_helper(problem: Problem) -> str:
    helper, entry = f"{problem.entry}_rules", problem.entry
    tree = ast.parse(problem.reference)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == entry:
            node.name = helper
    program = ast.unparse(tree)
    if problem.kind == "class":
        return f"{program}\n\n\nclass {entry}({helper}):\n    pass\n"
    verb = "yield from" if problem.kind == "iterator" else "return"
    return f"{program}\n\n\ndef {entry}(*arguments):\n    {verb} {helper}(*arguments)\n"


_BEFORE: Final = (
    "# The rules are followed in order.\nfrom __future__ import annotations\n\nimport collections\nimport math\n"
)
_AFTER: Final = 'if __name__ == "__main__":\n    print(collections.Counter(), math.pi)\n'


def _with_surroundings(problem: Problem) -> str:
    return f"{_BEFORE}\n\n{problem.reference}\n\n{_AFTER}"
