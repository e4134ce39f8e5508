"""`harbor:FOLDER`: task folders of Harbor and Terminal-Bench 2, one or a folder of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ludus.formats.harbor_tasks.environment import HarborEnvironment, HarborTask
from ludus.formats.harbor_tasks.folder import HarborFolder, HarborSettings, read_folders
from ludus.server import Environment, Split
from ludus.server.tasks.formats import FormatSource

NOT_PROMISED: Final = {
    "seeds": "programs may behave differently each time",
    "background processes": "processes end with the command that started them",
    "root": "commands run as an ordinary user, and only in the task's own directories and /tmp can files be written",
    "public network": "only hosts of the option network are reachable, through a proxy",
    "users, cpus, skills": "these entries of task.toml have no effect",
}
_NAME_CHARACTERS: Final = re.compile(r"[^a-z0-9._-]+")


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment whose tasks are in a folder.

    Raises:
        AuthoringError: there are no tasks, one cannot run here, or an option cannot be used.
    """
    settings = source.settings(HarborSettings)
    target = Path(source.target).expanduser()
    folders = read_folders(target, settings)
    tasks = [HarborTask(id=folder.id, instruction=folder.instruction) for folder in folders]
    name = settings.name or _NAME_CHARACTERS.sub("-", target.resolve().name.lower()).strip("-._")[:64] or "harbor"
    fields = {
        "__doc__": _description(folders),
        "__module__": __name__,
        "name": name,
        "splits": {settings.split: Split(tasks, settings.split)},
        "folders": {folder.id: folder for folder in folders},
        "settings": settings,
        "reward_range": None if settings.best is None else (0.0, settings.best),
    }
    return [type(f"Harbor_{name}", (HarborEnvironment,), fields)]


def _description(folders: Sequence[HarborFolder]) -> str:
    count = f"{len(folders)} tasks" if len(folders) > 1 else "A task"
    parts = [f"{count} in Harbor's format, each checked by its own tests after the agent has ended."]
    parts += [f"Not promised: {subject} ({reason})." for subject, reason in NOT_PROMISED.items()]
    return "\n\n".join(parts)
