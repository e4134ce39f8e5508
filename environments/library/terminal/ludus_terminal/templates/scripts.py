"""Scripts that the policy writes, and that hidden inputs test."""

from __future__ import annotations

import hashlib
from collections import Counter

from ludus.server.authoring.workspace import Entry, directory, file
from ludus_terminal.problem import Case, Goal, Problem
from ludus_terminal.registry import template
from ludus_terminal.world import World


def write(path: str, script: str) -> str:
    """Return a command line that writes an executable script."""
    return f"cat > {path} <<'END'\n{script}END\nchmod 755 {path}"


@template("scripts", "medium", "hard", split="validation")
def rotate_backups(w: World) -> Problem:
    """Write a script that keeps the newest backups."""
    prefix = w.word()
    w.file("README", f"{w.prose(5)}\n")
    for day in w.some(range(1, 29), 3):
        w.file(f"example/{prefix}-2024-02-{day:02}.tar", "x\n")
    name = f"rotate-{w.word()}.sh"
    text = (
        f"Write the bash script `{name}`. `bash {name} FOLDER COUNT` keeps the newest COUNT backups in FOLDER and deletes the older "
        f"ones. Backups are the files named `{prefix}-YYYY-MM-DD.tar` there; the date in the name counts. It deletes nothing else, "
        "and prints the names of the deleted files (without the folder), sorted, one on each line. "
        "It exits with 2, and deletes nothing, if FOLDER does not exist or COUNT is not a whole number. "
        "It is tested with other folders"
        + (
            ", also with spaces in their names; COUNT may be 0, and greater than the number of backups."
            if w.hard
            else "."
        )
    )
    cases = []
    for folder, count, total in (
        ("store", 2, 5),
        *((("my store", 0, 3), ("-old", 9, 4)) if w.hard else (("b", 1, 4),)),
    ):
        days = sorted(w.some(range(0, 700), total))
        names = [f"{prefix}-{2021 + day // 336}-{day // 28 % 12 + 1:02}-{day % 28 + 1:02}.tar" for day in days]
        others = [
            f"{prefix}-notes.tar",
            f"{prefix}-2019-01-01.tar.gz",
            f"x{prefix}-2019-01-01.tar",
            f"{prefix}-2019-1-1.tar",
        ]
        tree: dict[str, Entry] = {f"{folder}/{one}": file(f"{one}\n") for one in names + others}
        gone = names[: max(0, total - count)]
        after = {f"{folder}/{one}": None if one in gone else f"{one}\n".encode() for one in names + others}
        shown = folder if not folder.startswith("-") else f"./{folder}"
        cases.append(Case(("bash", name, shown, str(count)), tree, stdout="\n".join(gone), after=after, exactly=folder))
    kept = {f"store/{prefix}-2020-01-0{day}.tar": b"x\n" for day in range(1, 4)}
    errors = [
        Case(("bash", name, "nowhere", "1"), exit_code=2),
        *(Case(("bash", name, "store", count), {path: file(content) for path, content in kept.items()}, exit_code=2, after=kept)
          for count in ("two", "-1", "1.5", "")),
    ]  # fmt: skip
    script = (
        '#!/bin/bash\nif [ ! -d "$1" ] || ! [[ "$2" =~ ^[0-9]+$ ]]; then echo "usage: FOLDER COUNT" >&2; exit 2; fi\n'
        f'cd -- "$1" || exit 2\nls -1 | grep -E "^{prefix}-[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}\\.tar$" | sort | head -n "-$2" |\n'
        'while IFS= read -r one; do rm -- "$one"; echo "$one"; done\n'
    )
    goals = [Goal("it rotates", cases=tuple(cases)), Goal("it rejects wrong arguments", cases=(cases[0], *errors))]
    return Problem(w.tree, text, goals, [write(name, script)], program=[name])


