"""Files, folders, links and permissions."""

from __future__ import annotations

import hashlib
import shlex

from ludus.server.authoring.workspace import directory, link
from ludus_terminal.problem import (
    Goal,
    Problem,
    State,
    data_is,
    folder_is,
    gone,
    lines_are,
    mode_is,
    text_is,
)
from ludus_terminal.registry import template
from ludus_terminal.world import World, stamp

DAY = 86_400


@template("files", "easy")
def skeleton(w: World) -> Problem:
    """Create folders and files with given content."""
    top, *rest = w.words(6)
    first, second = w.person()
    w.file("NOTES.txt", f"{w.prose(12)}\n")
    version = f"{w.r.randint(0, 9)}.{w.r.randint(0, 30)}.{w.r.randint(0, 30)}"
    text = (
        f"Create the folder `{top}` with the empty folders `{rest[0]}` and `{rest[1]}` in it. Then create two files:\n"
        f"- `{top}/VERSION` with the line `{version}`\n"
        f"- `{top}/{rest[2]}/OWNER` with the line `{first} {second}`"
    )

    def empty(folder: str) -> Goal:
        def met(state: State) -> bool:
            entry = state.tree.get(folder)
            inside = [path for path in state.tree if path.startswith(f"{folder}/")]
            return entry is not None and entry.kind == "directory" and not inside

        return Goal(f"{folder} is an empty folder", met)

    goals = [
        empty(f"{top}/{rest[0]}"), empty(f"{top}/{rest[1]}"), text_is(f"{top}/VERSION", version),
        text_is(f"{top}/{rest[2]}/OWNER", f"{first} {second}"),
    ]  # fmt: skip
    commands = [
        f"mkdir -p {top}/{rest[0]} {top}/{rest[1]} {top}/{rest[2]}",
        f"echo {version} > {top}/VERSION; echo '{first} {second}' > {top}/{rest[2]}/OWNER",
    ]
    return Problem(w.tree, text, goals, commands)


@template("files", "easy", "medium", "hard", split="test")
def sort_inbox(w: World) -> Problem:
    """Move files into folders by their extension."""
    extensions = w.some(["txt", "csv", "png", "pdf", "md", "log", "json", "xml"], w.by_level(2, 4, 5))
    expected: dict[str, dict[str, bytes]] = {extension: {} for extension in extensions}
    names = w.words(w.by_level(6, 12, 16))
    for number, name in enumerate(names):
        extension = extensions[number % len(extensions)]
        shown = extension
        if w.hard:
            name = w.r.choice((name, f"{name} copy", f"-{name}", f"{name}'s", f"{name}\n2", f"  {name}", f".{name}"))
            shown = w.r.choice((extension, extension.upper(), extension.capitalize()))
        content = f"{name} {w.r.getrandbits(40):x}\n".encode()
        w.file(f"inbox/{name}.{shown}", content)
        expected[extension][f"{name}.{shown}"] = content
    untouched = w.words(2)
    for name in untouched:
        w.file(f"inbox/{name}", w.prose(5) + "\n")
    text = (
        "Sort the files in `inbox` by their extension: move each file that has one into the folder `sorted/EXTENSION`, "
        "such as `sorted/txt`, and keep its name. Files without an extension stay in `inbox`."
    )
    if w.hard:
        text += (
            " The folder's name is in lower case, whatever the case of the extension. Names may begin with a dot, a "
            "space or a hyphen, and may have spaces, quotes and newlines in them."
        )
    goals = [folder_is(f"sorted/{extension}", expected[extension]) for extension in extensions]
    moved = [path for path in w.tree if path.removeprefix("inbox/") not in untouched]
    goals.append(
        Goal("the sorted files have left the inbox", lambda state: not any(path in state.tree for path in moved))
    )
    program = (
        'shopt -s nullglob dotglob; cd inbox; for f in *.*; do e="${f##*.}"; e="${e,,}"; '
        'mkdir -p "../sorted/$e"; mv -- "$f" "../sorted/$e/"; done'
    )
    return Problem(w.tree, text, goals, [program], ["inbox/*.*"])


