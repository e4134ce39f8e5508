"""Logs: count, rank, time windows, sessions."""

from __future__ import annotations

from collections import Counter, defaultdict

from ludus.server.authoring.workspace import SERVICES, gzipped
from ludus_terminal.problem import Problem, folder_is, lines_are, text_is
from ludus_terminal.registry import template
from ludus_terminal.world import World, stamp

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")


@template("logs", "easy", "medium", split="validation")
def count_errors(w: World) -> Problem:
    """Count the errors of a service."""
    services = w.some(SERVICES, 5)
    when, lines = w.moment(), []
    counts: Counter[str] = Counter()
    for _ in range(w.by_level(120, 300, 0)):
        when += w.r.randint(1, 40)
        service, level = w.r.choice(services), w.r.choices(LEVELS, (3, 8, 2, 3))[0]
        message = w.prose(3) + w.r.choice(("", " after ERROR", f" from {w.r.choice(services)}"))
        lines.append(f"{stamp(when)} {level} [{service}] {message}")
        counts[service] += level == "ERROR"
    w.file("app.log", "\n".join(lines) + "\n")
    head = "Each line of `app.log` has a time, a level, a service in brackets, and a message. "
    if w.level == "easy":
        service = services[0]
        text = (
            head + f"Count the lines of level ERROR of the service `{service}`, and write the number into `errors.txt`."
        )
        commands = [f'awk \'$2=="ERROR" && $3=="[{service}]"\' app.log | wc -l > errors.txt']
        return Problem(w.tree, text, [text_is("errors.txt", str(counts[service]))], commands)
    ranked = sorted((one for one in services if counts[one]), key=lambda one: (-counts[one], one))
    text = head + (
        "Write into `errors.txt`, for each service with lines of level ERROR, its name, a space and their number, the "
        "highest number first; services with equal numbers in alphabetical order."
    )
    commands = [
        'awk \'$2=="ERROR" {gsub(/[][]/, "", $3); n[$3]++} END {for (s in n) print s, n[s]}\' app.log | '
        "sort -k2,2nr -k1,1 > errors.txt"
    ]
    return Problem(w.tree, text, [lines_are("errors.txt", [f"{one} {counts[one]}" for one in ranked])], commands)


def _access(w: World, when: int, client: str, path: str, status: int, milliseconds: int | None = None) -> str:
    time = stamp(when, "%d/%b/%Y:%H:%M:%S +0000")
    method = w.r.choice(("GET", "GET", "GET", "POST"))
    tail = "" if milliseconds is None else f" {milliseconds}"
    return f'{client} - - [{time}] "{method} {path} HTTP/1.1" {status} {w.r.randint(100, 9000)}{tail}'


@template("logs", "easy", "medium")
def top_clients(w: World) -> Problem:
    """Rank clients by their requests."""
    clients = w.addresses(w.by_level(6, 14, 0))
    weights = w.some(range(3, 60), len(clients))
    drawn = w.r.choices(clients, weights, k=w.by_level(150, 500, 0))
    when, lines = w.moment(), []
    counts: Counter[str] = Counter()
    failed = w.level == "medium"
    for client in drawn:
        when += w.r.randint(0, 9)
        status = w.r.choices((200, 304, 404, 500), (8, 2, 4, 1))[0]
        lines.append(_access(w, when, client, f"/{w.r.choice(SERVICES)}/{w.r.randint(1, 404)}", status))
        counts[client] += not failed or status == 404
    w.file("access.log", "\n".join(lines) + "\n")
    ranked = sorted((count for count in counts if counts[count]), key=lambda one: (-counts[one], one))[:3]
    what = "with status 404" if failed else "(lines)"
    text = (
        "`access.log` is the log of a web server; each line begins with the address of a client. Find the three clients "
        f"with the most requests {what}, and write them into `top.txt`, one on each line, the most requests first: the "
        "number of requests, a space, and the address. Clients with equal numbers are in the order of `sort` (LC_ALL=C)."
    )
    only = " $9==404" if failed else ""
    commands = [
        f"awk '{only} {{n[$1]++}} END {{for (c in n) print n[c], c}}' access.log | LC_ALL=C sort -k1,1nr -k2,2 | head -3 > top.txt"
    ]
    return Problem(w.tree, text, [lines_are("top.txt", [f"{counts[one]} {one}" for one in ranked])], commands)


