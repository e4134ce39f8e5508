"""Builds and programs that do not work; hidden inputs test the repaired ones."""

from __future__ import annotations

from ludus.server.authoring.workspace import Entry, file
from ludus_terminal.problem import Case, Goal, Problem, State, folder_is, lines_are
from ludus_terminal.registry import template
from ludus_terminal.world import World


@template("build", "easy", "medium")
def repair_script(w: World) -> Problem:
    """Repair a shell script with one or more mistakes."""
    name, unit = w.words(2)
    sound = (
        "#!/bin/bash\n# Prints the number of lines and the sum of a file of numbers.\nset -eu\n"
        'file="$1"\nif [ ! -f "$file" ]; then\n  echo "no such file: $file" >&2\n  exit 2\nfi\n'
        'count=0\nsum=0\nwhile read -r number; do\n  count=$((count + 1))\n  sum=$((sum + number))\ndone < "$file"\n'
        f'echo "{unit} lines=$count sum=$sum"\n'
    )
    faults = [
        ('if [ ! -f "$file" ]; then', 'if [ ! -f "$file" ] then'), ("sum=$((sum + number))", "sum=$((sum + nunber))"),
        ('done < "$file"\n', 'done < "$file\n'), ("count=$((count + 1))", "count = $((count + 1))"),
        ("  exit 2\nfi\n", "  exit 2\n"),
    ]  # fmt: skip
    subtle = [("  exit 2\n", "  exit 0\n"), ('[ ! -f "$file" ]', "[ ! -f $file ]"), ('done < "$file"', "done < $1.txt")]
    script = sound
    for before, after in w.some(faults, w.by_level(1, 2, 0)) + w.some(subtle, w.by_level(0, 2, 0)):
        if before in script:
            script = script.replace(before, after)
    w.file(f"{name}.sh", script, 0o755)
    w.file("sample.txt", "3\n4\n5\n")
    text = (
        f"The script `{name}.sh` does not work. Repair it: `./{name}.sh FILE` reads a file with a whole number on each line, and "
        f"prints `{unit} lines=COUNT sum=SUM`; for `sample.txt` that is `{unit} lines=3 sum=12`. If the file does not exist, it "
        "writes a message to standard error and exits with 2. It is tested with other files, also with spaces in their names."
    )
    argv = ("bash", f"{name}.sh")
    values = [w.r.randint(-50, 900) for _ in range(w.r.randint(4, 9))]
    content = "".join(f"{value}\n" for value in values)
    goals = [
        Goal("it prints the sums of hidden files", cases=(
            Case((*argv, "numbers.txt"), {"numbers.txt": file(content)}, stdout=f"{unit} lines={len(values)} sum={sum(values)}"),
            Case((*argv, "a file"), {"a file": file("7\n")}, stdout=f"{unit} lines=1 sum=7"),
            Case((*argv, "empty"), {"empty": file("")}, stdout=f"{unit} lines=0 sum=0"),
            Case((*argv, "no file"), stdout="", exit_code=2),
        )),
    ]  # fmt: skip
    commands = [f"cat > {name}.sh <<'EOF'\n{sound}EOF"]
    return Problem(w.tree, text, goals, commands, [f"{name}.sh"], program=[f"{name}.sh"])