@template("files", "medium", "hard")
def fix_permissions(w: World) -> Problem:
    """Set permissions by rules."""
    folders = w.words(w.by_level(2, 3, 4))
    wanted: dict[str, int] = {}
    for folder in folders:
        for name in w.words(5):
            kind = w.r.choice(("sh", "key", "txt", "sh", "key"))
            extra = w.r.choice(("", " old", "-2")) if w.hard else ""
            path = f"{folder}/{name}{extra}.{kind}"
            mode = {"sh": 0o755, "key": 0o600, "txt": 0o644}[kind]
            before = w.r.choice([one for one in (0o777, 0o666, 0o644, 0o600, 0o755) if one != mode])
            content = "#!/bin/sh\necho ok\n" if kind == "sh" else f"{w.r.getrandbits(64):x}\n"
            w.file(path, content, before)
            wanted[path] = mode
    marked = f"{folders[0]}/{w.word()}"
    w.file(marked, "#!/usr/bin/env python3\nprint('ok')\n", 0o644)
    w.file("README", w.prose(9) + "\n", 0o640)
    w.file(f"{folders[1]}/{w.word()}.dat", w.prose(3) + "\n", 0o664)
    w.file(f"{folders[0]}/{w.word()}", w.prose(3) + "\n", 0o660)
    text = (
        f"Set the permissions of the files below {', '.join(f'`{one}`' for one in folders)}: `.sh` files get 755, "
        "`.key` files get 600, and `.txt` files get 644."
    )
    commands = [f"find {' '.join(folders)} -name '*.{kind}' -exec chmod {mode} {{}} +"
                for kind, mode in (("sh", 755), ("key", 600), ("txt", 644))]  # fmt: skip
    if w.hard:
        wanted[marked] = 0o755
        text += " A file without an extension whose first line begins with `#!` gets 755, too."
        commands.append(
            f'find {" ".join(folders)} -type f ! -name \'*.*\' -exec sh -c \'head -c2 "$1" | grep -q "^#!" && '
            'chmod 755 "$1"\' sh {} \\;'
        )
    else:
        w.tree.pop(marked)
    text += " Leave the permissions of all other files, and the content of all files, as they are."
    all_of = [mode_is(path, mode) for path, mode in wanted.items()]
    goals = [Goal("all files have their mode", lambda state: all(one.met(state) for one in all_of))]

    def content_kept(state: State) -> bool:
        return all(state.data(path) == w.tree[path].data for path in wanted)

    return Problem(w.tree, text, goals, commands, list(wanted), [content_kept], keep_modes=True)


@template("files", "easy", "medium")
def largest_files(w: World) -> Problem:
    """List the largest files."""
    folders = w.words(3)
    sizes = w.some(range(200, 4000), w.by_level(6, 18, 0))
    paths: dict[str, int] = {}
    for size in sizes:
        depth = w.r.randint(1, w.by_level(1, 3, 3))
        path = "/".join([*(w.r.choice(folders) for _ in range(depth)), f"{w.word()}.bin"])
        w.file(path, bytes(w.r.choices(range(97, 123), k=size)))
        paths[path] = size
    ranked = sorted(paths, key=lambda path: -paths[path])
    if w.level == "easy":
        text = "Find the largest file below the working folder, and write its path (relative, such as `a/b.bin`) into `largest.txt`."
        goals = [text_is("largest.txt", ranked[0])]
        commands = [
            "find . -type f -printf '%s %P\\n' | sort -rn | head -1 | cut -d' ' -f2 > /tmp/l; cp /tmp/l largest.txt"
        ]
    else:
        text = (
            "Find the five largest files below the working folder, and write them into `largest.txt`, the largest "
            "first: one line for each, with its size in bytes, a space, and its path (relative, such as `a/b.bin`)."
        )
        goals = [lines_are("largest.txt", [f"{paths[path]} {path}" for path in ranked[:5]])]
        commands = ["find . -type f -printf '%s %P\\n' | sort -rn | head -5 > /tmp/l; cp /tmp/l largest.txt"]
    return Problem(w.tree, text, goals, commands)


