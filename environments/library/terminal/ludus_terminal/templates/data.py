"""Data: CSV, JSON and INI."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ludus.server.authoring.workspace import CITIES, SERVICES
from ludus_terminal.problem import Goal, Problem, State, json_is, lines_are
from ludus_terminal.registry import template
from ludus_terminal.world import World, stamp


def table(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def rows_are(path: str, expected: Sequence[Sequence[str]]) -> Goal:
    """Return the goal that a CSV file has these rows; how fields are quoted does not count."""

    def met(state: State) -> bool:
        try:
            return [row for row in csv.reader(io.StringIO(state.text(path) or ""), strict=True) if row] == expected
        except csv.Error:
            return False

    return Goal(f"{path} has the right rows", met)


def python(program: str) -> str:
    """Return a command line that runs a Python program."""
    return f"python3 - <<'EOF'\n{program}\nEOF"


@template("data", "easy", "medium", "hard")
def csv_to_json(w: World) -> Problem:
    """Turn a CSV file into JSON."""
    rows = []
    for number, name in enumerate(w.words(w.by_level(8, 12, 16))):
        if w.hard:
            note = w.r.choice(
                (
                    w.prose(3),
                    f"{w.prose(1)}, {w.prose(1)}",
                    f'"{w.prose(1)}" {w.prose(1)}',
                    f"{w.prose(1)}\n{w.prose(1)}",
                    "",
                )
            )
        else:
            note = w.r.choice(CITIES)
        rows.append((str(100 + number * w.r.randint(1, 3)), name, str(w.r.randint(1, 9000) / 100), note))
    last = "note" if w.hard else "city"
    w.file("items.csv", table([("id", "name", "price", last), *rows]))
    numbers = w.level != "easy"
    expected = [
        {
            "id": int(id) if numbers else id,
            "name": name,
            "price": float(price) if numbers else price,
            last: (note or None) if w.hard else note,
        }
        for id, name, price, note in rows
    ]
    text = (
        f"Convert `items.csv` to `items.json`: a list with an object for each row, in the same order, with the names of "
        f"the columns ({'id, name, price, ' + last}). "
        + (
            "`id` is a whole number, `price` a number with a decimal point (such as 5.0), and the others are texts."
            if numbers
            else "All values are texts."
        )
    )
    if w.hard:
        text += " An empty note is null."
    convert = "r['id']=int(r['id']); r['price']=float(r['price'])" if numbers else "pass"
    if w.hard:
        convert += "; r['note']=r['note'] or None"
    commands = [
        python(
            f"import csv, json\nrows=list(csv.DictReader(open('items.csv', newline='')))\nfor r in rows: {convert}\njson.dump(rows, open('items.json', 'w'))"
        )
    ]
    return Problem(w.tree, text, [json_is("items.json", expected)], commands)


@template("data", "medium", "hard", split="validation")
def json_to_csv(w: World) -> Problem:
    """Flatten JSON into CSV."""
    orders: list[dict[str, Any]] = []
    expected: list[list[str]] = [["order", "customer", "city", "item", "count"]]
    for number in range(w.by_level(0, 6, 12)):
        first, last = w.person()
        order: dict[str, Any] = {"order": 1000 + 7 * number, "customer": {"name": f"{first} {last}"}, "items": []}
        city = w.r.choice(CITIES) if not w.hard or w.r.random() < 0.7 else ""
        if city:
            order["customer"]["city"] = city
        for _ in range(w.r.randint(0 if w.hard else 1, 3)):
            item = w.prose(1) + (w.r.choice(("", ", large", ' 3"')) if w.hard else "")
            count = w.r.randint(1, 20)
            order["items"].append({"item": item, "count": count})
            expected.append([str(order["order"]), f"{first} {last}", city, item, str(count)])
        orders.append(order)
    w.file("orders.json", json.dumps(orders, indent=2) + "\n")
    text = (
        "Convert `orders.json` to `orders.csv`: the header `order,customer,city,item,count`, and then a row for each item "
        "of each order, in the same order; `customer` is the name of the customer."
    )
    if w.hard:
        text += (
            " A missing city is an empty field. Orders without items give no row. Quote fields where CSV requires it."
        )
    commands = [
        python(
            "import csv, json\nout=csv.writer(open('orders.csv', 'w', newline=''))\n"
            "out.writerow('order customer city item count'.split())\nfor o in json.load(open('orders.json')):\n"
            "    for i in o['items']: out.writerow([o['order'], o['customer']['name'], o['customer'].get('city', ''), i['item'], i['count']])"
        )
    ]
    return Problem(w.tree, text, [rows_are("orders.csv", expected)], commands)


@template("data", "medium", "hard", split="test")
def latest_records(w: World) -> Problem:
    """Keep the newest record of each key."""
    keys = [f"{w.r.choice('ABCDEF')}{number}" for number in w.some(range(100, 999), w.by_level(0, 10, 18))]
    count = w.by_level(0, 30, 70)
    days = w.some(range(0, 900), count)
    start = w.moment()
    rows = []
    for number in range(count):
        key = keys[number] if number < len(keys) else w.r.choice(keys)
        shown = w.r.choice((key, key.lower(), f" {key}")) if w.hard else key
        pattern = w.r.choice(("%Y-%m-%d", "%d.%m.%Y")) if w.hard else "%Y-%m-%d"
        rows.append((key, days[number], shown, stamp(start + days[number] * 86400, pattern), str(w.r.randint(1, 999))))
    w.r.shuffle(rows)
    w.file("stock.csv", table([("key", "date", "amount"), *(row[2:] for row in rows)]))
    newest: dict[str, tuple[int, str]] = {}
    for key, day, _, _, amount in rows:
        if key not in newest or day > newest[key][0]:
            newest[key] = (day, amount)
    expected = [["key", "date", "amount"], *(
        [key, stamp(start + newest[key][0] * 86400, "%Y-%m-%d"), newest[key][1]] for key in sorted(newest)
    )]  # fmt: skip
    text = (
        "`stock.csv` has several rows for the same key. Write `latest.csv`: the same header, and for each key only its row "
        "with the newest date, sorted by key."
    )
    if w.hard:
        text += (
            " Keys are equal if they differ only in case and in spaces around them; write them in upper case without spaces. "
            "Dates are `YYYY-MM-DD` or `DD.MM.YYYY`; write all as `YYYY-MM-DD`."
        )
    commands = [
        python(
            "import csv\nbest={}\nfor r in csv.DictReader(open('stock.csv', newline='')):\n    k=r['key'].strip().upper(); d=r['date']\n"
            "    if '.' in d: d='-'.join(reversed(d.split('.')))\n    if k not in best or d > best[k][1]: best[k]=[k, d, r['amount']]\n"
            "out=csv.writer(open('latest.csv', 'w', newline=''))\nout.writerow(['key', 'date', 'amount'])\nout.writerows(best[k] for k in sorted(best))"
        )
    ]
    return Problem(w.tree, text, [rows_are("latest.csv", expected)], commands)


@template("data", "easy", "medium", split="test")
def ini_to_json(w: World) -> Problem:
    """Turn an INI file into JSON."""
    sections: dict[str, dict[str, str]] = {}
    lines: list[str] = []
    for name in w.some(SERVICES, w.by_level(2, 4, 0)):
        values = {w.word(): w.r.choice((str(w.r.randint(1, 999)), w.prose(1), f"/srv/{w.prose(1)}")) for _ in range(4)}
        sections[name] = values
        lines.append(f"[{name}]")
        for key, value in values.items():
            if w.level == "medium" and w.r.random() < 0.4:
                lines.append(w.r.choice((f"; {key} = old", f"# {w.prose(2)}", "")))
            spaces = w.r.choice((" = ", "=", "  =  ")) if w.level == "medium" else " = "
            lines.append(f"{key}{spaces}{value}")
        lines.append("")
    w.file("app.ini", "\n".join(lines))
    text = (
        "Convert `app.ini` to `app.json`: an object with a name for each section, whose value is an object with the section's "
        "keys. All values are texts."
    )
    if w.level == "medium":
        text += (
            " Lines that begin with `;` or `#` are comments, and spaces around keys and values do not belong to them."
        )
    commands = [
        python(
            "import configparser, json\nc=configparser.ConfigParser(interpolation=None)\nc.read('app.ini')\njson.dump({s: dict(c[s]) for s in c.sections()}, open('app.json', 'w'))"
        )
    ]
    return Problem(w.tree, text, [json_is("app.json", sections)], commands)


@template("data", "easy", "medium", "hard")
def group_totals(w: World) -> Problem:
    """Sum by groups."""
    cities = w.some(CITIES, w.by_level(4, 6, 8))
    rows, totals, counts = [], defaultdict[str, int](int), defaultdict[str, int](int)
    for _ in range(w.by_level(25, 60, 90)):
        city, cents = w.r.choice(cities), w.r.randint(100, 90_000)
        status = w.r.choice(("paid", "paid", "open", "void"))
        shown = f"{cents // 100}.{cents % 100:02}"
        name = w.prose(1) if not w.hard else f"{w.prose(1)}, {w.prose(1)}"
        rows.append((name, city, str(cents // 100) if w.level == "easy" else shown, status))
        if status == "paid" or w.level == "easy":
            totals[city] += cents // 100 if w.level == "easy" else cents
            counts[city] += 1
    w.file("sales.csv", table([("customer", "city", "amount", "status"), *rows]))
    if w.level == "easy":
        expected = [f"{city},{totals[city]}" for city in sorted(totals)]
        text = "Sum the column `amount` of `sales.csv` for each city, and write `totals.csv`, without a header: a line `CITY,SUM` for each city, sorted by city."
        commands = [
            "awk -F, 'NR>1 {t[$2]+=$3} END {for (c in t) print c \",\" t[c]}' sales.csv | LC_ALL=C sort > totals.csv"
        ]
        return Problem(w.tree, text, [lines_are("totals.csv", expected)], commands)
    cities_ = sorted(totals, key=lambda city: (-totals[city], city))
    expected_rows = [
        ["city", "orders", "total"],
        *([city, str(counts[city]), f"{totals[city] // 100}.{totals[city] % 100:02}"] for city in cities_),
    ]
    text = (
        "Take the rows of `sales.csv` whose status is `paid`. Write `totals.csv` with the header `city,orders,total`, and for "
        "each city the number of its orders and the sum of their amounts with two decimals; the greatest sum first, equal "
        "ones sorted by city."
    )
    if w.hard:
        text += " Fields may be quoted and have commas in them."
    commands = [
        python(
            "import csv\nfrom decimal import Decimal\nt={}\nfor r in csv.DictReader(open('sales.csv', newline='')):\n"
            "    if r['status'] == 'paid':\n        n, s = t.get(r['city'], (0, Decimal(0))); t[r['city']] = (n + 1, s + Decimal(r['amount']))\n"
            "out=csv.writer(open('totals.csv', 'w', newline=''))\nout.writerow(['city', 'orders', 'total'])\n"
            "for c in sorted(t, key=lambda c: (-t[c][1], c)): out.writerow([c, t[c][0], f'{t[c][1]:.2f}'])"
        )
    ]
    return Problem(w.tree, text, [rows_are("totals.csv", expected_rows)], commands)


@template("data", "hard")
def merge_settings(w: World) -> Problem:
    """Merge JSON files deeply."""

    def drawn(depth: int, names: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in w.some(names, 4):
            kind = w.r.random()
            if kind < 0.4 and depth:
                found[name] = drawn(depth - 1, names)
            elif kind < 0.6:
                found[name] = [w.r.randint(1, 9) for _ in range(w.r.randint(1, 3))]
            else:
                found[name] = w.r.choice((w.r.randint(1, 999), w.prose(1), True, False))
        return found

    names = w.words(6)
    layers = [drawn(2, names) for _ in range(4)]
    for layer in layers[1:]:
        layer[w.r.choice(names)] = None
    order = w.some(range(10, 99), 4)
    order.sort()
    for number, layer in zip(order, layers, strict=True):
        w.file(f"conf.d/{number}-{w.word()}.json", json.dumps(layer, indent=1) + "\n")
    w.file(f"conf.d/{w.word()}.json.disabled", json.dumps({"disabled": True}) + "\n")
    result: dict[str, Any] = {}
    for layer in layers:
        result = _merged(result, layer)
    text = (
        "Merge the `.json` files in `conf.d`, in the order of their names, into `merged.json`. When two values are both "
        "objects, they are merged in the same way; otherwise the later value replaces the earlier one. A null in a later file "
        "removes the name from the result (and is not written if the name was not there)."
    )
    commands = [
        python(
            "import glob, json\ndef m(a, b):\n    for k, v in b.items():\n        if v is None: a.pop(k, None)\n"
            "        elif isinstance(v, dict) and isinstance(a.get(k), dict): m(a[k], v)\n        else: a[k] = v\n    return a\n"
            "r={}\nfor f in sorted(glob.glob('conf.d/*.json')): m(r, json.load(open(f)))\njson.dump(r, open('merged.json', 'w'))"
        )
    ]
    return Problem(w.tree, text, [json_is("merged.json", result)], commands)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = dict(one)
    for name, value in other.items():
        if value is None:
            both.pop(name, None)
        elif isinstance(value, dict) and isinstance(both.get(name), dict):
            both[name] = _merged(both[name], value)
        else:
            both[name] = value
    return both


@template("data", "medium", "hard")
def reject_rows(w: World) -> Problem:
    """Split rows into valid and invalid ones."""
    good: list[list[str]] = []
    bad: list[list[str]] = []
    rows: list[list[str]] = []
    seen: set[str] = set()
    for _ in range(w.by_level(0, 24, 50)):
        first, last = w.person()
        id, age, mail = (
            str(w.r.randint(1000, 9999)),
            str(w.r.randint(18, 99)),
            f"{first}.{last}@{w.prose(1)}.example".lower(),
        )
        fault = w.r.choice(("", "", "id", "age", "mail", "twice" if w.hard and good else ""))
        if fault == "id":
            id = w.r.choice((id[:3], f"{id}1", f"x{id[1:]}", ""))
        elif fault == "age":
            age = w.r.choice(("", "17", "100", "-20", "20.5", "abc"))
        elif fault == "mail":
            mail = w.r.choice((mail.replace("@", " at "), mail.replace("@", "@@"), mail.split("@")[0], f"{mail}@"))
        elif fault == "twice":
            id = w.r.choice(good)[0]
        row = [id, f"{first} {last}", age, mail]
        valid = fault == "" and not (w.hard and id in seen)
        if fault == "" and not valid or fault == "" and not w.hard and id in seen:
            continue
        rows.append(row)
        (good if valid else bad).append(row)
        if valid:
            seen.add(id)
    header = ["id", "name", "age", "mail"]
    w.file("people.csv", table([header, *rows]))
    text = (
        "Split `people.csv` into `valid.csv` and `rejected.csv`, both with the header of `people.csv` and their rows in the "
        "same order. A row is valid if its id has exactly four digits, its age is a whole number from 18 to 99, and its mail "
        "has exactly one `@`, with text before and after it, and no spaces"
        + ("; of several rows with the same id that are valid otherwise, only the first is valid." if w.hard else ".")
    )
    commands = [
        python(
            "import csv, re\nrows=list(csv.reader(open('people.csv', newline='')))\ngood=csv.writer(open('valid.csv', 'w', newline=''))\n"
            "bad=csv.writer(open('rejected.csv', 'w', newline=''))\ngood.writerow(rows[0]); bad.writerow(rows[0])\nseen=set()\n"
            "for r in rows[1:]:\n    ok = bool(re.fullmatch('[0-9]{4}', r[0]) and re.fullmatch('1[89]|[2-9][0-9]', r[2]) and re.fullmatch(r'[^@\\s]+@[^@\\s]+', r[3]))\n"
            f"    ok = ok and (r[0] not in seen or not {w.hard})\n    seen |= {{r[0]}} if ok else set()\n    (good if ok else bad).writerow(r)"
        )
    ]
    goals = [rows_are("valid.csv", [header, *good]), rows_are("rejected.csv", [header, *bad])]
    return Problem(w.tree, text, goals, commands)


@template("data", "easy", "medium", "hard")
def json_select(w: World) -> Problem:
    """Select records of a JSON file."""
    tags = w.words(4)
    year, pages, tag = w.r.randint(1970, 2000), w.r.randint(200, 500), tags[0]
    books: list[dict[str, Any]] = []
    for word in w.words(w.by_level(15, 25, 40)):
        book: dict[str, Any] = {"title": f"{word.capitalize()} {w.prose(1)}", "year": w.r.randint(1950, 2024)}
        book |= {"pages": w.r.randint(80, 900), "author": {"name": " ".join(w.person())}}
        book["tags"] = w.some(tags, w.r.randint(0, 3))
        if w.hard and w.r.random() < 0.3:
            book.pop(w.r.choice(("pages", "tags", "author")))
        books.append(book)
    books[3] |= {"year": year, "tags": [tag], "pages": pages + 1}  # the first to count, and one just below
    books[5] |= {"year": year - 1, "tags": [tag], "pages": pages}
    if w.level == "easy":
        w.file("books.json", json.dumps(books, indent=1) + "\n")
        titles = [book["title"] for book in books if book["year"] >= year]
        text = f"Write the titles of all books in `books.json` whose year is {year} or later into `titles.txt`, one on each line, in the order of the file."
        program = f"for b in json.load(open('books.json')):\n    if b['year'] >= {year}: print(b['title'])"
        return Problem(w.tree, text, [lines_are("titles.txt", titles)], [python(f"import json, sys\nsys.stdout=open('titles.txt', 'w')\n{program}")])  # fmt: skip
    condition = f"`{tag}` is one of its tags, and it has more than {pages} pages"
    chosen = [book for book in books if tag in book.get("tags", []) and book.get("pages", 0) > pages]
    chosen.sort(key=lambda book: (book["year"], book["title"]))
    select = f"'{tag}' in b.get('tags', []) and b.get('pages', 0) > {pages}"
    if w.level == "medium":
        w.file("books.json", json.dumps(books, indent=1) + "\n")
        text = (
            f"Take each book in `books.json` for which both hold: {condition}. Write them into `books.txt`, one on each line, "
            "as `TITLE (YEAR), AUTHOR` with the name of the author, in the order of the years, and those of a year in "
            "alphabetical order of their titles."
        )
        rows = [f"{book['title']} ({book['year']}), {book['author']['name']}" for book in chosen]
        program = (
            f"import json\nc=[b for b in json.load(open('books.json')) if {select}]\nc.sort(key=lambda b: (b['year'], b['title']))\n"
            "with open('books.txt', 'w') as f:\n    for b in c: print(f\"{b['title']} ({b['year']}), {b['author']['name']}\", file=f)"
        )
        return Problem(w.tree, text, [lines_are("books.txt", rows)], [python(program)])
    return _select_lines(w, books, tag, pages, condition)


def _select_lines(w: World, books: Sequence[dict[str, Any]], tag: str, pages: int, condition: str) -> Problem:
    """Return the problem of a file with an object on each line, some of which are broken."""
    select = f"'{tag}' in b.get('tags', []) and b.get('pages', 0) > {pages}"
    lines = [json.dumps(book) for book in books]
    for _ in range(6):
        line = w.r.choice(lines)
        lines.insert(
            w.r.randrange(len(lines)), w.r.choice(("", line[:-1], f"# {line}", line.replace('"year": ', '"year" ')))
        )
    broken = sum(not _is_json(line) for line in lines if line)
    valid = [json.loads(line) for line in lines if _is_json(line)]
    w.file("books.jsonl", "".join(f"{line}\n" for line in lines))
    chosen = [book for book in valid if tag in book.get("tags", []) and book.get("pages", 0) > pages]
    chosen.sort(key=lambda book: (book["year"], book["title"]))
    text = (
        f"`books.jsonl` should have a JSON object on each line. Take each book for which both hold: {condition}; a book "
        "without one of these fields does not count. Write `books.json`: a list with an object for each, with the names "
        "`title`, `year` and `author` (the name of the author, or null if it is missing), in the order of the years, and those "
        "of a year in alphabetical order of their titles. Write the number of lines that are neither empty nor JSON into "
        "`broken.txt`."
    )
    program = (
        "import json\nc, n = [], 0\nfor line in open('books.jsonl'):\n    if not line.strip(): continue\n    try: b = json.loads(line)\n"
        f"    except ValueError: n += 1; continue\n    if {select}: c.append(b)\nc.sort(key=lambda b: (b['year'], b['title']))\n"
        "json.dump([dict(title=b['title'], year=b['year'], author=b.get('author', {}).get('name')) for b in c], open('books.json', 'w'))\n"
        "print(n, file=open('broken.txt', 'w'))"
    )
    expected = [
        {"title": book["title"], "year": book["year"], "author": book.get("author", {}).get("name")} for book in chosen
    ]
    goals = [json_is("books.json", expected), lines_are("broken.txt", [str(broken)])]
    return Problem(w.tree, text, goals, [python(program)])


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@template("data", "medium", "hard")
def pivot_table(w: World) -> Problem:
    """Turn rows into a table with a column for each value."""
    regions = [f"{w.prose(1)}, {name}" if w.hard else name for name in w.words(w.by_level(0, 5, 7))]
    kinds = sorted(w.words(w.by_level(0, 3, 5)))
    amounts: defaultdict[tuple[str, str], int] = defaultdict(int)
    rows: list[tuple[str, str, int]] = []
    for _ in range(w.by_level(0, 30, 70)):
        region, kind, amount = w.r.choice(regions), w.r.choice(kinds), w.r.randint(-20 if w.hard else 1, 400)
        rows.append((region, kind, amount))
        amounts[region, kind] += amount
    w.file("sales.csv", table([("region", "kind", "amount"), *rows]))
    empty = w.r.choice(("-", "none", "n/a"))
    named = sorted({region for region, _, _ in rows})
    columns = sorted({kind for _, kind, _ in rows})

    def cells(region: str) -> list[str]:
        return [str(amounts[region, kind]) if (region, kind) in amounts else empty for kind in columns]

    expected = [["region", *columns], *([region, *cells(region)] for region in named)]
    text = (
        "The rows of `sales.csv` have a region, a kind and an amount. Write `table.csv`: a row for each region, sorted by "
        "region, and after the column `region` a column for each kind, sorted by kind, with the sum of the amounts of this "
        f"region and kind, or `{empty}` if there are no rows. The first row has the names of the columns."
    )
    extra = ""
    if w.hard:
        for row in expected[1:]:
            row.append(str(sum(amounts[row[0], kind] for kind in columns if (row[0], kind) in amounts)))
        expected[0].append("total")
        sums = [sum(amount for _, other, amount in rows if other == kind) for kind in columns]
        expected.append(["total", *map(str, sums), str(sum(sums))])
        text += " Add the column `total` with the sum of each region, and as the last row `total` with the sum of each column. Quote fields where CSV requires it."
        extra = (
            "for r in out[1:]: r.append(sum(x for x in r[1:] if x != e))\nout[0].append('total')\n"
            "out.append(['total', *(sum(r[i] for r in out[1:] if r[i] != e) for i in range(1, len(out[0])))])\n"
        )
    commands = [
        python(
            f"import csv\ne='{empty}'\nt={{}}\nfor r in csv.DictReader(open('sales.csv', newline='')):\n"
            "    k=r['region'], r['kind']; t[k]=t.get(k, 0) + int(r['amount'])\nc=sorted({k for _, k in t})\n"
            "out=[['region', *c], *([g, *(t.get((g, k), e) for k in c)] for g in sorted({g for g, _ in t}))]\n"
            f"{extra}csv.writer(open('table.csv', 'w', newline='')).writerows(out)"
        )
    ]
    return Problem(w.tree, text, [rows_are("table.csv", expected)], commands)