@template("build", "medium", "hard")
def repair_package(w: World) -> Problem:
    """Repair a Python package with broken imports and a bug."""
    name, core, text_module, command = w.words(4)
    files = {
        f"{name}/__init__.py": '"""A small package."""\n',
        f"{name}/__main__.py": f"import sys\n\nfrom {name}.{command} import main\n\nsys.exit(main(sys.argv[1:]))\n",
        f"{name}/{core}.py": "def totals(rows):\n    found = {}\n    for key, value in rows:\n        found[key] = found.get(key, 0) + value\n    return found\n",
        f"{name}/{text_module}.py": "def parse(lines):\n    rows = []\n    for line in lines:\n        line = line.strip()\n        if not line or line.startswith('#'):\n            continue\n        key, _, value = line.partition('=')\n        rows.append((key.strip(), int(value)))\n    return rows\n",
        f"{name}/{command}.py": f"from {name}.{core} import totals\nfrom {name}.{text_module} import parse\n\n\ndef main(arguments):\n    with open(arguments[0]) as file:\n        found = totals(parse(file))\n    for key in sorted(found):\n        print(f'{{key}}: {{found[key]}}')\n    return 0\n",
    }
    faults = [
        (f"{name}/{command}.py", f"from {name}.{core} import totals", f"from {core} import totals"),
        (f"{name}/{command}.py", "import parse\n", "import parse_lines\n"),
        (f"{name}/{core}.py", "    return found\n", "return found\n"),
        (f"{name}/__main__.py", f".{command} import", f".{w.word()} import"),
    ]
    bugs = [
        (f"{name}/{core}.py", "found.get(key, 0) + value", "value"), (f"{name}/{text_module}.py", "partition('=')", "partition(' ')"),
        (f"{name}/{text_module}.py", "not line or ", ""), (f"{name}/{command}.py", "sorted(found)", "found"),
        (f"{name}/{text_module}.py", "key.strip()", "key"),
    ]  # fmt: skip
    broken = dict(files)
    for path, before, after in w.some(faults, w.by_level(0, 2, 3)) + w.some(bugs, w.by_level(0, 1, 3)):
        broken[path] = broken[path].replace(before, after)
    for path, content in broken.items():
        w.file(path, content)
    w.file("sample.txt", "# counts\nb = 2\na=1\n\nb=5\n")
    text = (
        f"`python3 -m {name} FILE` does not work. Repair the package `{name}`: it reads lines `key = number` (with or without "
        "spaces, numbers are whole; empty lines and lines that begin with `#` are skipped), adds up the numbers of each key, and "
        "prints `key: sum` for each, sorted by key. For `sample.txt` it prints `a: 1` and `b: 7`. It is tested with other files."
    )
    rows = [(w.r.choice(("kiwi", "fig", "Date", "elder")), w.r.randint(-9, 99)) for _ in range(12)]
    found: dict[str, int] = {}
    lines = ["# hidden", ""]
    for key, value in rows:
        found[key] = found.get(key, 0) + value
        lines += [
            w.r.choice((f"{key}={value}", f"{key} = {value}", f"  {key} ={value}  ")),
            *w.r.choice(([], [""], ["# x=1"])),
        ]
    argv = ("python3", "-m", name, "input.txt")
    goals = [
        Goal("it runs on a simple file", cases=(Case(argv, {"input.txt": file("z=4\nm=3\n")}, stdout="m: 3\nz: 4"),)),
        Goal("it is right on hidden files", cases=(
            Case(argv, {"input.txt": file("\n".join(lines) + "\n")}, stdout="\n".join(f"{key}: {found[key]}" for key in sorted(found))),
            Case(argv, {"input.txt": file("# nothing\n")}, stdout=""),
        )),
    ]  # fmt: skip
    commands = [f"cat > {path} <<'EOF'\n{files[path]}EOF" for path in files if broken[path] != files[path]]
    return Problem(w.tree, text, goals, ["\n".join(commands)], [f"{name}/*"], program=[f"{name}/*.py"])