@template("files", "medium", "hard")
def remove_duplicates(w: World) -> Problem:
    """Delete files whose content another file has."""
    folders = w.words(3)
    contents = [f"{w.prose(6)} {w.r.getrandbits(32)}\n".encode() for _ in range(7)]
    first: dict[bytes, str] = {}
    for number in range(w.by_level(0, 12, 20)):
        mark = w.r.choice(("", " (1)", " copy", "\n")) if w.hard else ""
        path = f"{w.r.choice(folders)}/{w.word()}{mark}.dat"
        w.file(path, contents[number % 7 if number < 9 else w.r.randrange(7)])
    for path in sorted(w.tree, key=str.encode):
        first.setdefault(w.tree[path].data, path)
    keep = set(first.values())
    extra = [path for path in w.tree if path not in keep]
    near = f"{folders[0]}/{w.word()}.dat"
    w.file(near, contents[0].rstrip(b"\n") + b" \n")  # as long as no other, and nearly equal
    text = (
        "Some files below the working folder have equal content. Of each set of equal files keep the one whose path "
        "comes first (relative paths compared byte by byte, as with LC_ALL=C), and delete the others."
    )
    if w.hard:
        text += " Names may have spaces and newlines in them."
    goals = [
        Goal("no duplicate is left", lambda state: not any(path in state.tree for path in extra)),
        Goal(
            "half of the duplicates are gone", lambda state: sum(path in state.tree for path in extra) * 2 <= len(extra)
        ),
    ]
    program = (
        "find . -name '*.dat' -print0 | LC_ALL=C sort -z | while IFS= read -r -d '' f; do s=$(sha256sum < \"$f\"); "
        'if grep -qx "$s" /tmp/seen 2>/dev/null; then rm -- "$f"; else echo "$s" >> /tmp/seen; fi; done'
    )
    return Problem(w.tree, text, goals, [program], extra)


@template("files", "easy", "medium", "hard", split="validation")
def rename_photos(w: World) -> Problem:
    """Rename numbered files."""
    event, other = w.word(), w.word()
    count = w.by_level(6, 14, 20)
    numbers = sorted(w.some(range(1, 500), count))
    expected: dict[str, bytes] = {}
    for number in numbers:
        content = bytes([255, 216, *w.r.randbytes(12)])
        if w.hard:
            name = w.r.choice(
                (f"IMG_{number}.JPG", f"img {number}.jpeg", f"Img-{number:04}.jpg", f"IMG_{number:03}.Jpeg")
            )
        else:
            name = f"IMG_{number}.jpeg"
        w.file(f"photos/{name}", content)
        expected[f"{event}-{number:04}.jpg"] = content
    keep = {f"{other}.png": w.r.randbytes(9), "index.txt": f"{w.prose(7)}\n".encode()}
    for name, content in keep.items():
        w.file(f"photos/{name}", content)
    if w.hard:
        text = (
            "Rename the pictures in `photos`. Their names are IMG in any case, then `_`, `-` or a space, a number that "
            f"may have zeros in front, and `.jpg` or `.jpeg` in any case. The new name is `{event}-NNNN.jpg`, with the "
            f"number in four digits: `IMG_7.JPG` becomes `{event}-0007.jpg`."
        )
    else:
        text = (
            f"Rename the files `IMG_N.jpeg` in `photos` to `{event}-NNNN.jpg`, with the number in four digits: "
            f"`IMG_7.jpeg` becomes `{event}-0007.jpg`."
        )
    text += " Leave the other files in `photos` as they are."
    program = (
        "cd photos; shopt -s nocasematch nullglob; for f in *; do if [[ $f =~ ^img[_\\ -]0*([0-9]+)\\.jpe?g$ ]]; then "
        f'mv -- "$f" "$(printf \'{event}-%04d.jpg\' "${{BASH_REMATCH[1]}}")"; fi; done'
    )
    goals = [folder_is("photos", {**expected, **keep})]
    return Problem(w.tree, text, goals, [program], ["photos/[Ii]*[0-9]*"])