@template("scripts", "easy", "medium", "hard")
def report_script(w: World) -> Problem:
    """Write a script that sums up a file."""
    name, label = f"{w.word()}.sh", w.word()
    w.file("sample.csv", "apple,3\npear,4\napple,5\n")
    text = (
        f"Write the bash script `{name}`. `bash {name} FILE` reads a file with lines `NAME,NUMBER` (names without commas, whole "
        f"numbers), and prints `{label}: SUM` with the sum of all numbers"
    )
    if w.level != "easy":
        text += ", and then, for each name, `NAME SUM`, the greatest sum first, equal sums in alphabetical order of the names"
    text += (
        f". For `sample.csv` it prints `{label}: 12`" + (", `apple 8` and `pear 4`" if w.level != "easy" else "") + ". "
    )
    if w.hard:
        text += (
            "Names may have spaces in them, and spaces around names and numbers do not count. Empty lines are skipped. If a line "
            "has another form, it writes a message to standard error, prints nothing to standard output, and exits with 3. "
        )
    text += "It is tested with other files."
    names = [w.prose(2) if w.hard else w.prose(1) for _ in range(5)]
    rows = [(w.r.choice(names), w.r.randint(-20, 99)) for _ in range(16)]
    sums: Counter[str] = Counter()
    for one, number in rows:
        sums[one] += number

    def shown(sums: Counter[str]) -> str:
        ranked = sorted(sums, key=lambda one: (-sums[one], one)) if w.level != "easy" else []
        return "\n".join([f"{label}: {sum(sums.values())}", *(f"{one} {sums[one]}" for one in ranked)])

    lines = [
        w.r.choice((f"{one},{number}", f" {one} , {number}", f"{one},{number}\n")) if w.hard else f"{one},{number}"
        for one, number in rows
    ]
    argv = ("bash", name, "input.csv")
    cases = [
        Case(argv, {"input.csv": file("\n".join(lines) + "\n")}, stdout=shown(sums)),
        Case(argv, {"input.csv": file("b,1\na,1\n")}, stdout=shown(Counter({"b": 1, "a": 1}))),
        Case(argv, {"input.csv": file("")}, stdout=f"{label}: 0"),
    ]
    goals = [Goal("it sums hidden files up", cases=tuple(cases))]
    if w.hard:
        wrong = [
            Case(argv, {"input.csv": file(f"a,1\n{line}\nb,2\n")}, stdout="", exit_code=3)
            for line in ("c", "c,x", "c,1,2", ",5", "c,1.5")
        ]
        goals.append(Goal("it rejects other lines", cases=(cases[1], *wrong)))
    if w.level == "easy":
        script = f'awk -F, \'{{s+=$2}} END {{print "{label}: " s+0}}\' "$1"\n'
    elif w.level == "medium":
        script = f'awk -F, \'{{s+=$2}} END {{print "{label}: " s+0}}\' "$1"\nawk -F, \'{{t[$1]+=$2}} END {{for (n in t) print n, t[n]}}\' "$1" | LC_ALL=C sort -k2,2nr -k1,1\n'
    else:
        script = (
            "python3 - \"$1\" <<'EOF'\nimport re, sys\nt={}\nfor line in open(sys.argv[1]):\n    line=line.strip()\n    if not line: continue\n"
            "    m=re.fullmatch(r'([^,]*[^, ])\\s*,\\s*(-?\\d+)', line)\n    if not m: print('wrong line', file=sys.stderr); sys.exit(3)\n"
            f"    t[m[1]]=t.get(m[1], 0)+int(m[2])\nprint('{label}:', sum(t.values()))\n"
            "for n in sorted(t, key=lambda n: (-t[n], n)): print(n, t[n])\nEOF\n"
        )
    return Problem(w.tree, text, goals, [write(name, f"#!/bin/bash\n{script}")], program=[name])


