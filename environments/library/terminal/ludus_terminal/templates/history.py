"""A git history that templates build commit by commit."""

from __future__ import annotations

from collections.abc import Callable

from ludus.server.authoring.workspace import FIRST, Person, RepositoryWriter
from ludus_terminal.problem import State
from ludus_terminal.world import World

DAY = 86_400


class History:
    """A repository under construction.

    Attributes:
        files: the files of the newest commit of the current branch.
        head: the hash of that commit.
        commits: the hashes of all commits, in the order in which they were made.
    """

    def __init__(self, w: World) -> None:
        self._w = w
        self.writer = RepositoryWriter()
        self.files: dict[str, str] = {}
        self.head = ""
        self.commits: list[str] = []
        self.when = w.moment() // DAY * DAY
        self._people = [Person(name, f"{name.lower()}@example.com") for name in w.some(FIRST, 4)]

    def commit(self, message: str, changes: dict[str, str | None] | None = None, *parents: str) -> str:
        """Add a commit to the current branch.

        Args:
            message: its message.
            changes: new contents by path; None removes a file.
            parents: further parents.
        """
        for path, content in (changes or {}).items():
            if content is None:
                self.files.pop(path)
            else:
                self.files[path] = content
        self.when += self._w.r.randint(3600, 3 * DAY)
        before = [self.head] if self.head else []
        author = self._w.r.choice(self._people)
        self.head = self.writer.commit(self.files, [*before, *parents], message, author, self.when)
        self.commits.append(self.head)
        return self.head

    def start(self, count: int = 4) -> list[str]:
        """Make the first commit, of some files, and return their paths."""
        w = self._w
        paths = [f"src/{word}.txt" for word in w.words(count)]
        self.commit(
            "Start the project",
            {"README.md": f"# {w.project}\n\n{w.prose(8)}\n", **{path: prose(w, 6) for path in paths}},
        )
        return paths

    def edit(self, path: str, message: str | None = None) -> str:
        """Commit a change of one line of a file."""
        lines = self.files[path].splitlines()
        place = self._w.r.randrange(len(lines))
        lines[place] = f"{self._w.prose(4)} {self._w.r.randint(100, 999)}"
        return self.commit(message or self.subject(), {path: "\n".join(lines) + "\n"})

    def subject(self) -> str:
        """Return a message for a commit."""
        verb = self._w.r.choice(("Add", "Fix", "Update", "Improve", "Simplify", "Describe", "Extend"))
        return f"{verb} the {self._w.prose(2)}"

    def checkout(self, branch: str) -> None:
        """Put the repository, with this branch checked out, into the workspace."""
        self.writer.refs.setdefault(f"refs/heads/{branch}", self.head)
        self._w.tree.update(self.writer.entries(branch, self.files, self.when))


def prose(w: World, lines: int) -> str:
    """Return lines of words."""
    return "".join(f"{w.prose(5)} {w.r.randint(100, 999)}\n" for _ in range(lines))


def encoded(files: dict[str, str]) -> dict[str, bytes]:
    """Return the files with their contents as bytes."""
    return {path: content.encode() for path, content in files.items()}


def branch_keeps(branch: str, commit: str) -> Callable[[State], bool]:
    """Return the condition that a branch has a commit in its history."""
    return lambda state: commit in state.repository.ancestors(state.repository.target(f"refs/heads/{branch}"))


def branch_is(branch: str, commit: str) -> Callable[[State], bool]:
    """Return the condition that a branch is at a commit."""
    return lambda state: state.repository.target(f"refs/heads/{branch}") == commit


def clean(state: State, branch: str) -> bool:
    """Return whether a branch is checked out, and the working tree has exactly the files of its newest commit."""
    if state.repository.branch != branch:
        return False
    committed = state.repository.files(state.repository.target(f"refs/heads/{branch}"))
    present = {
        path: entry.data for path, entry in state.tree.items() if entry.kind == "file" and not path.startswith(".git/")
    }
    return committed is not None and all(present.get(path) == content for path, content in committed.items())
