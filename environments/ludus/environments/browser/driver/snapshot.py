"""A page as text: its accessibility tree, in the form of Playwright's MCP server, with references to act on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Node = Mapping[str, Any]

ACTIONABLE: Final = frozenset(
    {"button", "checkbox", "combobox", "link", "listbox", "menuitem", "radio", "searchbox", "spinbutton", "switch",
     "tab", "textbox", "DisclosureTriangle", "Date"}
)  # fmt: skip
"""The roles that get references."""
_NAMES: Final[Mapping[str, str]] = {"DisclosureTriangle": "button", "Date": "textbox"}
_TRANSPARENT: Final = frozenset(
    {"none", "generic", "RootWebArea", "rowgroup", "Legend", "presentation", "Section", "emphasis",
     "strong", "mark", "time", "sectionheader", "sectionfooter", "DescriptionList"}
)  # fmt: skip
_HIDDEN: Final = frozenset({"InlineTextBox", "LineBreak", "ListMarker", "MenuListPopup", "option", "image"})
_INLINE: Final = frozenset({"paragraph", "cell", "columnheader", "rowheader", "listitem", "term", "definition", "row"})
"""The roles that become one line if nothing in them has a reference."""
_NAMED: Final = frozenset({"heading", "navigation", "main", "form", "dialog", "alertdialog", "table", "list", "region",
                           "search", "banner", "contentinfo", "alert", "status", "group", "tablist", "article",
                           "complementary"})  # fmt: skip
_TEXT: Final = 2_000
PAGE_CHARS: Final = 6_000
"""The characters of a page of a snapshot."""


class Snapshot:
    """The lines of a page.

    Args:
        nodes: the accessibility tree, as the DevTools protocol gives it.
        reference: returns the reference of an element by its number in the browser.
        values: returns the options of a list by its number in the browser.
    """

    def __init__(self, nodes: Sequence[Node], reference: Callable[[int], str]) -> None:
        self._nodes = {node["nodeId"]: node for node in nodes}
        self._reference = reference
        root = nodes[0]["nodeId"] if nodes else None
        self.lines = self._lines(root, 0) if root is not None else []

    def pages(self) -> list[str]:
        """Return the lines in parts of at most `PAGE_CHARS`."""
        parts, lines, size = [], list[str](), 0
        for line in self.lines:
            if lines and size + len(line) > PAGE_CHARS:
                parts.append("\n".join(lines))
                lines, size = [], 0
            lines.append(line)
            size += len(line) + 1
        return [*parts, "\n".join(lines)]

    def _lines(self, id: str, depth: int) -> list[str]:
        node = self._nodes.get(id)
        if node is None or depth > 100:
            return []
        role = str(node.get("role", {}).get("value", ""))
        if role in _HIDDEN:
            return []
        if node.get("ignored") or role in _TRANSPARENT:
            return self._children(node, depth)
        if role == "LabelText":  # its text is the name of its field
            return [line for line in self._children(node, depth) if not line.startswith("- text: ")]
        if role == "StaticText":
            text = _name(node).strip()
            return [f"- text: {text}"] if text else []
        if role in ACTIONABLE:
            return [self._actionable(node, role)]
        inside = self._children(node, depth + 1)
        if role in _INLINE:
            return self._inline(role, inside)
        if role in _NAMED:
            return self._named(node, role, inside)
        return self._children(node, depth)

    def _children(self, node: Node, depth: int) -> list[str]:
        found: list[str] = []
        for child in node.get("childIds", ()):
            for line in self._lines(child, depth + 1):
                if found and line.startswith("- text: ") and found[-1].startswith("- text: "):
                    found[-1] += " " + line.removeprefix("- text: ")
                else:
                    found.append(line)
        return found

    def _inline(self, role: str, inside: list[str]) -> list[str]:
        name = {"columnheader": "cell", "rowheader": "cell"}.get(role, role)
        if not inside:
            return [f"- {name}"] if name == "cell" else []
        if all(line.startswith(("- text: ", "- cell: ")) or line == "- cell" for line in inside):
            parts = [line.partition(": ")[2] for line in inside]
            return [f"- {name}: {' | '.join(parts)}"]
        if len(inside) == 1 and name != "row":
            return inside
        return [f"- {name}:", *(f"  {line}" for line in inside)]

    def _named(self, node: Node, role: str, inside: list[str]) -> list[str]:
        if role in ("banner", "contentinfo", "complementary", "region", "group", "article") and not _name(node):
            return inside
        level = _property(node, "level")
        title = f' "{_name(node)}"' if _name(node) else ""
        if role == "heading":
            links = [line for line in inside if "[ref=" in line]
            return [f"- heading{title} [level={level}]", *(f"  {line}" for line in links)]
        if not inside:
            return []
        return [f"- {role}{title}:", *(f"  {line}" for line in inside)]

    def _actionable(self, node: Node, role: str) -> str:
        ref = self._reference(int(node.get("backendDOMNodeId", 0)))
        name = _name(node)
        line = f"- {_NAMES.get(role, role)}" + (f' "{name}"' if name else "") + f" [ref={ref}]"
        for flag in ("checked", "disabled", "expanded", "selected", "required", "readonly", "pressed"):
            value = _property(node, flag)
            if value in (True, "true"):
                line += f" [{flag}]"
            elif flag == "expanded" and value in (False, "false"):
                line += " [collapsed]"
        if _property(node, "invalid") in (True, "true"):
            line += " [invalid]"
        value = node.get("value", {}).get("value")
        if role == "combobox":
            options = self._options(node)
            return line + f": {value or ''}" + (f" (options: {'; '.join(options)})" if options else "")
        return line + (f": {_clean(str(value))}" if value not in (None, "") and role != "link" else "")

    def _options(self, node: Node) -> list[str]:
        found = []
        for child in node.get("childIds", ()):
            one = self._nodes.get(child)
            if one is None:
                continue
            found += [_name(one)] if one.get("role", {}).get("value") == "option" else self._options(one)
        return found


def _name(node: Node) -> str:
    return _clean(str(node.get("name", {}).get("value") or ""))


def _clean(text: str) -> str:
    """Return a text of one line, without control characters."""
    plain = "".join(one if one.isprintable() or one == "\n" else " " for one in text)
    return " ".join(plain.replace("\n", " ⏎ ").split())[:_TEXT]


def _property(node: Node, name: str) -> Any:
    return next((one["value"].get("value") for one in node.get("properties", ()) if one["name"] == name), None)
