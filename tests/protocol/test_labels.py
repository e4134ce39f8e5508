"""What makes a line of a board is plain, so that two lines that look alike are one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ludus.protocol.text import plain_label
from ludus.registry.types.results import Declared, RunInfo, RunParams

FIELDS: dict[str, object] = {"environment": "e", "split": "test", "tasks": 1}
TWINS = [
    "m\u200b", "\u200dm", "m\u2060", "\ufeffm", "m\u202e", "\u2066m\u2069", "m\u00ad", "m\u0301", "m\u0000", "m\x1b[2J",
    "\u043c", "\u0430", "g\u0440t-4", "\u03bf1", "m\u034f", "m\ufe0f", "\U000e0041m", "m\u115f", "\u2800", "\u0131",
]  # fmt: skip


@pytest.mark.parametrize("text", TWINS)
def test_a_name_with_a_twin_or_what_is_not_shown_is_refused_wherever_a_line_begins(text: str) -> None:
    with pytest.raises(ValueError, match="U\\+|nothing that is shown"):
        plain_label(text)
    for declared in ({"model": text}, {"model": "m", "harness": text}):
        RunParams.model_validate({**FIELDS, "declared": {"model": "m"}})
        with pytest.raises(ValidationError, match="declared"):
            RunParams.model_validate({**FIELDS, "declared": declared})


@pytest.mark.parametrize("text", ["gpt 4", " gpt  4 ", "gpt\u00a04", "\uff47\uff50\uff54 4", "g\u1d56t\u20034"])
def test_other_forms_of_the_same_letters_make_the_same_line(text: str) -> None:
    params = RunParams.model_validate({**FIELDS, "declared": {"model": text, "harness": text}})
    assert (params.declared.model, params.declared.harness) == ("gpt 4", "gpt 4")


def test_what_a_hub_has_kept_is_read_as_it_is() -> None:
    assert Declared(model="modèle", harness="h").model == "modèle"
    assert RunInfo.model_fields["declared"].annotation is Declared
