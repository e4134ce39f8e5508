"""Configuration: schedules, hosts, users, environment files."""

from __future__ import annotations

from collections import defaultdict

from ludus.server.authoring.workspace import SERVICES
from ludus_terminal.problem import Problem, data_is, lines_are, text_is
from ludus_terminal.registry import template
from ludus_terminal.world import World


@template("config", "easy", "medium")
def change_crontab(w: World) -> Problem:
    """Change a schedule."""
    jobs = w.words(6)
    lines = ["# m h dom mon dow command", "SHELL=/bin/bash", ""]
    times: list[str] = []
    for job in jobs:
        times.append(f"{w.r.randint(0, 59)} {w.r.randint(0, 23)} * * {w.r.choice(('*', '1', '1-5', '0'))}")
        lines.append(f"{times[-1]} /opt/{w.project}/bin/{job}.sh --quiet")
    w.file("crontab.txt", "\n".join(lines) + "\n")
    minute, hour = w.r.randint(1, 59), w.r.randint(1, 23)
    changed = list(lines)
    if w.level == "easy":
        text = f"In `crontab.txt`, make the job `{jobs[2]}.sh` run every day at {hour:02}:{minute:02} instead of its time now. Change nothing else."
        changed[5] = f"{minute} {hour} * * * /opt/{w.project}/bin/{jobs[2]}.sh --quiet"
        commands = [f"sed -i 's|^.* \\(/opt.*/{jobs[2]}.sh\\)|{minute} {hour} * * * \\1|' crontab.txt"]
    else:
        every = w.r.choice((5, 10, 15, 20))
        text = (
            f"In `crontab.txt`, make the job `{jobs[2]}.sh` run on the days from Monday to Friday (`1-5`), at {hour:02}:{minute:02} "
            f"instead of its time now. Turn off `{jobs[4]}.sh` by putting `# ` in front of its line. Add a line at the end that "
            f"runs `/opt/{w.project}/bin/{w.project}.sh` every {every} minutes, in the form `*/N`. Change nothing else."
        )
        changed[5] = f"{minute} {hour} * * 1-5 /opt/{w.project}/bin/{jobs[2]}.sh --quiet"
        changed[7] = f"# {changed[7]}"
        changed.append(f"*/{every} * * * * /opt/{w.project}/bin/{w.project}.sh")
        commands = [
            f"sed -i -e 's|^.* \\(/opt.*/{jobs[2]}.sh\\)|{minute} {hour} * * 1-5 \\1|' -e '/{jobs[4]}.sh/s/^/# /' crontab.txt",
            f"echo '*/{every} * * * * /opt/{w.project}/bin/{w.project}.sh' >> crontab.txt",
        ]
    return Problem(w.tree, text, [text_is("crontab.txt", "\n".join(changed))], commands, ["crontab.txt"])


@template("config", "medium", "hard")
def due_jobs(w: World) -> Problem:
    """Find the jobs that run at some time."""
    hour = w.r.randint(1, 22)
    due: set[str] = set()
    for _ in range(w.by_level(0, 2, 4)):
        lines = [f"# jobs of {w.word()}", "MAILTO=ops@example.com", ""]
        for job in w.words(6):
            others = [one for one in range(24) if one != hour]
            runs = w.r.random() < 0.45
            field = str(hour if runs else w.r.choice(others))
            if w.hard:
                if runs:
                    field = w.r.choice(
                        (field, f"{max(0, hour - 2)}-{min(23, hour + 1)}", f"{w.r.choice(others)},{hour}", "*")
                    )
                else:
                    field = w.r.choice((field, f"{(hour + 1) % 24},{(hour + 23) % 24}", f"{hour + 1}-23"))
            off = w.r.random() < 0.2
            lines.append(f"{'#' if off else ''}{w.r.randint(0, 59)} {field} * * * run-{job} {hour}")
            if runs and not off:
                due.add(f"run-{job}")
        w.file(f"cron.d/{w.word()}", "\n".join(lines) + "\n")
    text = (
        "The files in `cron.d` are crontabs: minute, hour, day, month, day of the week, command. Find the jobs that run at some "
        f"minute of the hour {hour} (from {hour}:00 to {hour}:59), and write the names of their commands (the first word, such as "
        "`run-x`) into `due.txt`, one on each line, sorted. Lines that begin with `#` are off."
    )
    if w.hard:
        text += " The hour is a number, `*`, a range such as `3-7`, or a list such as `3,7`."
    program = (
        f'awk -v h={hour} \'/^[0-9*]/ {{ok=0; n=split($2, p, ","); for (i=1; i<=n; i++) {{if (p[i]=="*") ok=1; '
        'else if (split(p[i], r, "-")==2) {if (h>=r[1]+0 && h<=r[2]+0) ok=1} else if (p[i]==h) ok=1} if (ok) print $6}\' '
        "cron.d/* | LC_ALL=C sort -u > due.txt"
    )
    return Problem(w.tree, text, [lines_are("due.txt", sorted(due))], [program])


