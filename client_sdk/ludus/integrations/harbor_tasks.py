"""Task folders for Harbor that play episodes of a Ludus server.

How this works:

* A task without tools asks for one answer. The agent writes it to a file, and Harbor's separate verifier starts an
  episode, submits the file's text and reads the reward.
* A task with tools has a second container, `ludus`. It starts the episode and gives the agent its tools as an MCP
  server. After the agent has ended, Harbor stops it, copies the episode's id from `ludus` to the separate verifier, and
  the verifier ends the episode and reads the reward.
* In both cases only the verifier, and `ludus`, have the trainer token. It comes from the variable LUDUS_TOKEN of the
  machine that runs Harbor, and is not in the folder.
* The program in those containers is `ludus.integrations.harbor_program`, copied into the folder.
* `solution/` has what the environment's oracle did when the task was exported. Harbor gives it to its oracle only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from ludus.client import Answer, Call, Message, TaskAddress, text_of
from ludus.protocol.content import TextBlock
from ludus.protocol.errors import Unsupported

ANSWER_PATH: Final = "/app/answer.txt"
"""Where the agent of a task without tools writes its answer."""
IMAGE: Final = "python:3.12-slim"
"""The image that all containers of a task start from; the program in them needs Python."""
AGENT_SECONDS: Final = 3600.0
VERIFIER_SECONDS: Final = 900.0
SUBMIT_TOOL: Final = "submit_answer"
PROGRAM: Final = "ludus_task.py"

_DOCKERFILE: Final = f"FROM {IMAGE}\nWORKDIR /app\n"
_SIDECAR: Final = f'FROM {IMAGE}\nCOPY . /opt/ludus/\nCMD ["python3", "/opt/ludus/{PROGRAM}", "serve"]\n'
_VERIFIER: Final = f"FROM {IMAGE}\nCOPY . /tests/\n"
_TEST: Final = f"#!/bin/sh\nexec python3 /tests/{PROGRAM} score\n"
_SOLVE_TOOLS: Final = f"#!/bin/sh\nexec python3 /solution/{PROGRAM} solve\n"
_SOLVE_ANSWER: Final = f"#!/bin/sh\nexec cp /solution/answer.txt {ANSWER_PATH}\n"
_ANSWER_TEXT: Final = f"""

---

Write your final answer to the file `{ANSWER_PATH}`. The whole text of the file is graded, except for one line break at
its end.
"""
_TOOLS_TEXT: Final = """

---

Act only with the tools of the MCP server `ludus`: {tools}. They cannot be reset, and every call counts.{submit}
"""
_SUBMIT_TEXT: Final = f" Give your final answer with the tool `{SUBMIT_TOOL}`."
_COMPOSE: Final = f"""\
services:
  main:
    depends_on:
      ludus:
        condition: service_healthy
  ludus:
    build:
      context: ./ludus
    environment:
      LUDUS_TOKEN: ${{LUDUS_TOKEN:?the trainer token of the Ludus server}}
      LUDUS_URL: ${{LUDUS_URL:-}}
    healthcheck:
      test: ["CMD", "python3", "/opt/ludus/{PROGRAM}", "ready"]
      interval: 1s
      timeout: 10s
      retries: 60
"""
_NAME_CHARACTERS: Final = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task of an environment, as far as a task folder needs it."""

    address: TaskAddress
    prompt: Sequence[Message]
    tools: Sequence[str]
    """The names of its tools."""
    gradable: bool
    """Whether a final answer is graded."""
    index: int
    solution: Sequence[Call | Answer] | None = None
    """What the oracle did; None if there is no oracle."""
    oracle_reward: float | None = None
    """What the oracle earned."""

    @property
    def folder_name(self) -> str:
        """The task's id as the name of a folder."""
        return _NAME_CHARACTERS.sub("-", self.address.task.lower()).strip("-._")[:80] or f"task-{self.index}"


