"""Text files: search, count, join, replace."""

from __future__ import annotations

from collections import Counter

from ludus.server.authoring.workspace import CITIES, SERVICES
from ludus_terminal.problem import Problem, data_is, lines_are, text_is
from ludus_terminal.registry import template
from ludus_terminal.world import World


@template("text", "easy", "medium", "hard", split="validation")
def collect_addresses(w: World) -> Problem:
    """Collect mail addresses from texts."""
    found: set[str] = set()
    domains = [f"{word}.example" for word in w.words(3)]
    for number, folder in enumerate(w.words(w.by_level(1, 3, 5))):
        lines = []
        for _ in range(w.by_level(8, 12, 20)):
            first, last = w.person()
            address = f"{first}.{last}@{w.r.choice(domains)}".lower()
            if w.hard and w.r.random() < 0.4:
                shown = address.title() if w.r.random() < 0.5 else address.upper()
            else:
                shown = address
            form = w.r.choice(("{} <{}> wrote", "{}: {}", "{} (mail to {}, please)", "{}"))
            if form != "{}":
                found.add(address)
            lines.append(f"{form.format(w.prose(2), shown)} {w.prose(3)}")
        lines.append(f"{w.prose(2)} @{w.word()} {w.prose(1)}@ {w.prose(2)}")
        ending = "txt" if number % 2 == 0 or w.level == "easy" else "md"
        w.file(f"mail/{folder}.{ending}" if number < 3 else f"mail/old/{folder}.{ending}", "\n".join(lines) + "\n")
    text = (
        f"Collect all mail addresses (such as `name@{domains[0]}`) in the files below `mail`, and write them into "
        "`addresses.txt`: one on each line, each once, in alphabetical order."
    )
    if w.hard:
        text += " Write them in lower case; addresses that differ only in case are the same."
    lower = " | tr A-Z a-z" if w.hard else ""
    commands = [
        f"grep -rhoE '[A-Za-z0-9._-]+@[A-Za-z0-9.-]+\\.[A-Za-z]+' mail{lower} | LC_ALL=C sort -u > addresses.txt"
    ]
    return Problem(w.tree, text, [lines_are("addresses.txt", sorted(found))], commands)