@template("config", "easy", split="test")
def process_list(w: World) -> Problem:
    """Find a process in a listing."""
    rows = ["USER       PID %CPU %MEM COMMAND"]
    ids = w.some(range(200, 30_000), 30)
    memory = w.some(range(1, 600), 30)
    services = w.some(SERVICES, 6)
    users = w.words(3)
    found: list[tuple[int, int, str]] = []
    for id, tenth in zip(ids, memory, strict=True):
        user, service = w.r.choice(users), w.r.choice(services)
        rows.append(
            f"{user:<10} {id:>5} {w.r.randint(0, 99) / 10:>4} {tenth / 10:>4} /usr/bin/{service} --port {w.r.randint(1000, 9999)}"
        )
        found.append((tenth, id, user))
    w.file("ps.txt", "\n".join(rows) + "\n")
    user = found[0][2]
    best = max(found)[1]
    own = sorted(id for _, id, one in found if one == user)
    text = (
        "`ps.txt` is a list of processes. Write the PID of the process with the highest %MEM into `largest.txt`, and the PIDs "
        f"of all processes of the user `{user}` into `pids.txt`, one on each line, in ascending order."
    )
    commands = [
        f"sort -k4,4nr ps.txt | awk '$2 ~ /^[0-9]/ {{print $2; exit}}' > largest.txt; awk '$1==\"{user}\" {{print $2}}' ps.txt | sort -n > pids.txt"
    ]
    return Problem(
        w.tree, text, [text_is("largest.txt", str(best)), lines_are("pids.txt", list(map(str, own)))], commands
    )


@template("config", "medium", "hard", split="test")
def group_members(w: World) -> Problem:
    """Answer questions about users and groups."""
    names = w.words(w.by_level(0, 10, 16))
    ids = w.some(range(1000, 1999), len(names))
    groups = w.words(4)
    group_ids = w.some(range(2000, 2999), 4)
    shells = ("/bin/bash", "/bin/sh", "/usr/sbin/nologin")
    passwd, members = ["root:x:0:0:root:/root:/bin/bash"], defaultdict[str, set[str]](set)
    can_log_in: set[str] = set()
    for name, id in zip(names, ids, strict=True):
        place = w.r.randrange(4)
        shell = w.r.choice(shells)
        passwd.append(f"{name}:x:{id}:{group_ids[place]}:{w.person()[0]}:/home/{name}:{shell}")
        members[groups[place]].add(name)
        if shell != shells[2]:
            can_log_in.add(name)
    lines = ["root:x:0:"]
    for group, id in zip(groups, group_ids, strict=True):
        extra = w.some(names, w.r.randint(0, 4))
        lines.append(f"{group}:x:{id}:{','.join(extra)}")
        members[group] |= set(extra)
    w.file("etc/passwd", "\n".join(passwd) + "\n")
    w.file("etc/group", "\n".join(lines) + "\n")
    group = max(groups, key=lambda one: len(members[one]))
    wanted = sorted(members[group] & can_log_in if w.hard else members[group])
    text = (
        f"Write the names of all members of the group `{group}` in `etc/group` and `etc/passwd` (the usual formats of Linux) "
        "into `members.txt`, one on each line, sorted, each once. A user is a member if the group lists the user, or if it is "
        "the user's primary group in `etc/passwd`."
    )
    if w.hard:
        text += " Leave out users whose shell is `/usr/sbin/nologin`."
    only = ' && $7 != "/usr/sbin/nologin"' if w.hard else ""
    commands = [
        f'g=$(grep \'^{group}:\' etc/group); id=$(echo "$g" | cut -d: -f3); list=",$(echo "$g" | cut -d: -f4),"; '
        f'awk -F: -v id=$id -v list="$list" \'($4==id || index(list, "," $1 ",")){only} {{print $1}}\' etc/passwd | LC_ALL=C sort -u > members.txt'
    ]
    return Problem(w.tree, text, [lines_are("members.txt", wanted)], commands)