@template("build", "medium", "hard", split="test")
def build_order(w: World) -> Problem:
    """Order modules by what they need."""
    names = w.words(w.by_level(0, 8, 14))
    needs: dict[str, list[str]] = {}
    for index, name in enumerate(names):
        needs[name] = w.some(names[:index], min(index, w.r.randint(0, 3)))
    for name in w.some(names, len(names)):
        lines = [f"name: {name}"]
        if w.hard:
            lines += [f"# needs: {w.r.choice(names)}", *(f"needs: {one}" for one in needs[name])]
        else:
            lines.append("needs: " + (" ".join(needs[name]) or "-"))
        w.file(f"modules/{name}/module.txt", "\n".join([*lines, f"size: {w.r.randint(1, 90)}"]) + "\n")
    order: list[str] = []
    while len(order) < len(names):
        order.append(min(name for name in names if name not in order and set(needs[name]) <= set(order)))
    target = max(names, key=lambda name: (len(_closure(needs, name)), name))
    text = (
        "Each `modules/NAME/module.txt` says in `needs:` which modules must be built before it"
        + (" (one on each such line; lines that begin with `#` do not count)" if w.hard else " (`-` for none)")
        + ". Write an order in which all modules can be built into `order.txt`, one name on each line: always the first one in "
        "alphabetical order of those whose needs are built."
    )
    goals = [lines_are("order.txt", order)]
    closure = sorted(_closure(needs, target))
    text += f" Write the names of all modules that `{target}` needs, directly or through others, into `needs.txt`, sorted, one on each line."
    goals.append(lines_are("needs.txt", closure))
    program = (
        "import glob, re\nn={}\nfor f in glob.glob('modules/*/module.txt'):\n    t=open(f).read()\n"
        "    n[f.split('/')[1]]={x for l in re.findall('^needs: (.*)', t, re.M) for x in l.split() if x != '-'}\n"
        "o=[]\nwhile len(o) < len(n): o.append(min(x for x in n if x not in o and n[x] <= set(o)))\n"
        f"open('order.txt', 'w').write('\\n'.join(o) + '\\n')\nd, l = set(), ['{target}']\n"
        "while l:\n    for x in n[l.pop()] - d: d.add(x); l.append(x)\nopen('needs.txt', 'w').write('\\n'.join(sorted(d)) + '\\n')"
    )
    return Problem(w.tree, text, goals, [f"python3 - <<'EOF'\n{program}\nEOF"])


def _closure(needs: dict[str, list[str]], name: str) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        for one in needs[left.pop()]:
            if one not in found:
                found.add(one)
                left.append(one)
    return found


@template("build", "easy", "hard", split="validation")
def repair_build(w: World) -> Problem:
    """Repair a build script that puts parts together."""
    parts = w.words(w.by_level(3, 3, 5))
    separator = w.word()
    sources = {
        f"src/{part}{' x' if w.hard and index % 2 else ''}.txt": f"{w.prose(4)}\n" for index, part in enumerate(parts)
    }
    for path, content in sources.items():
        w.file(path, content)
    good = (
        "#!/bin/bash\n# Builds dist/all.txt from src/*.txt, in the order of their names.\nset -e\n"
        "rm -rf dist\nmkdir -p dist\nfor part in src/*.txt; do\n"
        f"  cat \"$part\" >> dist/all.txt\n  echo '-- {separator}' >> dist/all.txt\ndone\n"
    )
    faults = [
        ("mkdir -p dist", "mkdir -p dst"),
        ('cat "$part" >>', 'cat "$part" >'),
        ("src/*.txt; do", "source/*.txt; do"),
    ]
    bad = good
    if w.level == "easy":
        before, after = w.r.choice(faults)
        bad = bad.replace(before, after)
    else:
        for before, after in (*w.some(faults, 2), ('"$part"', "$part"), ("rm -rf dist\n", "")):
            bad = bad.replace(before, after)
        bad = bad.replace("\n", "\r\n") if w.r.random() < 0.5 else bad
    w.file("build.sh", bad, 0o644)
    text = (
        "`./build.sh` does not work. Repair it, make it executable (755), and run it. It must make `dist/all.txt` from all `.txt` "
        f"files in `src` in the order of their names, with the line `-- {separator}` after each, also if `dist` is there already or "
        "a name has a space in it. It is tested with other files in `src`."
    )
    body = "".join(f"{sources[path]}-- {separator}\n" for path in sorted(sources))
    hidden = {"src/b.txt": "2\n", "src/a.txt": "1\n", "src/c d.txt": "3\n"}
    cleared: dict[str, Entry] = {path: file(content) for path, content in hidden.items()}
    built = f"1\n-- {separator}\n2\n-- {separator}\n3\n-- {separator}\n".encode()

    def run(state: State) -> bool:
        entry = state.tree.get("build.sh")
        return state.data("dist/all.txt") == body.encode() and entry is not None and entry.mode == 0o755

    goals = [
        Goal("dist/all.txt is built, and the script is executable", run),
        Goal("it builds other files", cases=(
            Case(("./build.sh",), cleared, after={"dist/all.txt": built}),
            Case(("./build.sh",), {**cleared, "dist/all.txt": file("old\n")}, after={"dist/all.txt": built}),
        )),
    ]  # fmt: skip
    commands = [f"cat > build.sh <<'EOF'\n{good}EOF\nchmod 755 build.sh; ./build.sh"]
    return Problem(w.tree, text, goals, commands, ["build.sh"], program=["build.sh"])


