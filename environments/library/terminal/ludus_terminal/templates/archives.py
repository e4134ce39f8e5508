"""Archives, checksums and backups."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping

from ludus.server.authoring.workspace import EPOCH, gzipped, inflated
from ludus_terminal.problem import Goal, Problem, State, data_is, folder_is, lines_are
from ludus_terminal.registry import template
from ludus_terminal.world import World

_LARGEST = 4 * 2**20


def tar_gz(files: Mapping[str, bytes]) -> bytes:
    """Return a compressed tar archive of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(content), EPOCH
            tar.addfile(member, io.BytesIO(content))
    return gzipped(buffer.getvalue())


def archive_holds(path: str, expected: Mapping[str, bytes]) -> Goal:
    """Return the goal that a `.tar.gz` file has exactly these files, each once; folders do not count."""

    def met(state: State) -> bool:
        content = inflated(state.data(path) or b"", _LARGEST, 31)
        if content is None:
            return False
        found: list[tuple[str, bytes]] = []
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
                for member in tar:
                    if member.isdir():
                        continue
                    opened = tar.extractfile(member) if member.isreg() and not member.issparse() else None
                    if opened is None or len(found) > len(expected):
                        return False
                    found.append((member.name.removeprefix("./"), opened.read()))
        except (tarfile.TarError, OSError, EOFError):
            return False
        return len(found) == len(expected) and dict(found) == expected

    return Goal(f"{path} holds the right files", met)


@template("archives", "easy", "medium", "hard", split="validation")
def extract_file(w: World) -> Problem:
    """Take some files out of an archive."""
    folder, *names = w.words(9)
    files = {f"{folder}/{name}.txt": f"{w.prose(6)}\n".encode() for name in names}
    wanted = f"{folder}/{names[3]}.txt"
    if w.level == "easy":
        w.file("backup.tar.gz", tar_gz(files))
        text = f"Take the file `{wanted}` out of the archive `backup.tar.gz`, and put it at `restored/{names[3]}.txt`."
        commands = [f"mkdir restored; tar -xzOf backup.tar.gz {wanted} > restored/{names[3]}.txt"]
        return Problem(w.tree, text, [data_is(f"restored/{names[3]}.txt", files[wanted])], commands)
    days = sorted(w.some(range(1, 29), w.by_level(0, 4, 7)))
    last = b""
    for number, day in enumerate(days):
        inner = dict(files)
        if number < len(days) - w.by_level(0, 1, 2):
            last = f"{w.prose(5)} {day}\n".encode()
            inner[wanted] = last
        else:  # the newest backups do not have it, or have it empty
            inner.pop(wanted)
            if w.hard and number == len(days) - 1:
                inner[wanted] = b""
        content = tar_gz(inner)
        if w.hard:
            content = tar_gz(
                {"data.tar.gz": content, "data.sha256": hashlib.sha256(content).hexdigest().encode() + b"\n"}
            )
        w.file(f"backups/2024-03-{day:02}.tar.gz", content)
    text = f"The archives in `backups` are from the days in their names. Find the newest backup in which `{wanted}` is there"
    if w.hard:
        text += " and is not empty; each archive has the archive `data.tar.gz` in it, which has the files"
    text += f". Put that file at `restored/{names[3]}.txt`, and write the day of the backup, such as 2024-03-01, into `day.txt`."
    newest = f"2024-03-{days[-2] if w.level == 'medium' else days[-3]:02}"
    unpack = 'tar -xzOf "$f" data.tar.gz | tar -xzO' if w.hard else 'tar -xzO -f "$f"'
    commands = [
        f"mkdir restored; for f in $(ls -r backups/*); do {unpack} {wanted} > restored/{names[3]}.txt 2>/dev/null; "
        f"if [ -s restored/{names[3]}.txt ]; then basename $f .tar.gz > day.txt; break; fi; done"
    ]
    return Problem(w.tree, text, [data_is(f"restored/{names[3]}.txt", last), lines_are("day.txt", [newest])], commands)


