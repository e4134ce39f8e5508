"""Workspaces in a sandbox: files and git repositories that a task begins with, a shell, and what a policy left.

`pack` makes an archive that `tar` unpacks in the sandbox, `run_command` is the body of a tool `bash`, and `read_tree`
and `Repository` read the files and the repository afterwards, without running any program.
"""

from __future__ import annotations

from ludus.server.authoring.workspace.files import (
    EPOCH,
    Entry,
    Tree,
    directory,
    file,
    fingerprint,
    gzipped,
    inflated,
    link,
    pack,
    read_tree,
    unpack,
    zlibbed,
)
from ludus.server.authoring.workspace.repository import Person, Repository, RepositoryWriter
from ludus.server.authoring.workspace.shell import HOME, LONGEST_OUTPUT, VARIABLES, run_command, shown_result
from ludus.server.authoring.workspace.words import ADJECTIVES, CITIES, FIRST, LAST, NOUNS, SERVICES

__all__ = [
    "ADJECTIVES", "CITIES", "EPOCH", "FIRST", "HOME", "LAST", "LONGEST_OUTPUT", "NOUNS", "SERVICES", "VARIABLES",
    "Entry", "Person", "Repository", "RepositoryWriter", "Tree", "directory", "file", "fingerprint", "gzipped",
    "inflated", "link", "pack", "read_tree", "run_command", "shown_result", "unpack", "zlibbed",
]  # fmt: skip