@template("scripts", "hard")
def safe_rename(w: World) -> Problem:
    """Write a script that renames files with any names."""
    name, suffix = f"{w.word()}.sh", w.word()
    w.file("README", f"{w.prose(5)}\n")
    text = (
        f"Write the bash script `{name}`. `bash {name} FOLDER` renames all plain files in FOLDER (not in its subfolders) so that "
        "each space in the name becomes `_`, capital letters A to Z become small, and then "
        f"`.{suffix}` is at the end, unless it is there already. If a file with the new name is there already, or two files would get "
        "the same name, it renames none of them and leaves all as they are, and after renaming the others it exits with 4. "
        "Otherwise it exits with 0. Names may begin with dots and hyphens and have any characters in them, newlines included. "
        "It is tested with other folders."
    )

    def files(names: list[str]) -> dict[str, Entry]:
        return {f"box/{name}": file(f"{name}\n") for name in names}

    def new(one: str) -> str:
        one = "".join("_" if c == " " else c.lower() if "A" <= c <= "Z" else c for c in one)
        return one if one.endswith(f".{suffix}") else f"{one}.{suffix}"

    simple = [w.word().capitalize() + w.r.choice(("", f" {w.word()}", f".{suffix}")) for _ in range(5)]
    odd = [
        f"-{w.word()}",
        f".{w.word().upper()}",
        f"{w.word()}\nB",
        f"  {w.word()}*",
        f"{w.word()}'\"$(x)",
        f"{w.word()}\\n",
    ]
    clash = [w.word(), w.word()]
    clashing = [f"{clash[0]} a", f"{clash[0].upper()}_a", f"{clash[1]}", f"{clash[1]}.{suffix}", *simple[:2]]
    argv = ("bash", name, "box")

    def after(names: list[str], kept: tuple[str, ...] = ()) -> dict[str, bytes | None]:
        return {f"box/{name if name in kept else new(name)}": f"{name}\n".encode() for name in names}

    inner = {"box/Inner/A b": file("A b\n")}
    goals = [
        Goal("it renames plain names", cases=(
            Case(argv, {**files(simple), **inner}, after={**after(simple), "box/Inner/A b": b"A b\n"}, exactly="box"),
        )),
        Goal("it renames any names", cases=(
            Case(argv, files(simple + odd), after=after(simple + odd), exactly="box"),
            Case(argv, {"box": directory()}),
        )),
        Goal("it leaves files alone whose new name is taken", cases=(
            Case(argv, files(clashing), after=after(clashing, tuple(clashing[:4])), exactly="box", exit_code=4),
        )),
    ]  # fmt: skip
    script = (
        "#!/bin/bash\npython3 - \"$1\" <<'EOF'\nimport collections, os, string, sys\nos.chdir(sys.argv[1])\n"
        "t={ord(a): b for a, b in zip(string.ascii_uppercase + ' ', string.ascii_lowercase + '_')}\n"
        f"new=lambda n: (lambda m: m if m.endswith('.{suffix}') else m + '.{suffix}')(n.translate(t))\n"
        "todo={n: new(n) for n in os.listdir('.') if os.path.isfile(n)}\nc=collections.Counter(todo.values())\n"
        "bad={n for n, m in todo.items() if c[m] > 1 or (m != n and os.path.lexists(m))}\n"
        "for n, m in todo.items():\n    if n not in bad and m != n: os.rename(n, m)\nsys.exit(4 if bad else 0)\nEOF\n"
    )
    return Problem(w.tree, text, goals, [write(name, script)], program=[name])