@template("build", "easy", "medium", "hard")
def failing_checks(w: World) -> Problem:
    """Run the checks of a project, and list those that fail."""
    rows: list[str] = []
    reports: dict[str, bytes] = {}
    failing = w.r.randrange(2)  # of the first two checks, so that one fails and one does not
    for number, name in enumerate(sorted(w.words(w.by_level(8, 12, 10)))):
        fails = w.r.random() < 0.4 if number > 1 else number == failing
        code, stock = w.r.randint(1, 40), w.r.randint(10, 90)
        arguments = [w.r.choice((word, f"{word} {w.prose(1)}", f"{word}*")) for word in w.words(w.r.randint(1, 3))]
        count = len(arguments) + (w.r.choice((-1, 1)) if fails else 0)
        least = stock + w.r.randint(1, 9) if fails else stock - w.r.randint(0, 9)
        test = f'[ "$#" -eq {count} ]' if w.hard else f'[ "$(cat data/{name}.txt)" -ge {least} ]'
        output = 'printf "%s\\n" "$@"\n' if w.hard else ""
        w.file(f"checks/{name}.sh", f"#!/bin/bash\n# A check of {name}.\n{output}{test} || exit {code}\n")
        if w.hard:
            w.file(f"checks/{name}.args", "".join(f"{argument}\n" for argument in arguments))
            reports[f"{name}.txt"] = "".join(f"{argument}\n" for argument in arguments).encode()
        else:
            w.file(f"data/{name}.txt", f"{stock}\n")
        if fails:
            rows.append(name if w.level == "easy" else f"{name} {code}")
    text = (
        "The scripts `checks/NAME.sh` are the checks of this project; each is run with bash in the working folder, and fails "
        "if it exits with another code than 0. "
    )
    run = 'bash "$f"'
    if w.hard:
        text += (
            "A check gets the lines of `checks/NAME.args` as its arguments, each line as one argument (it may have spaces in "
            "it). Write what each check prints into `reports/NAME.txt`. "
        )
        run = 'mapfile -t a < "checks/$n.args"; bash "$f" "${a[@]}" > "reports/$n.txt"'
    what = "NAME" if w.level == "easy" else "NAME, a space and the exit code"
    text += (
        f"Run them all, and write {what} of each check that fails into `failing.txt`, one on each line, sorted by NAME."
    )
    line = '"$n"' if w.level == "easy" else '"$n $c"'
    folder = "mkdir reports; " if w.hard else ""
    commands = [
        f'{folder}for f in checks/*.sh; do n=$(basename "$f" .sh); {run}; c=$?; [ $c -eq 0 ] || echo {line}; done > failing.txt'
    ]
    goals = [lines_are("failing.txt", rows)]
    return Problem(w.tree, text, [*goals, folder_is("reports", reports)] if w.hard else goals, commands)