@template("logs", "medium", "hard", split="test")
def time_window(w: World) -> Problem:
    """Count failures between two moments, over rotated logs."""
    clients, start = w.addresses(9), w.moment()
    parts = w.by_level(0, 2, 4)
    lines: list[tuple[int, int, str]] = []
    when = start
    for _ in range(w.by_level(0, 240, 600)):
        when += w.r.randint(1, 50)
        status = w.r.choices((200, 302, 404, 500, 502, 503), (10, 2, 2, 2, 1, 1))[0]
        lines.append(
            (
                when,
                status,
                _access(w, when, w.r.choice(clients), f"/{w.r.choice(SERVICES)}?n={w.r.randint(495, 515)}", status),
            )
        )
    size = len(lines) // parts
    for part in range(parts):
        chosen = lines[part * size : (part + 1) * size if part < parts - 1 else None]
        content = ("\n".join(line for _, _, line in chosen) + "\n").encode()
        age = parts - 1 - part
        name = f"logs/access.log{f'.{age}' if age else ''}"
        if age >= 1 and w.hard:
            w.file(f"{name}.gz", gzipped(content))
        else:
            w.file(name, content)
    first = lines[len(lines) // 5][0] // 60 * 60
    last = lines[len(lines) * 4 // 5][0] // 60 * 60
    count = sum(first <= when < last and status >= 500 for when, status, _ in lines)
    text = (
        "The web server's logs are in `logs`"
        + (", older ones compressed" if w.hard else "")
        + f". Count the requests with a status of 500 to 599 from {stamp(first, '%d %b %Y %H:%M')} (included) to "
        f"{stamp(last, '%d %b %Y %H:%M')} UTC (not included), over all logs, and write the number into `failures.txt`."
    )
    months = 'BEGIN {split("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", m, " "); for (i in m) n[m[i]]=sprintf("%02d", i)} '
    span = f'k >= "{stamp(first, "%Y%m%d%H%M")}" && k < "{stamp(last, "%Y%m%d%H%M")}"'
    commands = [
        f'for f in logs/*; do zcat -f "$f"; done | awk \'{months}{{split(substr($4, 2), t, "[/:]"); '
        f"k=t[3] n[t[2]] t[1] t[4] t[5]; if ($9 >= 500 && $9 < 600 && {span}) c++}} END {{print c+0}}' > failures.txt"
    ]
    return Problem(w.tree, text, [text_is("failures.txt", str(count))], commands)


@template("logs", "hard")
def slow_endpoints(w: World) -> Problem:
    """Compute a percentile of response times for each path."""
    paths = [f"/{one}" for one in w.some(SERVICES, 6)]
    when, lines = w.moment(), []
    times: dict[str, list[int]] = defaultdict(list)
    for _ in range(400):
        when += w.r.randint(0, 5)
        path, status = w.r.choice(paths), w.r.choices((200, 500), (9, 1))[0]
        milliseconds = w.r.randint(5, 60) * w.r.choice((1, 1, 1, 8, 20))
        query = w.r.choice(("", "", f"?id={w.r.randint(1, 99)}"))
        lines.append(_access(w, when, w.address(), path + query, status, milliseconds))
        if status == 200:
            times[path].append(milliseconds)
    w.file("access.log", "\n".join(lines) + "\n")
    rows = {}
    for path, all_of in times.items():
        ordered = sorted(all_of)
        rows[path] = ordered[-(-len(ordered) * 95 // 100) - 1]
    ranked = sorted(rows, key=lambda path: (-rows[path], path))
    text = (
        "The last number of each line of `access.log` is the time of the request in milliseconds. For each path, without "
        "its query (what begins with `?`), compute the 95th percentile of the times of requests with status 200: with n "
        "times in ascending order, the one at place ceil(0.95 * n), counted from 1. Write path and percentile into "
        "`p95.txt`, one path on each line, separated by a space, the slowest first; equal ones in the order of the paths."
    )
    commands = [
        "awk '$9==200 {p=$7; sub(/\\?.*/, \"\", p); print p, $NF}' access.log | sort -k1,1 -k2,2n | awk '"
        "function out() {if (n) {i=int((95*n+99)/100); print p, v[i]}} $1!=p {out(); n=0; p=$1} {v[++n]=$2} END {out()}' | "
        "LC_ALL=C sort -k2,2nr -k1,1 > p95.txt"
    ]
    return Problem(w.tree, text, [lines_are("p95.txt", [f"{path} {rows[path]}" for path in ranked])], commands)


@template("logs", "medium", "hard", split="validation")
def exception_types(w: World) -> Problem:
    """Count exceptions in a log with traces of several lines."""
    types = [f"{word.capitalize()}Error" for word in w.words(5)]
    services = w.some(SERVICES, 4)
    when, lines = w.moment(), []
    counts: Counter[str] = Counter()
    for _ in range(w.by_level(0, 60, 140)):
        when += w.r.randint(1, 99)
        service = w.r.choice(services)
        if w.r.random() < 0.5:
            lines.append(f"{stamp(when)} INFO [{service}] {w.prose(3)}, no {w.r.choice(types)}")
            continue
        kind = w.r.choice(types)
        lines += [f"{stamp(when)} ERROR [{service}] request failed", "Traceback (most recent call last):"]
        for _ in range(w.r.randint(1, 3)):
            lines += [
                f'  File "/srv/{w.r.choice(services)}.py", line {w.r.randint(1, 400)}, in {w.prose(1)}',
                f"    raise {w.r.choice(types)}()",
            ]
        if w.hard and w.r.random() < 0.4:
            lines += [
                f"{w.r.choice(types)}: {w.prose(2)}", "", "During handling of the above exception, another exception occurred:", "",
                "Traceback (most recent call last):", f'  File "/srv/{service}.py", line {w.r.randint(1, 400)}, in {w.prose(1)}',
                f"    {w.prose(1)}()",
            ]  # fmt: skip
        lines.append(f"{kind}: {w.prose(2)}")
        counts[kind] += service == services[0] or not w.hard
    w.file("app.log", "\n".join(lines) + "\n")
    ranked = sorted((type_ for type_ in types if counts[type_]), key=lambda one: (-counts[one], one))
    text = (
        "`app.log` has messages of one line, and errors: a line with ERROR, and below it one or more tracebacks as Python "
        "writes them. The type of an error is the word before the colon in the last line of its last traceback. "
        + (f"Of the errors of the service `{services[0]}`, count" if w.hard else "Count")
        + " how many there are of each type. Write `types.txt` with the number, a space and the type on each line, the "
        "most frequent first; equal numbers in alphabetical order."
    )
    if w.hard:
        text += " (An error may have raised a first exception and then, while that was handled, another one.)"
    wanted = f' && $3=="[{services[0]}]"' if w.hard else ""
    commands = [
        'awk \'function out() {if (e != "") n[e]++; e=""} /^20/ {out(); on=($2=="ERROR"' + wanted + ")} "
        'on && /^[A-Z][A-Za-z]*Error: / {e=$1; sub(/:$/, "", e)} END {out(); for (t in n) print n[t], t}\' app.log | '
        "LC_ALL=C sort -k1,1nr -k2,2 > types.txt"
    ]
    return Problem(w.tree, text, [lines_are("types.txt", [f"{counts[one]} {one}" for one in ranked])], commands)


@template("logs", "hard")
def failed_logins(w: World) -> Problem:
    """Find addresses with many failures in a short time."""
    limit, minutes = w.r.randint(4, 6), w.r.choice((5, 10, 15))
    start = w.moment()
    events: list[tuple[int, str, bool]] = []
    for number, client in enumerate(w.addresses(12)):
        when = start + w.r.randint(0, 3000)
        burst = number % 2 == 0
        for _ in range(w.r.randint(limit, limit + 3) if burst or number % 3 == 0 else limit - 1):
            events.append((when, client, False))
            when += (
                w.r.randint(1, minutes * 60 // (limit + 1))
                if burst
                else w.r.randint(minutes * 60 // (limit - 2), minutes * 60)
            )
        events.append((when + 5, client, True))
    events.sort()
    found = set()
    for client in {one for _, one, _ in events}:
        times = [when for when, one, good in events if one == client and not good]
        if any(times[place + limit - 1] - times[place] <= minutes * 60 for place in range(len(times) - limit + 1)):
            found.add(client)
    lines = [
        f"{stamp(when, '%b %d %H:%M:%S')} {w.project} sshd[{w.r.randint(300, 9000)}]: "
        f"{'Accepted' if good else 'Failed'} password for {w.r.choice(('root', 'admin', 'guest'))} from {client} port {w.r.randint(1025, 65000)} ssh2"
        for when, client, good in events
    ]
    w.file("auth.log", "\n".join(lines) + "\n")
    text = (
        f"Find the addresses in `auth.log` from which at least {limit} logins failed within {minutes} minutes (from the "
        f"first to the last of these {limit} failures at most {minutes * 60} seconds). Write them into `suspects.txt`, one "
        "on each line, sorted with LC_ALL=C. All lines are of 2024."
    )
    commands = [
        "grep Failed auth.log | while read -r mon day time host proc f p fo user fr ip rest; do "
        'echo "$(date -ud "$mon $day 2024 $time" +%s) $ip"; done | sort -k2,2 -k1,1n | awk '
        f"'$2!=c {{n=0; c=$2}} {{t[++n]=$1; if (n>={limit} && t[n]-t[n-{limit}+1] <= {minutes * 60}) print $2}}' | "
        "LC_ALL=C sort -u > suspects.txt"
    ]
    return Problem(w.tree, text, [lines_are("suspects.txt", sorted(found))], commands)


@template("logs", "easy", "medium", split="test")
def merge_logs(w: World) -> Problem:
    """Merge logs in the order of time."""
    services = w.some(SERVICES, w.by_level(2, 4, 0))
    start = w.moment()
    moments = sorted(w.some(range(start, start + 4000), 30 * len(services)))
    lines: list[tuple[str, str]] = []
    for when in moments:
        service = w.r.choice(services)
        lines.append((service, f"{stamp(when)} {w.r.choice(LEVELS)} {service} {w.prose(3)}"))
    for service in services:
        w.file(f"logs/{service}.log", "\n".join(line for one, line in lines if one == service) + "\n")
    text = (
        "The logs in `logs` have lines in the order of time, each beginning with its time. Merge all of them into "
        "`merged.log`, in the order of time."
    )
    expected = [line for _, line in lines]
    commands = ["LC_ALL=C sort -m logs/*.log > merged.log"]
    if w.level == "medium":
        text += " Leave out the lines of level DEBUG."
        expected = [line for line in expected if line.split()[1] != "DEBUG"]
        commands = ["LC_ALL=C sort -m logs/*.log | awk '$2!=\"DEBUG\"' > merged.log"]
    return Problem(w.tree, text, [lines_are("merged.log", expected)], commands)


@template("logs", "medium", "hard")
def longest_requests(w: World) -> Problem:
    """Pair the beginnings and ends of requests."""
    when = w.moment()
    events: list[tuple[int, str]] = []
    spans: dict[str, int] = {}
    opened: list[str] = []
    durations = w.some(range(2, 900), w.by_level(0, 25, 50))
    for duration in durations:
        when += w.r.randint(1, 30)
        name = f"{w.r.getrandbits(24):06x}"
        if name in spans or name in opened:
            continue
        events.append((when, f"start request={name} path=/{w.r.choice(SERVICES)}"))
        if w.hard and (not opened or w.r.random() < 0.2):
            opened.append(name)
            continue
        spans[name] = duration
        events.append((when + duration, f"end request={name} status={w.r.choice((200, 200, 500))}"))
    events.sort(key=lambda one: one[0])
    w.file("requests.log", "\n".join(f"{stamp(moment, '%H:%M:%S %Y-%m-%d')} {rest}" for moment, rest in events) + "\n")
    ranked = sorted(spans, key=lambda one: -spans[one])[:5]
    text = (
        "Each line of `requests.log` has a time, a date, `start` or `end`, and the id of a request. Find the five requests "
        "that took longest from start to end, and write them into `longest.txt`, the longest first: the id, a space, and "
        "the seconds on each line."
    )
    goals = [lines_are("longest.txt", [f"{one} {spans[one]}" for one in ranked])]
    program = (
        "import datetime as d\nb, s, o = {}, {}, []\nfor line in open('requests.log'):\n"
        "    t, day, what, r, *_ = line.split()\n    n = d.datetime.fromisoformat(day + 'T' + t); r = r[8:]\n"
        "    if what == 'start': b[r] = n\n    else: s[r] = int((n - b.pop(r)).total_seconds())\n"
        "open('longest.txt', 'w').write(''.join(f'{r} {s[r]}\\n' for r in sorted(s, key=lambda r: -s[r])[:5]))\n"
    )
    tail = ""
    if w.hard:
        text += " Write the ids of the requests that never ended into `open.txt`, sorted, one on each line."
        goals.append(lines_are("open.txt", sorted(opened)))
        tail = "open('open.txt', 'w').write(''.join(f'{r}\\n' for r in sorted(b)))\n"
    return Problem(w.tree, text, goals, [f"python3 - <<'EOF'\n{program}{tail}EOF"])


@template("logs", "easy", "medium")
def split_by_day(w: World) -> Problem:
    """Split a log into one file for each day."""
    when, lines = w.moment(), []
    for _ in range(w.by_level(80, 240, 0)):
        when += w.r.randint(60, w.by_level(4000, 3000, 0))
        lines.append((stamp(when)[:10], f"{stamp(when)} {w.r.choice(LEVELS)} {w.prose(3)}"))
    w.file("events.log", "".join(f"{line}\n" for _, line in lines))
    folder, level = w.word(), w.r.choice(LEVELS[1:])
    if w.level == "medium":
        lines = [(day, line) for day, line in lines if line.split()[1] == level]
    days = {day: "".join(f"{line}\n" for other, line in lines if other == day).encode() for day, _ in lines}
    what = "its lines" if w.level == "easy" else f"its lines of level {level}"
    text = (
        "Each line of `events.log` begins with a time, such as 2024-01-31T09:30:00Z, and then has a level. Make the new "
        f"folder `{folder}` with a file for each day, named `YYYY-MM-DD.log`, that has {what} of that day in the same order"
    )
    test = "" if w.level == "easy" else f'$2=="{level}" '
    split = f'mkdir {folder}; awk \'{test}{{print > ("{folder}/" substr($1, 1, 10) ".log")}}\' events.log'
    goals = [folder_is(folder, {f"{day}.log": content for day, content in days.items()})]
    if w.level == "easy":
        return Problem(w.tree, text + ".", goals, [split])
    text += (
        "; a day without such lines gets no file. Write the days with such lines into `days.txt`: the day, a space, and the "
        "number of these lines, one day on each line, in the order of time."
    )
    counts = [f"{day} {content.count(10)}" for day, content in days.items()]
    count = f'cd {folder}; for f in *.log; do echo "${{f%.log}} $(wc -l < "$f")"; done > ../days.txt'
    return Problem(w.tree, text, [*goals, lines_are("days.txt", counts)], [split, count])


@template("logs", "medium", "hard")
def silent_periods(w: World) -> Problem:
    """Find the times in which a service wrote nothing."""
    services = w.some(SERVICES, w.by_level(0, 1, 5))
    limit = w.r.randint(10, 60)
    lines: list[tuple[int, str]] = []
    silences: list[tuple[int, int, str]] = []
    start = w.moment()
    for service in services:
        when = start + w.r.randint(0, 600)
        for _ in range(w.by_level(0, 120, 60)):
            lines.append((when, f"{service} beat {w.r.randint(1, 99)}"))
            gaps = (w.r.randint(5, 60 * limit), w.r.randint(60 * limit + 1, 180 * limit), 60 * limit)
            gap = w.r.choices(gaps, (9, 2, 1))[0]
            silences.append((when, when + gap, service))
            when += gap
        lines.append((when, f"{service} beat 0"))
    lines.sort()
    w.file("beats.log", "".join(f"{stamp(when)} {line}\n" for when, line in lines))
    silences = [(first, last, service) for first, last, service in silences if last - first > 60 * limit]
    silences.sort(key=lambda silence: (-(silence[1] - silence[0]), silence[0], silence[2]))
    silences = silences if w.hard else sorted(silences)
    rows = [
        f"{stamp(first)} {stamp(last)} {last - first}" + (f" {service}" if w.hard else "")
        for first, last, service in silences
    ]
    text = (
        "Each line of `beats.log` has a time and the service that wrote it, in the order of time. Find the silences"
        + (" of each service by itself" if w.hard else "")
        + f": more than {limit} minutes between a line and the next one"
        + (" of the same service" if w.hard else "")
        + ". Write them into `silences.txt`, one on each line: the times of both lines, as they are in the log, and the "
        "seconds between them"
        + (
            ", and the service, separated by spaces; the longest silence first, equal ones by their first time and then by "
            "the service."
            if w.hard
            else ", separated by spaces, in the order of time."
        )
    )
    key = "lambda s: (-s[2], s[0], s[3])" if w.hard else "lambda s: s[0]"
    program = (
        "import datetime as d\nlast, found = {}, []\nfor line in open('beats.log'):\n    t, service, *_ = line.split()\n"
        "    n = d.datetime.fromisoformat(t[:-1])\n    if service in last:\n        b, m = last[service]\n"
        f"        s = int((n - m).total_seconds())\n        if s > {60 * limit}: found.append((b, t, s, service))\n"
        f"    last[service] = t, n\nfound.sort(key={key})\n"
        f"open('silences.txt', 'w').write(''.join(' '.join(map(str, s[:{4 if w.hard else 3}])) + '\\n' for s in found))\n"
    )
    return Problem(w.tree, text, [lines_are("silences.txt", rows)], [f"python3 - <<'EOF'\n{program}EOF"])