@template("files", "easy", "medium", split="test")
def repair_links(w: World) -> Problem:
    """Point symbolic links to where their targets are now."""
    app = w.word()
    if w.level == "easy":
        versions = sorted(w.some(range(10, 60), 4))
        for version in versions:
            w.file(f"releases/{app}-1.{version}/VERSION", f"1.{version}\n")
        w.tree["current"] = link(f"releases/{app}-1.{versions[0]}")
        target = f"releases/{app}-1.{versions[-1]}"
        text = (
            "`current` is a symbolic link to one of the releases in `releases`. Make it a relative symbolic link to "
            f"the release with the highest version instead, such as `releases/{app}-1.{versions[1]}`."
        )
        goal = Goal("current leads to the release", lambda state: _leads(state, "current", {target}))
        return Problem(w.tree, text, [goal], [f"ln -sfn {target} current"], ["current"])
    old, new = w.words(2)
    broken: dict[str, str] = {}
    for name in w.words(6):
        w.file(f"store/{new}/{name}.cfg", f"{name}={w.r.randint(1, 999)}\n")
        broken[f"links/{name}"] = f"../store/{new}/{name}.cfg"
        w.tree[f"links/{name}"] = link(f"../store/{old}/{name}.cfg")
    good = w.word()
    w.file(f"store/{good}.cfg", "good=1\n")
    w.tree[f"links/{good}"] = link(f"../store/{good}.cfg")
    text = (
        f"The folder `store/{old}` was renamed to `store/{new}`, so symbolic links in `links` are broken. Repair them: "
        "each broken link becomes a relative symbolic link to the file with its old name in the new folder."
    )
    goals = [Goal("all links lead to their files", lambda state: all(
        _leads(state, path, {target})
        for path, target in broken.items()
    ))]  # fmt: skip
    program = (
        f'for f in links/*; do t=$(readlink "$f"); [ -e "$f" ] || ln -sfn "${{t/store\\/{old}/store/{new}}}" "$f"; done'
    )
    return Problem(w.tree, text, goals, [program], list(broken))


def _leads(state: State, path: str, targets: set[str]) -> bool:
    entry = state.tree.get(path)
    if entry is None or entry.kind != "link":
        return False
    target = entry.data.decode("utf-8", "replace").removeprefix("./").rstrip("/")
    return target in targets


@template("files", "medium", "hard", split="validation")
def delete_stale(w: World) -> Problem:
    """Delete old files."""
    limit = w.moment() // DAY * DAY
    kinds = w.some(["tmp", "cache", "bak", "swp"], 2)
    stale: list[str] = []
    folders = w.words(3)
    for number in range(w.by_level(0, 14, 24)):
        kind = w.r.choice((*kinds, kinds[0], "txt", "db"))
        old = number % 2 == 0
        mtime = limit - w.r.randint(60, 90 * DAY) if old else limit + w.r.randint(60, 90 * DAY)
        name = w.word() + (w.r.choice(("", " 2", "\nx", "'s")) if w.hard else "")
        path = f"{w.r.choice(folders)}/{name}.{kind}"
        size = w.r.randint(0, 1) * w.r.randint(1, 300)
        w.file(path, bytes(w.r.choices(range(97, 123), k=size)), mtime=mtime)
        if old and kind == kinds[0] and (size > 0 or not w.hard):
            stale.append(path)
    path = f"{folders[0]}/{w.word()}.{kinds[0]}"
    w.file(path, "stale\n", mtime=limit - 5 * DAY)
    stale.append(path)
    date = stamp(limit, "%Y-%m-%d")
    text = (
        f"Delete all `.{kinds[0]}` files below the working folder that were last modified before {date} 00:00 UTC"
        + (", except empty ones" if w.hard else "")
        + ". Delete nothing else."
    )
    nonempty = " -size +0" if w.hard else ""
    commands = [f"find . -type f -name '*.{kinds[0]}' ! -newermt '{date} 00:00 UTC'{nonempty} -delete"]
    goals = [Goal("all stale files are gone", lambda state: not any(one in state.tree for one in stale))]
    return Problem(w.tree, text, goals, commands, stale)