@template("archives", "easy", "medium", "hard")
def pack_release(w: World) -> Problem:
    """Make an archive of some files."""
    name = w.word()
    expected: dict[str, bytes] = {}
    for word in w.words(w.by_level(5, 10, 14)):
        kind = w.r.choice(("py", "txt", "md") if w.level == "easy" else ("py", "txt", "o", "log"))
        inner = w.r.choice(("", "lib/", "build/", "lib/build/") if w.level != "easy" else ("", "lib/"))
        extra = w.r.choice(("", " 2", "'s", "\nb")) if w.hard else ""
        path, content = f"{name}/{inner}{word}{extra}.{kind}", f"{w.prose(4)}\n".encode()
        w.file(path, content)
        if kind in ("py", "txt", "md") and "build/" not in inner:
            expected[path] = content
    kept = f"{name}/{w.word()}.py"
    w.file(kept, "pass\n")
    expected[kept] = b"pass\n"
    text = f"Make the compressed archive `{name}.tar.gz` of the folder `{name}`, so that the paths in it begin with `{name}/`"
    options = ""
    if w.level != "easy":
        text += ". Leave out the files that end in `.o` or `.log`, and all files in folders named `build`"
        options = "--exclude='*.o' --exclude='*.log' --exclude=build "
    if w.hard:
        text += f". Also write the SHA-256 checksums of the files in it into `{name}.sha256`, in the format of `sha256sum`, so that `sha256sum -c {name}.sha256` succeeds in the working folder, one entry for each file, in any order"
    text += "."
    goals = [archive_holds(f"{name}.tar.gz", expected)]
    commands = [f"tar -czf {name}.tar.gz {options}{name}"]
    if w.hard:
        goals.append(Goal("the checksums are right", lambda state: _sums(state.text(f"{name}.sha256") or "") == {
            path: hashlib.sha256(content).hexdigest() for path, content in expected.items()
        }))  # fmt: skip
        commands.append(
            f"find {name} -name build -prune -o -type f ! -name '*.o' ! -name '*.log' -print0 | xargs -0 sha256sum > {name}.sha256"
        )
    return Problem(w.tree, text, goals, commands)


