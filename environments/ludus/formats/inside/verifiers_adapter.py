"""verifiers: environments of `load_environment` (v0, up to 0.3) and tasksets (v1, from 0.4), by id or path."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from importlib import metadata
from types import ModuleType
from typing import Any

from .adapter import Adapter, HostedEpisode, NotUsable, description, need, split
from .verifiers_v0 import LoadedEnvironment
from .verifiers_v1 import LoadedTaskset

_NOT_PROMISED = {
    "seeds": "verifiers has none; whatever a rollout draws at random differs between episodes",
    "text next to a tool call": "a call reaches the environment without the text that the agent wrote with it",
    "parallel calls": "each call is a turn of its own",
    "token limits": "the environment sees no token counts, so its own limits on tokens do not apply",
}


class VerifiersAdapter(Adapter):
    """An environment or a taskset: an installed module's id, or the path of a Python file or folder.

    Options: `args`, the arguments of `load_environment` or the fields of the taskset's config; `agent`, the fields of
    the agent's config; `unsafe_shell`, `reply` and `failing_rewards`, as the settings say.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        need("verifiers")
        self.installed = metadata.version("verifiers")
        module = load_module(target)
        self.name = module.__name__
        self.loaded: Any = self._loaded(module)
        doc = (module.__doc__ or self.loaded.doc or "").strip()
        self.about = doc.partition("\n\n")[0][:2000]

    def _loaded(self, module: ModuleType) -> Any:
        of_v0, of_v1 = hasattr(module, "load_environment"), hasattr(module, "__all__")
        if of_v0 and has_v0():
            return LoadedEnvironment(module.__name__, self.options)
        if of_v1 and importlib.util.find_spec("verifiers.v1.rollout") is not None:
            return LoadedTaskset(module.__name__, self.options)
        here = f"{sys.executable} has verifiers {self.installed}"
        if of_v0:
            raise NotUsable(
                f"{self.target!r} defines load_environment, which needs verifiers below 0.4, and {here}; install one "
                f"with: pip install 'verifiers<0.2', and name its interpreter with #python=PATH"
            )
        if of_v1:
            raise NotUsable(f"{self.target!r} is a taskset, which needs verifiers 0.4 or newer, and {here}")
        raise NotUsable(
            f"{self.target!r} defines neither load_environment nor __all__ with a Taskset, so it is no environment of "
            "verifiers"
        )

    def describe(self) -> list[dict[str, Any]]:
        try:
            version = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            version = "0"
        return [
            description(
                self.name,
                self.about or f"The verifiers environment {self.name}.",
                [split(name, count, kind) for name, count, kind in self.loaded.splits],
                self.loaded.tools,
                task_tools=self.loaded.task_tools,
                package=f"verifiers {self.installed}",
                version=version,
                gradable=True,
                seedable=False,
                not_promised={**_NOT_PROMISED, **self.loaded.not_promised},
            )
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        private = {"split": split, "index": index, "digest": self.loaded.digest(split, index)}
        return {"id": f"{split}-{index}", "public": {"index": index}, "private": private}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        row = task["private"]
        if self.loaded.digest(row["split"], row["index"]) != row["digest"]:
            raise RuntimeError(f"the task {task['id']} is another than it was: loading it twice gives different data")
        episode: HostedEpisode = self.loaded.open(row["split"], row["index"])
        return episode


def has_v0() -> bool:
    """Return whether the installed verifiers has environments of `load_environment`."""
    try:
        return hasattr(importlib.import_module("verifiers"), "load_environment")
    except ImportError:
        return False


def load_module(target: str) -> ModuleType:
    """Import the module that a target names.

    Raises:
        NotUsable: there is none, or importing it fails.
    """
    if is_path(target):
        file, name = file_of(os.path.expanduser(target))
        return _import_file(file, name, target)
    name = target.rsplit("/", 1)[-1].partition("@")[0].replace("-", "_")
    if not name.isidentifier():
        raise NotUsable(f"{target!r} is neither the id of an environment, such as gsm8k, nor the path of one")
    for candidate in (f"verifiers.v1.tasksets.{name.lower()}", name, name.lower()):
        if _exists(candidate):
            return _importing(lambda found=candidate: importlib.import_module(found), target)
    raise NotUsable(
        f"there is no environment {target!r}: {sys.executable} has no module {name!r}; install the environment there, "
        "or give the path of its Python file or folder"
    )


def is_path(target: str) -> bool:
    """Return whether a target is a path rather than an id."""
    return target.startswith((".", "/", "~")) or target.endswith(".py") or os.path.exists(target)


def file_of(path: str) -> tuple[str, str]:
    """Return the Python file that a path names, and the name of its module.

    Raises:
        NotUsable: there is no such file, or a folder has several candidates.
    """
    path = os.path.abspath(path)
    if os.path.isfile(path):
        return path, _module_name(path)
    if not os.path.isdir(path):
        raise NotUsable(f"{path} does not exist")
    name = os.path.basename(path).replace("-", "_")
    places = [os.path.join(path, "__init__.py"), os.path.join(path, f"{name}.py"), os.path.join(path, name)]
    places[2] = os.path.join(places[2], "__init__.py")
    for place in places:
        if os.path.isfile(place):
            return place, name
    files = sorted(one for one in os.listdir(path) if one.endswith(".py") and _defines(os.path.join(path, one)))
    if len(files) != 1:
        found = "none of its Python files defines" if not files else f"{', '.join(files)} define"
        raise NotUsable(f"{path}: {found} load_environment or __all__; give the path of the file")
    return os.path.join(path, files[0]), _module_name(files[0])


def _module_name(file: str) -> str:
    name = os.path.splitext(os.path.basename(file))[0].replace("-", "_")
    if name == "__init__":
        name = os.path.basename(os.path.dirname(file)).replace("-", "_")
    if not name.isidentifier():
        raise NotUsable(f"{file} cannot be imported as Python, because {name!r} is no name of a module")
    return name


def _defines(file: str) -> bool:
    with open(file, encoding="utf-8", errors="replace") as stream:
        return re.search(r"^(def load_environment\b|__all__\b)", stream.read(), re.MULTILINE) is not None


def _import_file(file: str, name: str, target: str) -> ModuleType:
    """Import a file as a module, also for the processes that verifiers starts for tools."""
    package = os.path.basename(file) == "__init__.py"
    folder = os.path.dirname(os.path.dirname(file) if package else file)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder if not known else f"{folder}{os.pathsep}{known}"
    places = [os.path.dirname(file)] if package else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise NotUsable(f"{file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader

    def load() -> ModuleType:
        loader.exec_module(module)
        return module

    return _importing(load, target)


def _importing(load: Any, target: str) -> ModuleType:
    try:
        found: ModuleType = load()
    except ModuleNotFoundError as error:
        raise NotUsable(
            f"{target!r} needs the package {error.name!r}, which {sys.executable} does not have; install it with: "
            f"{sys.executable} -m pip install {(error.name or '').partition('.')[0]}"
        ) from None
    except Exception as error:
        raise NotUsable(f"importing {target!r} failed: {type(error).__name__}: {error}") from error
    return found


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


ADAPTER = VerifiersAdapter