@template("config", "easy", "medium", split="validation")
def version_bump(w: World) -> Problem:
    """Raise a version wherever it is written."""
    major, minor, patch = w.r.randint(1, 9), w.r.randint(0, 20), w.r.randint(0, 20)
    old, new = f"{major}.{minor}.{patch}", f"{major}.{minor + 1}.0"
    other = f"{major}.{minor}.{patch}{w.r.randint(1, 9)}"
    name = w.word()
    contents = {
        "VERSION": "{old}\n",
        f"src/{name}.py": f'"""{w.prose(3)}"""\n\n__version__ = "{{old}}"\nNEEDS = "{other}"\n',
        "setup.cfg": f"[metadata]\nname = {name}\nversion = {{old}}\n\n[options]\ninstall_requires = {w.word()}=={other}\n",
    }
    changed: dict[str, bytes] = {}
    for path, content in contents.items():
        if w.level == "easy" and path == "setup.cfg":
            continue
        w.file(path, content.replace("{old}", old))
        changed[path] = content.replace("{old}", new).encode()
    history = f"# Changes\n\n## {old}\n\n- {w.prose(4)}\n"
    w.file("CHANGES.md", history)
    text = (
        f"The version of this project is {old}. Make it {new} in "
        + ", ".join(f"`{path}`" for path in changed)
        + f". The number {other} is another one, and stays."
    )
    commands = ["sed -i 's/{}\\b/{}/' {}".format(old.replace(".", "\\."), new, " ".join(changed))]
    goals = [data_is(path, content) for path, content in changed.items()]
    if w.level == "medium":
        note = w.prose(4)
        text += f" In `CHANGES.md`, add the section `## {new}` with the entry `- {note}` above the one of {old}, in the form of that one (with an empty line after the title and after the entry)."
        goals.append(data_is("CHANGES.md", history.replace(f"## {old}", f"## {new}\n\n- {note}\n\n## {old}").encode()))
        commands.append(f"sed -i 's/^## {old}$/## {new}\\n\\n- {note}\\n\\n&/' CHANGES.md")
    else:
        text += " Leave `CHANGES.md` as it is."
    return Problem(w.tree, text, goals, commands, [*changed, *(["CHANGES.md"] if w.level == "medium" else [])])


@template("config", "medium", "hard", split="validation")
def render_template(w: World) -> Problem:
    """Fill a template with the values of environment files."""
    names = [word.upper() for word in w.words(6)]
    defaults = {name: w.r.choice((str(w.r.randint(1, 9999)), w.prose(1), f"/srv/{w.prose(1)}")) for name in names}
    local = {name: f"{w.prose(1)}&{w.r.randint(1, 99)}/x" if w.hard else w.prose(1) for name in w.some(names, 2)}
    w.file("defaults.env", "# defaults\n" + "".join(f"{name}={value}\n" for name, value in defaults.items()))
    w.file("local.env", "# local\n\n" + "".join(f"{name}={value}\n" for name, value in local.items()))
    values = {**defaults, **local}
    lines, filled = [], []
    for name in [*names, *w.some(names, 3)]:
        key = w.prose(1)
        lines.append(f"{key}: {{{{{name}}}}}{' # {{' + names[0] + '}}' if w.hard else ''}")
        filled.append(f"{key}: {values[name]}{' # ' + values[names[0]] if w.hard else ''}")
        if w.hard and w.r.random() < 0.4:
            kept = f"{w.prose(1)}: ${name} {{{name}}}"
            lines.append(kept)
            filled.append(kept)
    w.file("app.conf.in", "\n".join(lines) + "\n")
    text = (
        "Make `app.conf` from `app.conf.in`: replace each `{{NAME}}` by the value of NAME in `local.env`, or, if it is not there, "
        "in `defaults.env`. Leave everything else as it is."
    )
    program = (
        "python3 - <<'EOF'\nimport re\nv={}\nfor f in ('defaults.env', 'local.env'):\n    for l in open(f):\n"
        "        if '=' in l and l[0] != '#': k, _, x = l.rstrip('\\n').partition('='); v[k]=x\n"
        "open('app.conf', 'w').write(re.sub(r'\\{\\{(\\w+)\\}\\}', lambda m: v[m[1]], open('app.conf.in').read()))\nEOF"
    )
    return Problem(w.tree, text, [text_is("app.conf", "\n".join(filled))], [program])


@template("config", "easy", "medium")
def hosts_file(w: World) -> Problem:
    """Change addresses and names of hosts."""
    names = w.words(8)
    addresses = w.addresses(10)
    lines = ["127.0.0.1\tlocalhost", "", f"# hosts of {w.project}"]
    lines += [f"{address}\t{name} {name}.example" for name, address in zip(names, addresses, strict=False)]
    w.file("hosts", "\n".join(lines) + "\n")
    moved, renamed, removed = w.some(names, 3)
    new = addresses[9]

    def line_of(name: str) -> int:
        return next(number for number, line in enumerate(lines) if f"\t{name} " in line)

    changed = list(lines)
    changed[line_of(moved)] = f"{new}\t{moved} {moved}.example"
    text = (
        "Each line of `hosts` has an address, a tab, and the names of a host, separated by spaces. Change the address of the "
        f"host `{moved}` to {new}"
    )
    edits = [f"s/^[0-9.]*\\t{moved} /{new}\\t{moved} /"]
    if w.level == "medium":
        alias = w.word()
        changed[line_of(renamed)] += f" {alias}"
        changed.pop(line_of(removed))
        text += f", add the name `{alias}` at the end of the names of `{renamed}`, and delete the line of `{removed}`"
        edits += [f"/\\t{renamed} /s/$/ {alias}/", f"/\\t{removed} /d"]
    text += ". Change nothing else, not even spaces."
    commands = ["sed -i " + " ".join(f"-e '{edit}'" for edit in edits) + " hosts"]
    return Problem(w.tree, text, [data_is("hosts", ("\n".join(changed) + "\n").encode())], commands, ["hosts"])