@template("text", "medium", "hard")
def word_ranking(w: World) -> Problem:
    """Rank words by frequency."""
    words = w.words(30)
    weights = [1 / (place + 2) for place in range(30)]
    drawn = w.r.choices(words, weights, k=w.by_level(0, 300, 900))
    counts = Counter(drawn)
    shown = [w.r.choice((word, word.capitalize(), word.upper())) if w.hard else word for word in drawn]
    text_, pieces = "", list(shown)
    while pieces:
        size = min(len(pieces), w.r.randint(5, 12))
        text_ += w.r.choice((" ", ", ") if w.hard else (" ",)).join(pieces[:size]) + w.r.choice((".\n", "\n"))
        pieces = pieces[size:]
    half = text_.find("\n", len(text_) // 2) + 1
    w.file("book/part-1.txt", text_[:half])
    w.file("book/part-2.txt", text_[half:])
    best = sorted(counts, key=lambda word: (-counts[word], word))[:8]
    text = (
        "Count the words in all files in `book` together. Write the eight most frequent ones into `ranking.txt`, one on "
        "each line: the count, a space, and the word; the most frequent first, and words with equal counts in "
        "alphabetical order. A word is a run of letters"
        + ("; upper and lower case are the same, and words are written in lower case." if w.hard else ".")
    )
    lower = "tr A-Z a-z | " if w.hard else ""
    commands = [
        f"cat book/* | {lower}grep -oE '[A-Za-z]+' | sort | uniq -c | sort -k1,1nr -k2,2 | head -8 | "
        "awk '{print $1, $2}' > ranking.txt"
    ]
    return Problem(w.tree, text, [lines_are("ranking.txt", [f"{counts[word]} {word}" for word in best])], commands)


@template("text", "easy", "medium")
def sum_column(w: World) -> Problem:
    """Sum a column of a table of text."""
    teams = w.words(4)
    rows = [(w.word(), w.r.choice(teams), w.r.randint(1, 900)) for _ in range(w.by_level(25, 60, 0))]
    team = rows[0][1]
    separator = w.r.choice((":", ";", "|"))
    lines = [separator.join((name, team_, str(hours), w.r.choice(CITIES))) for name, team_, hours in rows]
    w.file("hours.txt", "\n".join(lines) + "\n")
    head = f"Each line of `hours.txt` has a name, a team, hours and a city, separated by `{separator}`. "
    if w.level == "easy":
        total = sum(hours for _, _, hours in rows)
        text = head + "Write the sum of all hours into `total.txt`."
        return Problem(
            w.tree, text, [text_is("total.txt", str(total))],
            [f"awk -F'[{separator}]' '{{s+=$3}} END {{print s}}' hours.txt > total.txt"],
        )  # fmt: skip
    total = sum(hours for _, one, hours in rows if one == team)
    text = head + (
        f"Write the sum of the hours of team `{team}` into `total.txt`, and the names in that team, in alphabetical "
        "order, one on each line, into `names.txt`."
    )
    names = sorted({name for name, one, _ in rows if one == team})
    commands = [
        f"awk -F'[{separator}]' '$2==\"{team}\" {{s+=$3; print $1 > \"names.raw\"}} END {{print s}}' hours.txt > total.txt",
        "LC_ALL=C sort -u names.raw > names.txt; rm names.raw",
    ]
    return Problem(w.tree, text, [text_is("total.txt", str(total)), lines_are("names.txt", names)], commands)


@template("text", "medium", "hard", split="validation")
def join_tables(w: World) -> Problem:
    """Join two files by a number."""
    count = w.by_level(0, 15, 40)
    ids = w.some(range(100, 999), count)
    people = {id_: " ".join(w.person()) for id_ in ids[: count - 3]}
    cities: dict[int, list[str]] = {id_: [w.r.choice(CITIES)] for id_ in ids[2:]}
    if w.hard:
        for one in w.some(ids[2:], 8):
            cities[one].append(w.r.choice([city for city in CITIES if city not in cities[one]]))
    people_lines = [f"{one}\t{name}" for one, name in people.items()]
    city_lines = [f"{city}\t{one}" for one, all_of in cities.items() for city in all_of]
    w.r.shuffle(people_lines)
    w.r.shuffle(city_lines)
    w.file("people.tsv", "\n".join(people_lines) + "\n")
    w.file("cities.tsv", "\n".join(city_lines) + "\n")
    joined = [
        f"{person}\t{people[person]}\t{city}" for person in sorted(people) for city in sorted(cities.get(person, []))
    ]
    text = (
        "`people.tsv` has a number and a name on each line, and `cities.tsv` a city and a number, separated by a tab. "
        "Write `joined.tsv`: number, name and city, separated by tabs, for all numbers that are in both files, in the "
        "order of the numbers"
        + (" and then of the cities (a number may have several)" if w.hard else "")
        + ". Write the numbers that are only in `people.tsv` into `missing.txt`, one on each line, in ascending order."
    )
    commands = [
        "sort -k1,1 people.tsv > /tmp/p; awk -F'\\t' '{print $2\"\\t\"$1}' cities.tsv | sort -k1,1 > /tmp/c; "
        "join -t \"$(printf '\\t')\" /tmp/p /tmp/c | LC_ALL=C sort > joined.tsv; "
        "join -t \"$(printf '\\t')\" -v1 /tmp/p /tmp/c | cut -f1 | sort -n > missing.txt",
    ]
    missing = [str(one) for one in sorted(set(people) - set(cities))]
    return Problem(w.tree, text, [lines_are("joined.tsv", joined), lines_are("missing.txt", missing)], commands)


@template("text", "medium", "hard")
def rename_function(w: World) -> Problem:
    """Rename a function in a source tree."""
    old, new = f"load_{w.word()}", f"read_{w.word()}"
    near = (f"{old}s", f"pre{old}", f"{old}_all", old.upper())
    changed: dict[str, bytes] = {}
    places = [f"src/{word}.py" for word in w.words(5)] + [f"tests/test_{w.word()}.py", f"docs/{w.word()}.md"]
    if w.hard:
        places += [f"src/{w.word()} {w.word()}.py", f"src/deep/er/{w.word()}.py"]
    for path in places:
        lines = []
        for _ in range(10):
            one = w.r.choice((old, old, *near, w.prose(1)))
            lines.append(w.r.choice(("{}({})", "x = {}[{}]", "# {}, {}", "print('{}', {})")).format(one, w.prose(1)))
        lines.append(f"return {old}()")
        content = "\n".join(lines) + "\n"
        w.file(path, content)
        changed[path] = _renamed(content, old, new).encode()
    for path in (f"vendor/{w.word()}.py", f"src/vendor/{w.word()}.py", f"{w.word()}.bin"):
        w.file(path, f"{old}()\n{w.prose(3)}\n")
    text = (
        f"Rename the function `{old}` to `{new}` in all `.py` and `.md` files, in code, comments and texts, except in "
        f"folders named `vendor`. Change it only where it is a whole name: `{near[0]}`, `{near[1]}`, `{near[2]}` and "
        f"`{near[3]}` are other names."
    )
    commands = [
        "find . -name vendor -prune -o -type f \\( -name '*.py' -o -name '*.md' \\) -print0 | "
        f"xargs -0 sed -i 's/\\b{old}\\b/{new}/g'"
    ]
    return Problem(w.tree, text, [data_is(path, content) for path, content in changed.items()], commands, list(changed))


def _renamed(text: str, old: str, new: str) -> str:
    import re

    return re.sub(rf"(?<!\w){old}(?!\w)", new, text)


@template("text", "easy", "medium", split="test")
def compare_lists(w: World) -> Problem:
    """Find the lines of one list that are missing in another."""
    words = w.words(w.by_level(24, 60, 0))
    old = w.some(words, len(words) * 2 // 3)
    new = w.some(words, len(words) * 2 // 3)
    w.file("old.txt", "\n".join(old) + "\n")
    w.file("new.txt", "\n".join(new) + "\n")
    added, removed = sorted(set(new) - set(old)), sorted(set(old) - set(new))
    text = (
        "`old.txt` and `new.txt` have a word on each line, in no order. Write the words that are only in `new.txt` "
        "into `added.txt`, in alphabetical order, one on each line."
    )
    goals = [lines_are("added.txt", added)]
    commands = ["sort old.txt > /tmp/o; sort new.txt > /tmp/n; comm -13 /tmp/o /tmp/n > added.txt"]
    if w.level == "medium":
        text += " In the same way, write those that are only in `old.txt` into `removed.txt`, and all others into `both.txt`."
        goals += [lines_are("removed.txt", removed), lines_are("both.txt", sorted(set(old) & set(new)))]
        commands.append("comm -23 /tmp/o /tmp/n > removed.txt; comm -12 /tmp/o /tmp/n > both.txt")
    if w.level == "medium":
        commands = [" ; ".join(commands)]
    return Problem(w.tree, text, goals, commands)


@template("text", "medium", "hard", split="test")
def clean_text(w: World) -> Problem:
    """Normalize line ends and spaces, and leave binary files alone."""
    changed: dict[str, bytes] = {}
    for number, name in enumerate(w.words(w.by_level(0, 5, 9))):
        lines = [w.prose(w.r.randint(1, 6)) for _ in range(8)]
        path = f"{w.r.choice(('docs', 'src', 'src/lib'))}/{name}{w.r.choice(('', ' 2')) if w.hard else ''}.txt"
        dirty = [
            w.r.choice(("", "\t") if w.hard else ("",)) + line + w.r.choice(("", "  ", "\t", " ")) for line in lines
        ]
        ends = ["\r\n" if number % 2 == 0 or w.r.random() < 0.3 else "\n" for _ in lines]
        content = "".join(line + end for line, end in zip(dirty, ends, strict=True))
        clean = "".join(line.rstrip().replace("\t", "    ") + "\n" for line in dirty)
        if w.hard and number % 3 == 0:
            content = content.rstrip("\r\n")
        w.file(path, content)
        if clean != content:
            changed[path] = clean.encode()
    for name in w.words(2):
        w.file(f"src/{name}.bin", bytes(w.r.randbytes(30)) + b" \r\n\t\r\n")
    text = (
        "Clean up all `.txt` files: each line ends with a single newline instead of CR and LF, and has no spaces or tabs "
        "at its end."
    )
    if w.hard:
        text += " The last line ends with a newline, too, and a tab at the beginning of a line becomes four spaces."
    text += " Leave the `.bin` files as they are."
    tabs = "; s/^\\t/    /; $a\\" if w.hard else ""
    commands = [f"find . -name '*.txt' -print0 | xargs -0 -n1 sed -i 's/[ \\t\\r]*$//{tabs}'"]
    return Problem(w.tree, text, [data_is(path, content) for path, content in changed.items()], commands, list(changed))


@template("text", "easy", "medium", "hard")
def change_setting(w: World) -> Problem:
    """Change a value in a configuration file."""
    names = w.some(SERVICES, w.by_level(3, 5, 6))
    key = w.r.choice(("timeout", "workers", "retries", "port"))
    chosen = w.r.choice(names)
    old, new = w.r.randint(10, 99), w.r.randint(100, 999)

    def render(value: int, active: bool) -> str:
        lines: list[str] = ["# services", ""]
        for name in names:
            lines.append(f"[{name}]")
            if w.hard:
                lines.append(f"# {key} = {old}  (an earlier value)")
            lines.append(f"enabled = {'yes' if name != chosen or active else 'no'}")
            lines.append(f"{key} = {value if name == chosen else old}")
            lines += [f"{key}_max = {old}", f"log = /var/log/{name}-{old}.log", ""]
        return "\n".join(lines)

    w.file("services.ini", render(old, active=not w.hard))
    w.file("services.ini.orig", render(old, active=not w.hard))
    text = f"In `services.ini`, set `{key}` in the section `[{chosen}]` to {new}."
    if w.hard:
        text += " In the same section, set `enabled` to yes."
    text += " Change nothing else, comments included."
    enable = "; s/^enabled = .*/enabled = yes/" if w.hard else ""
    commands = [f"sed -i '/^\\[{chosen}\\]/,/^$/ {{ s/^{key} = .*/{key} = {new}/{enable} }}' services.ini"]
    return Problem(
        w.tree, text, [data_is("services.ini", render(new, active=True).encode())], commands, ["services.ini"]
    )


@template("text", "easy")
def numbered_extract(w: World) -> Problem:
    """Copy some lines of a file."""
    lines = [f"{w.prose(5)} {w.r.randint(100, 999)}" for _ in range(120)]
    first = w.r.randint(10, 60)
    last = first + w.r.randint(8, 30)
    w.file("story.txt", "\n".join(lines) + "\n")
    chosen = lines[first - 1 : last]
    text = (
        f"Copy the lines {first} to {last} of `story.txt` (the first line is line 1, both included) into `part.txt`, and "
        "write how many lines of the whole `story.txt` have the word `{0}` in them into `count.txt`."
    )
    word = lines[0].split()[0]
    count = sum(word in line.split() for line in lines)
    commands = [f"sed -n '{first},{last}p' story.txt > part.txt; grep -cw {word} story.txt > count.txt"]
    goals = [lines_are("part.txt", chosen), text_is("count.txt", str(count))]
    return Problem(w.tree, text.format(word), goals, commands)


@template("text", "hard")
def reflow_records(w: World) -> Problem:
    """Turn records of several lines into a table."""
    fields = ("name", "city", "phone", "note")
    records: list[dict[str, str]] = []
    blocks: list[str] = []
    for _ in range(14):
        first, last = w.person()
        record = {"name": f"{first} {last}", "city": w.r.choice(CITIES), "phone": f"{w.r.randint(100000, 999999)}"}
        note = [w.prose(2) for _ in range(w.r.randint(0, 3))]
        for missing in w.some(("city", "phone"), w.r.choice((0, 0, 1))):
            record.pop(missing)
        lines = [f"{name}: {value}" for name, value in record.items()]
        w.r.shuffle(lines)
        if note:
            lines.append(f"note: {note[0]}")
            lines += [f"  {more}" for more in note[1:]]
            record["note"] = " ".join(note)
        records.append(record)
        blocks.append("\n".join(lines))
    w.file("cards.txt", w.r.choice(("\n\n", "\n\n\n")).join(blocks) + "\n")
    text = (
        "`cards.txt` has records, separated by one or more empty lines. A line of a record is `field: value`, in any "
        "order; a line that begins with spaces continues the value before it (joined by one space). Write `cards.tsv`: a "
        "line for each record, in the same order, with the fields name, city, phone and note, separated by tabs. A "
        "missing field is a `-`."
    )
    rows = ["\t".join(record.get(name, "-") for name in fields) for record in records]
    program = (
        'awk \'BEGIN {RS=""; FS="\\n"; OFS="\\t"} {split("", v); k=""; for (i=1; i<=NF; i++) { '
        'if ($i ~ /^ /) {t=$i; sub(/^ +/, "", t); v[k]=v[k] " " t} else {p=index($i, ": "); k=substr($i, 1, p-1); '
        'v[k]=substr($i, p+2)} } o=""; n=split("name city phone note", f, " "); for (i=1; i<=n; i++) '
        'o = o (i>1 ? OFS : "") ((f[i] in v) ? v[f[i]] : "-"); print o}\' cards.txt > cards.tsv'
    )
    return Problem(w.tree, text, [lines_are("cards.tsv", rows)], [program])


@template("text", "easy", "medium")
def pick_columns(w: World) -> Problem:
    """Take some columns of a table, in another order."""
    names = w.words(6)
    number_column = w.r.randrange(6)
    rows = [
        [str(w.r.randint(1, 500)) if column == number_column else w.prose(1) for column in range(6)]
        for _ in range(w.by_level(20, 50, 0))
    ]
    first, second, third = w.some([column for column in range(6) if column != number_column], 3)
    if w.level == "easy":
        w.file("table.tsv", "".join("\t".join(row) + "\n" for row in rows))
        text = (
            f"Each line of `table.tsv` has six columns, separated by tabs. Write the columns {first + 1}, {second + 1} and "
            f"{third + 1} of all lines, in this order and separated by tabs, into `picked.tsv`."
        )
        expected = ["\t".join((row[first], row[second], row[third])) for row in rows]
        commands = [
            f"awk 'BEGIN {{FS=OFS=\"\\t\"}} {{print ${first + 1}, ${second + 1}, ${third + 1}}}' table.tsv > picked.tsv"
        ]
        return Problem(w.tree, text, [lines_are("picked.tsv", expected)], commands)
    limit = w.r.randint(150, 350)
    rows[7][number_column] = str(limit)
    w.file("table.tsv", "".join("\t".join(row) + "\n" for row in [names, *rows]))
    chosen = [names, *(row for row in rows if int(row[number_column]) > limit)]
    expected = ["\t".join((row[second], row[number_column], row[first])) for row in chosen]
    text = (
        "The first line of `table.tsv` has the names of its columns, which are separated by tabs. Write the columns "
        f"`{names[second]}`, `{names[number_column]}` and `{names[first]}`, in this order and separated by tabs, into "
        f"`picked.tsv`: the line of names, and then all lines whose `{names[number_column]}` is greater than {limit}, in "
        "the order of `table.tsv`."
    )
    columns = ", ".join(f"${column + 1}" for column in (second, number_column, first))
    commands = [
        f"awk 'BEGIN {{FS=OFS=\"\\t\"}} NR==1 || ${number_column + 1} > {limit} {{print {columns}}}' table.tsv > picked.tsv"
    ]
    return Problem(w.tree, text, [lines_are("picked.tsv", expected)], commands)