@template("scripts", "medium", "hard", split="test")
def manifest_script(w: World) -> Problem:
    """Write a script that lists files with their checksums, and one mode that verifies them."""
    name = f"{w.word()}.sh"
    w.file("README", f"{w.prose(5)}\n")
    text = (
        f"Write the bash script `{name}`. `bash {name} FOLDER` prints a line for each plain file below FOLDER, hidden ones and those in "
        "subfolders included: its SHA-256 checksum (64 digits), a space, its size in bytes, a space, and its path relative to FOLDER "
        "(such as `a/b.txt`), sorted by path with LC_ALL=C. Names may have spaces in them. Symbolic links are left out."
    )
    if w.hard:
        text += (
            f" `bash {name} FOLDER OLD` compares FOLDER with the output of an earlier run in the file OLD instead, and prints a line for "
            "each difference: `+ PATH` for a new file, `- PATH` for one that is gone, `! PATH` for one whose checksum has changed, "
            "sorted by path. It exits with 1 if there are differences, else with 0."
        )
    text += " It is tested with other folders."
    argv = ("bash", name, "data")

    def drawn(count: int) -> dict[str, bytes]:
        found = {}
        for _ in range(count):
            inner = w.r.choice(("", f"{w.prose(1)}.d/", "sub folder/", ".hidden/"))
            found[f"{inner}{w.r.choice(('', '.'))}{w.word()}{w.r.choice(('', ' b', '.txt'))}"] = (
                f"{w.prose(w.r.randint(0, 4))}\n".encode()
            )
        return found

    def listing(files: dict[str, bytes]) -> str:
        return "\n".join(
            f"{hashlib.sha256(files[path]).hexdigest()} {len(files[path])} {path}" for path in sorted(files)
        )

    def placed(files: dict[str, bytes]) -> dict[str, Entry]:
        return {f"data/{path}": file(content) for path, content in files.items()} | {
            "data/zz-link": Entry("link", b"a")
        }

    first, second = drawn(9), drawn(4)
    listed = (Case(argv, placed(first), stdout=listing(first)), Case(argv, placed(second), stdout=listing(second)))
    goals = [Goal("it lists hidden folders", cases=listed)]
    script = 'd=$1\nlist() { (cd -- "$d" && find . -type f -printf "%P\\\\0" | LC_ALL=C sort -z | while IFS= read -r -d "" f; do ' \
             'printf "%s %s %s\\n" "$(sha256sum < "$f" | cut -c1-64)" "$(stat -c %s -- "$f")" "$f"; done); }\n'  # fmt: skip
    if w.hard:
        paths = sorted(first)
        now = {**first, paths[0]: b"changed\n", w.word(): b"new\n"}
        now.pop(paths[3])
        new = next(path for path in now if path not in first)
        rows = sorted([(paths[0], "!"), (paths[3], "-"), (new, "+")])
        shown = "\n".join(f"{mark} {path}" for path, mark in rows)
        old = {"old.txt": file(listing(first) + "\n")}
        goals.append(Goal("it compares", cases=(
            Case((*argv, "old.txt"), {**placed(now), **old}, stdout=shown, exit_code=1),
            Case((*argv, "old.txt"), {**placed(first), **old}, stdout=""),
        )))  # fmt: skip
        script += (
            'if [ $# -lt 2 ]; then list; exit; fi\nlist > /tmp/now.$$\nout=$(awk \'{h=$1; p=$0; sub(/^[^ ]* [^ ]* /, "", p)} '
            'NR==FNR {o[p]=h; next} {n[p]=1; if (!(p in o)) print "+ " p; else if (o[p]!=h) print "! " p} '
            'END {for (p in o) if (!(p in n)) print "- " p}\' "$2" /tmp/now.$$ | LC_ALL=C sort -k2)\nrm /tmp/now.$$\n'
            'if [ -n "$out" ]; then echo "$out"; exit 1; fi\n'
        )
    else:
        script += "list\n"
    return Problem(w.tree, text, goals, [write(name, f"#!/bin/bash\n{script}")], program=[name])


