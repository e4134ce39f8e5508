"""The options of `dataset:`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, Json

from ludus.protocol.episodes import SplitType

Grader = Literal[
    "exact", "normalized", "numeric", "math", "choice", "code", "checklist", "gsm8k", "skyrl"
]  # fmt: skip


class DatasetSettings(BaseModel):
    """The options of `dataset:`. Those that name columns are found by the columns' names where they are not given."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    grader: Grader | None = None
    """How the final message is scored; found only for multiple choice, GSM8K's answers and SkyRL's rows."""
    prompt: str | None = None
    """The column with the prompt: text, or a list of messages with `role` and `content`."""
    answer: str | None = None
    """The column with the answer, or with the tests of a program."""
    id: str | None = None
    """The column with the id of each task; the number of the row by default."""
    system: str | None = None
    """The column with the system message."""
    choices: str | None = None
    """The column with the choices, or several columns joined by `+`, as in `A+B+C+D`."""
    solution: str | None = None
    """The column with a message that earns 1, for the oracle."""
    function: str | None = None
    """For `code`: the column that names the function to test, or the name itself."""
    show: str | None = None
    """Further columns that task rows show, joined by `+`; `difficulty` and `level` by default."""
    template: str | None = Field(default=None, min_length=1)
    """The prompt, with each `{column}` replaced by the row's value; the choices appear with their letters."""
    split: str | None = None
    """The column with the split of each row."""
    test_fraction: float | None = Field(default=None, gt=0, lt=1)
    """The share of the tasks that become the split `test`, chosen by a hash of their ids."""
    split_types: Json[dict[str, SplitType]] = Field(default_factory=dict)
    """The types of splits whose names do not show it, as JSON: `{"hard":"test"}`."""
    answer_as: Literal["letter", "index", "text"] | None = None
    """For `choice`: whether the answer is a choice's letter, its number from 0, or its text."""
    relative: float | None = Field(default=None, ge=0)
    """For `numeric`: the relative tolerance, 1e-6 by default. For `code`: that of floats, by default 1e-5 for printed
    ones and 1e-9 for those that a function returns."""
    absolute: float = Field(default=1e-9, ge=0)
    """For `numeric`: the absolute tolerance; the greater one applies."""
    unit: str | None = None
    """For `numeric`: the unit of all answers, such as `km/h`."""
    checklist: str | None = None
    """For `checklist`: its file, JSON or TOML."""
    starter: str | None = None
    """For `code`: the column with the code that a program must begin with, such as `class Solution:`."""
    results: Literal["plain", "wrapped"] | None = None
    """For `code` with `fn_name`: whether an output is the function's result, or a list that holds it and nothing else.
    By default, outputs are such lists if all outputs of the row have exactly one element."""
    exact_numbers: bool = False
    """For `code`: whether 2 and 2.0 are different."""
    all_or_nothing: bool = False
    """For `code`: whether the reward is 0 unless all tests pass; otherwise it is the share that passes."""
    sandbox: str = "bubblewrap"
    """For `code`: the backend of the sandbox."""
    name: str | None = Field(default=None, max_length=100)
    """The published name; by default that of the file or folder."""