@template("files", "easy", split="validation")
def split_out_backup(w: World) -> Problem:
    """Copy one folder, delete another, and write a checksum."""
    source, target, old = w.words(3)
    expected: dict[str, bytes] = {}
    for name in w.words(4):
        content = f"{w.prose(8)}\n".encode()
        w.file(f"{source}/{name}.txt", content)
        expected[f"{name}.txt"] = content
    for name in w.words(2):
        w.file(f"{old}/{name}.txt", w.prose(4) + "\n")
    chosen = w.r.choice(sorted(expected))
    sum_ = hashlib.sha256(expected[chosen]).hexdigest()
    text = (
        f"Copy the folder `{source}` to `{target}`, delete the folder `{old}`, and write the SHA-256 checksum of "
        f"`{source}/{chosen}` in hexadecimal (only the 64 digits) into `checksum.txt`."
    )
    goals = [folder_is(target, expected), gone(old), text_is("checksum.txt", sum_)]
    commands = [
        f"cp -r {source} {target}; rm -r {old}",
        f"sha256sum {shlex.quote(f'{source}/{chosen}')} | cut -c1-64 > checksum.txt",
    ]
    w.tree[old] = directory()
    return Problem(w.tree, text, goals, commands, [f"{old}/*", old])


@template("files", "hard")
def mirror_folder(w: World) -> Problem:
    """Make one folder equal to another without copying what must not be copied."""
    source, target = w.words(2)
    expected: dict[str, bytes] = {}
    for number, name in enumerate(w.words(14)):
        inner = w.r.choice(("", f"{name[:3]}/", f"{name[:3]} {name[3:5]}/deep/"))
        path = f"{inner}{name}.{w.r.choice(('c', 'h', 'txt'))}"
        content = f"{w.prose(3)} {w.r.getrandbits(30)}\n".encode()
        w.file(f"{source}/{path}", content)
        expected[path] = content
        if number % 3 == 0:  # an older copy
            w.file(f"{target}/{path}", "old\n")
        if number % 4 == 1:
            w.file(f"{target}/{inner}{name}.gone", "left over\n")
    for skipped in ("cache/a.o", f".git/{w.word()}", f"{expected and next(iter(expected))}.o"):
        w.file(f"{source}/{skipped}", "skip\n")
    text = (
        f"Make `{target}` a mirror of `{source}`: the same files with the same content in the same folders, and no "
        f"others. Files that end in `.o` and files in folders named `.git` are not mirrored. `{source}` stays as it is."
    )
    goals = [folder_is(target, expected)]
    commands = [
        f"rm -rf {target}; mkdir {target}; tar -C {source} --exclude='*.o' --exclude=.git -cf - . | tar -C {target} -xf -"
    ]
    return Problem(w.tree, text, goals, commands, [f"{target}/*"])


@template("files", "easy")
def append_entry(w: World) -> Problem:
    """Add lines to a file, and make another executable."""
    names = w.words(5)
    before = "".join(f"- {name}\n" for name in names)
    added, script = w.word(), w.word()
    w.file("LIST.md", before)
    w.file(f"tools/{script}.sh", f"#!/bin/sh\necho {added}\n", 0o644)
    text = f"Append the line `- {added}` to `LIST.md`, and make `tools/{script}.sh` executable for everyone (mode 755)."
    goals = [data_is("LIST.md", f"{before}- {added}\n".encode()), mode_is(f"tools/{script}.sh", 0o755)]
    commands = [f"echo '- {added}' >> LIST.md; chmod 755 tools/{script}.sh"]
    return Problem(w.tree, text, goals, commands, ["LIST.md"])