@template("scripts", "medium", "hard")
def log_summary(w: World) -> Problem:
    """Write a script that reads a log from standard input."""
    name = f"{w.word()}.sh"
    levels = ["DEBUG", "INFO", "WARN", "ERROR"]
    w.file("example.log", "2024-01-01T10:00:00Z INFO start\n2024-01-01T10:00:05Z ERROR no disk\n")
    text = (
        f"Write the bash script `{name}`. It reads a log from standard input, whose lines are `TIME LEVEL MESSAGE`, with a time such as "
        "2024-01-01T10:00:00Z and the level DEBUG, INFO, WARN or ERROR. It prints `LEVEL COUNT` for these four levels in this order, also "
        "for those that do not occur. Lines of another form, such as those of a traceback, do not count."
    )
    if w.hard:
        text += (
            " With the arguments `--since TIME` and `--until TIME` (both or one of them, in any order), only lines from the one time "
            "(included) to the other (not included) count. An argument of another form makes it exit with 2."
        )
    text += " It is tested with other logs."
    rows: list[tuple[str, str]] = []
    for minute in range(40):
        rows.append(
            (
                f"2024-01-0{1 + minute // 20}T10:{minute % 20 + 10}:0{w.r.randint(0, 9)}Z",
                w.r.choice(levels[:3] if minute < 20 else levels),
            )
        )
    lines = []
    for time, level in rows:
        lines.append(f"{time} {level} {w.prose(2)} {w.r.choice(('ERROR', 'WARN', 'x'))}")
        lines += w.r.choice(([], [], [f"  at {w.prose(1)} INFO"], ["ERROR: no time"], [f"{time} NOTICE {w.prose(1)}"]))
    log = ("\n".join(lines) + "\n").encode()

    def counts(first: str = "", last: str = "9") -> str:
        return "\n".join(
            f"{level} {sum(one == level and first <= time < last for time, one in rows)}" for level in levels
        )

    argv = ("bash", name)
    cases = (Case(argv, stdin=log, stdout=counts()), Case(argv, stdout="DEBUG 0\nINFO 0\nWARN 0\nERROR 0"))
    goals = [Goal("it counts", cases=cases)]
    first, last = rows[7][0], rows[31][0]
    if w.hard:
        goals.append(Goal("it knows times", cases=(
            Case((*argv, "--since", first), stdin=log, stdout=counts(first)),
            Case((*argv, "--until", last, "--since", first), stdin=log, stdout=counts(first, last)),
            Case((*argv, "--until", first), stdin=log, stdout=counts(last=first)),
        )))  # fmt: skip
        goals.append(Goal("it rejects other arguments", cases=(
            cases[0], Case((*argv, "--from", first), stdin=log, exit_code=2), Case((*argv, "--since"), stdin=log, exit_code=2),
            Case((*argv, "--since", "now"), stdin=log, exit_code=2),
        )))  # fmt: skip
    script = (
        "#!/bin/bash\nsince=0\nuntil=9\nt='^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$'\nwhile [ $# -gt 0 ]; do\n"
        '  [[ "${2-}" =~ $t ]] || exit 2\n  case "$1" in --since) since=$2;; --until) until=$2;; *) exit 2;; esac\n  shift 2\ndone\n'
        'awk -v s="$since" -v u="$until" \'$1 ~ /^[0-9-]+T[0-9:]+Z$/ && $1 "" >= s "" && $1 "" < u "" {n[$2]++} '
        'END {split("DEBUG INFO WARN ERROR", l, " "); for (i=1; i<=4; i++) print l[i], n[l[i]]+0}\'\n'
    )
    return Problem(w.tree, text, goals, [write(name, script)], program=[name])


@template("scripts", "easy", "medium", split="test")
def duration_script(w: World) -> Problem:
    """Write a script that writes seconds as hours, minutes and seconds."""
    name, label = f"{w.word()}.sh", w.word()
    mark = w.r.choice((":", "-", "."))
    w.file("README", f"{w.prose(5)}\n")
    what = "SECONDS" if w.level == "easy" else "SECONDS..."
    text = (
        f"Write the bash script `{name}`. `bash {name} {what}` prints `{label} H{mark}MM{mark}SS`: the hours, minutes and seconds "
        f"of that many seconds, minutes and seconds with two digits: for 3725 it prints `{label} 1{mark}02{mark}05`. "
    )
    if w.level == "medium":
        text += (
            f"With several arguments it prints one such line for each, in their order, and then `sum H{mark}MM{mark}SS` with "
            "their sum; with one argument there is no sum. If there is no argument, or one is not a whole number in digits, it "
            "prints nothing to standard output, and exits with 2. "
        )
    text += "It is tested with other numbers."

    def line(first: str, seconds: int) -> str:
        return f"{first} {seconds // 3600}{mark}{seconds // 60 % 60:02}{mark}{seconds % 60:02}"

    numbers = [w.r.randint(0, 59), w.r.randint(60, 3599), w.r.randint(3600, 90_000), w.r.randint(360_000, 900_000), 0]
    cases = [Case(("bash", name, str(number)), stdout=line(label, number)) for number in numbers]
    goals = [Goal("it prints hidden durations", cases=tuple(cases))]
    form = f"%s %d{mark}%02d{mark}%02d\\n"
    show = f'show() {{ printf "{form}" "$1" $(($2 / 3600)) $(($2 / 60 % 60)) $(($2 % 60)); }}\n'
    script = f'#!/bin/bash\n{show}show {label} "$1"\n'
    if w.level == "medium":
        several = [*numbers[:3], w.r.randint(100, 5000)]
        arguments = ["08", *map(str, several)]
        rows = [line(label, 8), *(line(label, number) for number in several), line("sum", 8 + sum(several))]
        goals.append(Goal("it sums several up", cases=(Case(("bash", name, *arguments), stdout="\n".join(rows)),)))
        wrong: list[tuple[str, ...]] = [(), ("x",), ("12", "1.5"), ("-4",), ("7", "", "8")]
        goals.append(Goal("it rejects other arguments", cases=(
            cases[1], *(Case(("bash", name, *arguments), stdout="", exit_code=2) for arguments in wrong),
        )))  # fmt: skip
        script = (
            f'#!/bin/bash\n{show}[ $# -gt 0 ] || exit 2\nfor a in "$@"; do [[ "$a" =~ ^[0-9]+$ ]] || exit 2; done\nsum=0\n'
            f'for a in "$@"; do n=$((10#$a)); show {label} "$n"; sum=$((sum + n)); done\nif [ $# -gt 1 ]; then show sum "$sum"; fi\n'
        )
    return Problem(w.tree, text, goals, [write(name, script)], program=[name])