def task_files(task: HarborTask) -> dict[str, str]:
    """Return the files of a task folder, by path. Those ending in `.sh` are programs.

    Raises:
        Unsupported: the prompt has an image, which an instruction cannot show; or the task has neither tools nor a
            graded answer.
    """
    if not task.tools and not task.gradable:
        raise Unsupported(
            f"task {task.address.task!r} has neither tools nor a graded answer, so no agent can act in it"
        )
    settings = _settings(task)
    files = {
        "task.toml": _config(task),
        "instruction.md": _instruction(task),
        "environment/Dockerfile": _DOCKERFILE,
        "tests/test.sh": _TEST,
        f"tests/{PROGRAM}": _program(),
        "tests/task.json": settings,
    }
    if task.tools:
        files |= {
            "environment/docker-compose.yaml": _COMPOSE,
            "environment/ludus/Dockerfile": _SIDECAR,
            f"environment/ludus/{PROGRAM}": _program(),
            "environment/ludus/task.json": settings,
            "tests/Dockerfile": _VERIFIER,
        }
    if task.solution is not None:
        files |= _solution(task, task.solution)
    return files


def write_task(folder: Path, task: HarborTask) -> None:
    """Write a task folder, which must not exist yet.

    Raises:
        Unsupported: see `task_files`.
        OSError: the folder exists, or cannot be written.
    """
    files = task_files(task)
    folder.mkdir(parents=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        path.chmod(0o755 if name.endswith(".sh") else 0o644)


def _settings(task: HarborTask) -> str:
    """Return what the program needs to know of a task."""
    address = task.address
    settings = {
        "url": address.server.url,
        "environment": address.environment,
        "split": address.split,
        "task": address.task,
        "seed": address.seed,
        "answer": None if task.tools else ANSWER_PATH,
    }
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _instruction(task: HarborTask) -> str:
    for message in task.prompt:
        if not all(isinstance(block, TextBlock) for block in message.content):
            raise Unsupported(
                f"the prompt of task {task.address.task!r} has an image; an instruction of Harbor is text"
            )
    text = "\n\n".join(text_of(message.content) for message in task.prompt).strip()
    if not task.tools:
        return text + _ANSWER_TEXT
    tools = ", ".join(f"`{name}`" for name in task.tools)
    return text + _TOOLS_TEXT.format(tools=tools, submit=_SUBMIT_TEXT if task.gradable else "")


def _config(task: HarborTask) -> str:
    address = task.address
    artifact = {"source": "/ludus/episode.json", "service": "ludus"} if task.tools else {"source": ANSWER_PATH}
    tables: list[tuple[str, Mapping[str, Any]]] = [
        (
            "metadata.ludus",
            {
                "environment": address.environment,
                "split": address.split,
                "task": address.task,
                "seed": address.seed,
                "oracle_reward": task.oracle_reward,
            },
        ),
        ("agent", {"timeout_sec": AGENT_SECONDS}),
        ("verifier", {"timeout_sec": VERIFIER_SECONDS, "environment_mode": "separate"}),
        ("verifier.env", {"LUDUS_TOKEN": "${LUDUS_TOKEN}", "LUDUS_URL": "${LUDUS_URL:-}"}),
        ("[artifacts]", artifact),
    ]
    if task.tools:
        server = {"name": "ludus", "transport": "streamable-http", "url": "http://ludus:8000/mcp"}
        tables.append(("[environment.mcp_servers]", server))
    parts = ['schema_version = "1.4"']
    for name, values in tables:
        lines = [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
        parts.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(parts) + "\n"


def _toml(value: str | float) -> str:
    """Return a text or a finite number as TOML writes it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _solution(task: HarborTask, actions: Sequence[Call | Answer]) -> dict[str, str]:
    answers = [action.text for action in actions if isinstance(action, Answer)]
    if not task.tools:
        text = answers[-1] if answers else ""
        return {"solution/solve.sh": _SOLVE_ANSWER, "solution/answer.txt": f"{text}\n"}
    calls = [{"tool": one.tool, "arguments": one.arguments} for one in actions if isinstance(one, Call)]
    if answers and task.gradable:
        calls.append({"tool": SUBMIT_TOOL, "arguments": {"answer": answers[-1]}})
    recorded = json.dumps({"calls": calls}, indent=1, ensure_ascii=False) + "\n"
    return {"solution/solve.sh": _SOLVE_TOOLS, f"solution/{PROGRAM}": _program(), "solution/actions.json": recorded}


def _program() -> str:
    return (resources.files("ludus.integrations") / "harbor_program.py").read_text(encoding="utf-8")
