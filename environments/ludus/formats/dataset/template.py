"""Prompt templates: text with the names of columns in braces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any, Final

from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import did_you_mean


class Template:
    """Text in which `{column}` is replaced by a row's value; `{{` and `}}` are braces.

    Args:
        text: the text.
        columns: the columns that it may name.
        choices: the columns with choices. A single one is replaced by all choices with their letters.

    Raises:
        AuthoringError: the braces are not balanced, or name no column.
    """

    def __init__(self, text: str, columns: Sequence[str], choices: Sequence[str] = ()) -> None:
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise AuthoringError(f"the template cannot be read: {error}; write a brace as {{{{ or }}}}") from None
        self._parts: Final = [(literal, name) for literal, name, *_ in parts]
        for _, name, form, conversion in parts:
            if name is not None and (name not in columns or form or conversion):
                shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
                raise AuthoringError(
                    f"the template names {{{shown}}}, which is no column{did_you_mean(name, columns)}; the columns "
                    f"are: {', '.join(columns)}; write a brace as {{{{ or }}}}"
                )
        self._choices = choices
        self.names: Final = tuple(dict.fromkeys(name for _, name in self._parts if name is not None))
        """The columns that it names."""

    def fill(self, values: Mapping[str, Any], choices: str) -> str:
        """Return the text for a row.

        Args:
            values: the row.
            choices: its choices with their letters, one on each line.

        Raises:
            ValueError: the row has no value for a column.
        """
        parts = []
        for literal, name in self._parts:
            parts.append(literal)
            if name is not None:
                several = len(self._choices) > 1
                parts.append(choices if name in self._choices and not several else _shown(name, values.get(name)))
        return "".join(parts)


def _shown(name: str, value: Any) -> str:
    if value is None:
        raise ValueError(f"it has no {name!r}")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