@template("scripts", "easy", "medium")
def column_script(w: World) -> Problem:
    """Write a script that lists the values of a column."""
    name = f"{w.word()}.sh"
    mark = w.r.choice((":", ";", "|", ","))
    w.file("sample.txt", f"a{mark}x{mark}1\nb{mark}x{mark}2\nc{mark}w{mark}1\n")
    text = (
        f"Write the bash script `{name}`. `bash {name} FILE N` reads a file whose lines have columns that are separated by `{mark}`, "
        "and prints the different values of column N (the first column is 1), sorted with LC_ALL=C, one on each line"
    )
    if w.level == "easy":
        text += f". For `bash {name} sample.txt 2` it prints `w` and `x`. "
    else:
        text += (
            f", each after the number of its lines and a space. For `bash {name} sample.txt 2` it prints `1 w` and `2 x`. Empty "
            "lines and lines with fewer than N columns are skipped. If FILE does not exist or N is not a whole number above 0, it "
            "prints nothing to standard output, and exits with 2. "
        )
    text += "It is tested with other files."
    values = [[w.prose(1) for _ in range(4)] for _ in range(3)]
    rows = [[w.r.choice(values[column]) for column in range(3)] for _ in range(25)]
    lines = [mark.join(row) for row in rows]
    if w.level == "medium":
        lines[4:4] = ["", w.prose(1), f"{w.prose(1)}{mark}{w.prose(1)}"]
    table = [line.split(mark) for line in lines if line]
    content = {"hidden file.txt": file("\n".join(lines) + "\n")}

    def case(column: int) -> Case:
        counts = Counter(row[column - 1] for row in table if len(row) >= column)
        expected = [value if w.level == "easy" else f"{counts[value]} {value}" for value in sorted(counts)]
        return Case(("bash", name, "hidden file.txt", str(column)), content, stdout="\n".join(expected))

    goals = [Goal("it lists the values of hidden files", cases=(case(1), case(2), case(3)))]
    script = f'awk -F"[{mark}]" -v n="$2" \'{{print $n}}\' "$1" | LC_ALL=C sort -u\n'
    if w.level == "medium":
        wrong = (("no file", "1"), *(("hidden file.txt", number) for number in ("0", "x", "1.5", "-1", "")))
        goals.append(Goal("it rejects other arguments", cases=(
            case(2), *(Case(("bash", name, *arguments), content, stdout="", exit_code=2) for arguments in wrong),
        )))  # fmt: skip
        script = (
            '[ -f "$1" ] && [[ "$2" =~ ^0*[1-9][0-9]*$ ]] || exit 2\n'
            f'awk -F"[{mark}]" -v n="$2" \'NF >= n {{c[$n]++}} END {{for (v in c) print c[v], v}}\' "$1" | LC_ALL=C sort -k2\n'
        )
    return Problem(w.tree, text, goals, [write(name, f"#!/bin/bash\n{script}")], program=[name])