@template("files", "easy", "medium", "hard")
def flatten_folder(w: World) -> Problem:
    """Bring the files of nested folders into one folder."""
    source, target = w.words(2)
    ending, other = w.some(["csv", "txt", "dat", "xml"], 2)
    expected: dict[str, bytes] = {}
    folders = w.words(4)
    marks = ("", " copy", "'s", "\nb", "*") if w.hard else ("",)
    for number, word in enumerate(w.words(w.by_level(8, 9, 14))):
        inner = "/".join(w.r.choices(folders, k=w.r.randint(1, w.by_level(2, 3, 4))))
        name = f"{word}{w.r.choice(marks)}.{(ending, ending, other)[number % 3]}"
        content = f"{w.prose(5)}\n".encode()
        w.file(f"{source}/{inner}/{name}", content)
        if w.level != "easy":
            expected[f"{inner}/{name}".replace("/", "__")] = content
        elif name.endswith(ending):
            expected[name] = content
    if w.level == "easy":
        text = (
            f"Copy all `.{ending}` files below the folder `{source}`, however deep they are, into the new folder "
            f"`{target}`, without subfolders. `{source}` stays as it is."
        )
        commands = [f"mkdir {target}; find {source} -name '*.{ending}' -exec cp -t {target} {{}} +"]
        return Problem(w.tree, text, [folder_is(target, expected)], commands)
    text = (
        f"Move all files below the folder `{source}` into the new folder `{target}`, without subfolders. The new name of a "
        f"file is its path in `{source}` with `__` instead of each `/`, such as `{folders[0]}__{folders[1]}__{w.word()}.{ending}`. "
        f"Then delete `{source}`."
    )
    skip = ""
    if w.hard:
        text += " Files named `.keep` are not moved, but deleted. Names may have spaces, quotes and newlines in them."
        skip = "! -name .keep "
        for folder in folders[:3]:
            w.file(f"{source}/{folder}/.keep", "")
    commands = [
        f'mkdir {target}; cd {source}; find . -type f {skip}-print0 | while IFS= read -r -d "" f; do p="${{f#./}}"; '
        f'mv -- "$f" "../{target}/${{p//\\//__}}"; done; cd ..; rm -r {source}'
    ]
    right = folder_is(target, expected)
    goals = [Goal("the files have moved", lambda state: right.met(state) and source not in state.tree)]
    w.tree[source] = directory()
    return Problem(w.tree, text, goals, commands, [f"{source}/*", source])


@template("files", "easy", "medium")
def folder_sizes(w: World) -> Problem:
    """Sum the sizes of the files of folders."""
    folders = w.words(w.by_level(3, 7, 0))
    sizes = dict.fromkeys(folders, 0)
    for number in range(w.by_level(9, 30, 0)):
        folder = folders[number % len(folders)]
        size = w.r.randint(10, 900) + number
        inner = w.r.choice(("", f"{w.prose(1)}/", ".hidden/", f"{w.prose(1)}/deep/"))
        w.file(f"{folder}/{inner}{w.word()}.bin", bytes(w.r.choices(range(97, 123), k=size)))
        sizes[folder] += size
    if w.level == "easy":
        text = (
            f"Write the total size of all files below the folder `{folders[0]}` in bytes into `size.txt`: the sum of the "
            "sizes of their contents, those of hidden folders included."
        )
        commands = [f"find {folders[0]} -type f -printf '%s\\n' | awk '{{s+=$1}} END {{print s}}' > size.txt"]
        return Problem(w.tree, text, [text_is("size.txt", str(sizes[folders[0]]))], commands)
    least = sorted(sizes.values())[1]
    ranked = sorted((folder for folder in folders if sizes[folder] >= least), key=lambda name: (-sizes[name], name))
    text = (
        "For each folder that is directly in the working folder, take the sum of the sizes of all files below it, in bytes, "
        f"those of hidden folders included. Write the folders with {least} bytes or more into `sizes.txt`, the largest "
        "first: one line for each, with the sum, a space, and the name; equal ones in alphabetical order."
    )
    commands = [
        "find . -mindepth 2 -type f -printf '%s %P\\n' | awk '{split($2, p, \"/\"); s[p[1]]+=$1} "
        f"END {{for (f in s) if (s[f] >= {least}) print s[f], f}}' | LC_ALL=C sort -k1,1nr -k2,2 > sizes.txt"
    ]
    return Problem(w.tree, text, [lines_are("sizes.txt", [f"{sizes[name]} {name}" for name in ranked])], commands)