def _sums(text: str) -> dict[str, str] | None:
    """Return the checksums by path, as `sha256sum` writes them; None if a line is not one, or a path is twice."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        escaped = line.startswith("\\")
        digest, mark, path = line[escaped : 64 + escaped], line[64 + escaped : 66 + escaped], line[66 + escaped :]
        if escaped:
            path = path.replace("\\n", "\n").replace("\\\\", "\\")
        path = path.removeprefix("./")
        if mark not in ("  ", " *") or path in found:
            return None
        found[path] = digest.lower()
    return found


@template("archives", "easy", "medium", "hard", split="test")
def verify_checksums(w: World) -> Problem:
    """Find and repair files that do not have their checksum."""
    names = [f"data/{word}{w.r.choice(('', ' 2')) if w.hard else ''}.csv" for word in w.words(w.by_level(8, 12, 16))]
    good = {name: f"{w.prose(5)},{w.r.randint(1, 999)}\n".encode() for name in names}
    broken = sorted(w.some(names, w.by_level(2, 4, 5)))
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in good.items())
    w.file("SHA256SUMS", sums)
    for name, content in good.items():
        damaged = content.replace(b" ", b"_", 1) if w.r.random() < 0.5 else content[:-1]
        w.file(name, damaged if name in broken else content)
    text = "`SHA256SUMS` has the checksums of the files in `data`. Write the paths of the files that do not have their checksum into `broken.txt`, one on each line, sorted."
    check = "LC_ALL=C sha256sum -c SHA256SUMS 2>/dev/null | sed -n 's/: FAILED$//p' | LC_ALL=C sort > broken.txt"
    goals = [lines_are("broken.txt", broken)]
    if w.level == "easy":
        return Problem(w.tree, text, goals, [check])
    copies = {f"copy-{number}": dict(good) for number in range(w.by_level(0, 1, 3))}
    for index, name in enumerate(broken if w.hard else []):
        for number, copy in enumerate(copies.values()):
            if number != index % 3:
                copy[name] = copy[name].replace(b",", b";", 1)
    for copy_name, copy in copies.items():
        w.file(f"mirror/{copy_name}.tar.gz", tar_gz(copy))
    text += " Then repair them: take the right version of each from " + (
        "one of the archives in `mirror` (not every archive has the right version)."
        if w.hard
        else "the archive in `mirror`."
    )
    expected = {name.removeprefix("data/"): content for name, content in good.items()}
    commands = [
        check,
        'while IFS= read -r f; do for a in mirror/*; do tar -xzOf "$a" "$f" > /tmp/x; s=$(sha256sum < /tmp/x | cut -c1-64); '
        'if grep -qF "$s  $f" SHA256SUMS; then cat /tmp/x > "$f"; break; fi; done; done < broken.txt',
    ]
    return Problem(w.tree, text, [*goals, folder_is("data", expected)], commands, broken)


@template("archives", "easy", "medium", "hard")
def compare_archives(w: World) -> Problem:
    """Find what differs between two archives."""
    marks = ("", " 2", "'s") if w.hard else ("",)
    names = [
        f"{w.r.choice(('', 'lib/', 'lib/core/'))}{word}{w.r.choice(marks)}.txt"
        for word in w.words(w.by_level(9, 14, 20))
    ]
    contents = {name: f"{w.prose(5)}\n".encode() for name in names}
    added, removed, changed = (sorted(names[first::5]) for first in (0, 1, 2))
    before = {name: content for name, content in contents.items() if name not in added}
    after = {name: content for name, content in contents.items() if name not in removed}
    after |= {name: w.r.choice((contents[name][:-1], contents[name].replace(b" ", b"_", 1))) for name in changed}
    first, second = w.words(2)
    w.file(f"{first}.tar.gz", tar_gz(before))
    w.file(f"{second}.tar.gz", tar_gz(after))
    text = (
        f"Compare the files in the archives `{first}.tar.gz` (the old ones) and `{second}.tar.gz` (the new ones). Write the paths "
        "of the files that only the new archive has into `added.txt`, one on each line, sorted with LC_ALL=C."
    )
    goals = [lines_are("added.txt", added)]
    listed = " ".join(
        f"tar -tzf {name}.tar.gz | grep -v '/$' | LC_ALL=C sort > /tmp/{name};" for name in (first, second)
    )
    compared = f"LC_ALL=C comm -13 /tmp/{first} /tmp/{second} > added.txt"
    if w.level == "easy":
        return Problem(w.tree, text, goals, [f"{listed} {compared}"])
    text += (
        " In the same way, write those that only the old one has into `removed.txt`, and those that both have with different "
        "content into `changed.txt`."
    )
    goals += [lines_are("removed.txt", removed), lines_are("changed.txt", changed)]
    folders = f"mkdir /tmp/o /tmp/n; tar -xzf {first}.tar.gz -C /tmp/o; tar -xzf {second}.tar.gz -C /tmp/n"
    compared += f"; LC_ALL=C comm -23 /tmp/{first} /tmp/{second} > removed.txt; {folders}; LC_ALL=C comm -12 /tmp/{first} /tmp/{second} | "
    compared += 'while IFS= read -r f; do cmp -s "/tmp/o/$f" "/tmp/n/$f" || echo "$f"; done > changed.txt'
    if w.hard:
        text += f" Make the archive `delta.tar.gz` of the files in `added.txt` and `changed.txt`, with their paths and contents in `{second}.tar.gz`."
        goals.append(archive_holds("delta.tar.gz", {name: after[name] for name in (*added, *changed)}))
        compared += "; cat added.txt changed.txt > /tmp/l; tar -C /tmp/n -czf delta.tar.gz -T /tmp/l"
    return Problem(w.tree, text, goals, [f"{listed} {compared}"])
