"""Goals on a sheet of their own, which are the same in every domain: schedules, balances, plans, conversions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final

from ludus.environments.spreadsheet.engine.addresses import letters
from ludus.environments.spreadsheet.engine.book import Content
from ludus.environments.spreadsheet.engine.values import Scalar, to_serial
from ludus.environments.spreadsheet.goals.goal import Cell, Goal, fill, kind, style_facts
from ludus.environments.spreadsheet.scenes import Column, Data, Draw, Rows, Scene, Table

Step = tuple[str, str]
"""A header of a column to fill, and the formula of its first row."""


def whole(low: int, high: int) -> Draw:
    """Return what draws whole numbers."""
    return lambda rng, place: rng.randint(low, high)


def hundredths(low: int, high: int) -> Draw:
    """Return what draws numbers with two decimals."""
    return lambda rng, place: rng.randint(low * 100, high * 100) / 100


def filled_sheet(
    scene: Scene,
    table: Table,
    steps: Sequence[Step],
    request: str,
    values: Callable[[Data], Sequence[Sequence[Scalar]]],
) -> Goal:
    """Return the goal of filling columns right of a table, whose headers are there.

    Args:
        scene: the scene.
        table: the table, which is added to the scene.
        steps: the columns to fill.
        request: what they give; it may have `{area}`, the range to fill.
        values: computes the columns, one sequence each.
    """
    scene.add(table)
    sheet, start = scene.sheet(table.sheet), table.area.right + 1
    for at, (header, _) in enumerate(steps):
        sheet.put(table.top, start + at, header)
        sheet.style(table.top, start + at, bold=True)
    rows = range(table.first, table.last + 1)
    cells: list[list[Cell]] = [[(table.sheet, row, start + at) for row in rows] for at in range(len(steps))]

    def expected(data: Data) -> dict[Cell, Scalar]:
        found = values(data)
        return {
            cell: value
            for column, given in zip(cells, found, strict=True)
            for cell, value in zip(column, given, strict=True)
        }

    solution = [
        fill(table.sheet, f"{letters(start + index)}{table.first}:{letters(start + index)}{table.last}", formula)
        for index, (_, formula) in enumerate(steps)
    ]
    area = f"{letters(start)}{table.first}:{letters(start + len(steps) - 1)}{table.last}"
    free = style_facts([cell for column in cells for cell in column])
    return Goal(request=request.replace("{area}", area), solution=solution, expected=expected, free=free)


def _number(value: Content) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _inputs(scene: Scene, sheet: str, values: Sequence[tuple[str, Draw, str]]) -> Table:
    return scene.inputs(f"{sheet}-inputs", sheet, 1, 1, values)


@kind(6, general=True)
def loan(scene: Scene, variant: int) -> Goal:
    """Write the schedule of a loan."""
    payments, periods = variant % 2 == 0, (12, 18, 24)[variant // 2]
    sheet = "Loan"
    amounts = [
        ("Loan", whole(50, 400), "General"), ("Yearly rate", hundredths(0, 1), "0.00%"),
        ("Payment" if not payments else "Monthly installment", whole(20, 60), "General"),
    ]  # fmt: skip
    amounts[0] = ("Loan", lambda rng, place: rng.randint(50, 400) * 100, "#,##0.00")
    amounts[1] = ("Yearly rate", lambda rng, place: rng.randint(10, 95) / 1000, "0.00%")
    amounts[2] = (amounts[2][0], lambda rng, place: rng.randint(200, 600), "#,##0.00")
    used = amounts[:2] if payments else amounts
    given = _inputs(scene, sheet, used)
    scene.sometimes(given.id, 1_000)  # repaid before the last month
    table = Table(
        "loan", sheet, len(used) + 3, 1, [Column("month", "Month", None)], [[n] for n in range(1, periods + 1)]
    )
    first = table.first
    before = f"IF(A{first}=1,$B$2,E{first - 1})"
    payment = f"PMT($B$3/12,{periods},-$B$2)" if payments else f"MIN($B$4,{before}+C{first})"
    steps = [
        ("Payment", payment), ("Interest", f"{before}*$B$3/12"), ("Principal", f"B{first}-C{first}"),
        ("Balance", f"{before}-D{first}"),
    ]  # fmt: skip

    def values(data: Data) -> list[list[Scalar]]:
        balance, rate = _number(data[given.id][0][1]), _number(data[given.id][1][1]) / 12
        growth = (1 + rate) ** periods
        even = balance * rate * growth / (growth - 1)
        columns: list[list[Scalar]] = [[], [], [], []]
        for _ in range(periods):
            interest = balance * rate
            paid = even if payments else min(_number(data[given.id][2][1]), balance + interest)
            balance -= paid - interest
            for column, value in zip(columns, (paid, interest, paid - interest, balance), strict=True):
                column.append(value)
        return columns

    paid = (
        f"Payment is the constant monthly payment that repays the loan in {periods} months (as PMT gives it, but positive)"
        if payments
        else "Payment is the one in B4, but never more than the balance before plus the interest of the month"
    )
    return filled_sheet(
        scene, table, steps,
        f"On the sheet {sheet}, fill {{area}} with the formulas of a loan schedule. The loan is in B2 and the yearly rate in B3. "
        f"{paid}; Interest is the balance before, times a twelfth of the yearly rate; Principal is Payment minus Interest; "
        "Balance is what remains. Do not round.", values,
    )  # fmt: skip


@kind(6, general=True)
def plan_and_actual(scene: Scene, variant: int) -> Goal:
    """Compare a plan with what happened."""
    costs, theme = variant % 2 == 0, variant // 2
    sheet = "Plan"
    names = (
        ("Rent", "Salaries", "Travel", "Software", "Training", "Energy", "Repairs", "Insurance"),
        ("January", "February", "March", "April", "May", "June", "July", "August"),
        ("Berlin", "Madrid", "Prague", "Turin", "Lyon", "Porto", "Gdansk", "Ghent"),
    )[theme]

    def draw(rng: random.Random, place: int) -> Content:
        return 0 if costs and rng.random() < 0.15 else rng.randint(5, 14) * 100  # equal ones are common

    columns = [
        Column("name", ("Cost", "Month", "City")[theme], None),
        Column("plan", "Plan", draw),
        Column("actual", "Actual", draw),
    ]
    rows: list[list[Content]] = [[name, draw(scene.rng, 0), draw(scene.rng, 0)] for name in names]
    table = Table("plan", sheet, 1, 1, columns, rows)
    steps = [
        ("Difference", "C2-B2"), ("Percent", 'IF(B2=0,"n/a",(C2-B2)/B2)'),
        ("Status", f'IF(C2>B2,"{"over" if costs else "reached"}","{"within" if costs else "missed"}")'),
    ]  # fmt: skip
    words = ("over", "within") if costs else ("reached", "missed")

    def values(data: Data) -> list[list[Scalar]]:
        pairs = [(_number(row[1]), _number(row[2])) for row in data["plan"]]
        return [
            [actual - plan for plan, actual in pairs],
            ["n/a" if plan == 0 else (actual - plan) / plan for plan, actual in pairs],
            [words[0] if actual > plan else words[1] for plan, actual in pairs],
        ]

    def is_edge(data: Mapping[str, Rows]) -> None:
        """Plan nothing in a line, and reach another's plan exactly."""
        data["plan"][0][1], data["plan"][1][2] = 0, data["plan"][1][1]

    scene.edges.append(is_edge)
    scene.hot |= {("plan", "actual"): [600], ("plan", "plan"): [600]}
    return filled_sheet(
        scene, table, steps,
        f"On the sheet {sheet}, fill {{area}} with formulas: Difference is Actual minus Plan; Percent is that difference as a "
        f'fraction of Plan, or "n/a" if Plan is 0; Status is "{words[0]}" if Actual is greater than Plan, and "{words[1]}" '
        "otherwise.", values,
    )  # fmt: skip


@kind(4, general=True)
def account(scene: Scene, variant: int) -> Goal:
    """Keep the balance of an account."""
    sheet, alert = ("Account", "Cash book")[variant % 2], variant >= 2
    given = _inputs(scene, sheet, [("Opening balance", whole(100, 3000), "#,##0.00")])
    amounts: Draw = lambda rng, place: None if rng.random() < 0.5 else rng.randint(500, 90000) / 100  # noqa: E731
    start = int(to_serial(date(2025, 3, 3)))
    columns = [
        Column("day", "Day", None, "yyyy-mm-dd"), Column("in", "Money in", amounts, "#,##0.00"),
        Column("out", "Money out", amounts, "#,##0.00"),
    ]  # fmt: skip
    rows: list[list[Content]] = [
        [start + 3 * place, amounts(scene.rng, 0), amounts(scene.rng, 0)] for place in range(scene.rng.randint(12, 18))
    ]
    table = Table("account", sheet, 4, 1, columns, rows)
    steps = [("Balance", "$B$2+SUM(B$5:B5)-SUM(C$5:C5)")]
    if alert:
        steps.append(("Alert", 'IF(D5<0,"overdrawn","")'))

    def values(data: Data) -> list[list[Scalar]]:
        balance, found = round(_number(data[given.id][0][1]) * 100), []
        for row in data["account"]:  # in whole cents, so that 0 is 0
            balance += round(_number(row[1] or 0) * 100) - round(_number(row[2] or 0) * 100)
            found.append(balance / 100)
        columns: list[list[Scalar]] = [[*found]]
        if alert:
            columns.append(["overdrawn" if one < 0 else "" for one in found])
        return columns

    def is_spent(data: Mapping[str, Rows]) -> None:
        """Make the balance exactly 0 in a line, with whole numbers, whose sums are exact."""
        lines = data["account"]
        for row in lines:
            row[1:] = [int(value) if isinstance(value, float) else value for value in row[1:]]
        middle = len(lines) // 2
        paid = sum(int(_number(row[1] or 0)) - int(_number(row[2] or 0)) for row in lines[:middle])
        left = int(_number(data[given.id][0][1])) + paid
        lines[middle][1:] = [max(-left, 0), max(left, 0)]

    scene.edges.append(is_spent)
    note = ' Alert is "overdrawn" if the balance is below 0, and an empty text otherwise.' if alert else ""
    return filled_sheet(
        scene, table, steps,
        f"On the sheet {sheet}, fill {{area}} with formulas. Balance is the opening balance in B2, plus all money in and minus all "
        f"money out from the first line to the line itself; empty cells count as 0.{note}", values,
    )  # fmt: skip


_UNITS: Final = (
    ("Kilometers", "Miles", 1.609344, 0.0, "miles (1 mile is 1.609344 kilometers)"),
    ("Kilograms", "Pounds", 0.45359237, 0.0, "pounds (1 pound is 0.45359237 kilograms)"),
    ("Celsius", "Fahrenheit", 5 / 9, 32.0, "degrees Fahrenheit (Celsius times 9/5, plus 32)"),
    ("Liters", "Gallons", 3.785411784, 0.0, "gallons (1 gallon is 3.785411784 liters)"),
    ("Square meters", "Acres", 4046.8564224, 0.0, "acres (1 acre is 4046.8564224 square meters)"),
    ("Centimeters", "Inches", 2.54, 0.0, "inches (1 inch is 2.54 centimeters)"),
)


@kind(12, general=True)
def units(scene: Scene, variant: int) -> Goal:
    """Convert units, and round."""
    metric, other, factor, offset, text = _UNITS[variant % 6]
    rounds = variant >= 6
    scale = 0.001 if factor > 1000 else 10
    draw: Draw = lambda rng, place: rng.randint(-170 if offset else 10, 9000) / scale  # noqa: E731
    columns = [Column("name", "Sample", None), Column("value", metric, draw)]
    rows: list[list[Content]] = [[f"S{place:02d}", draw(scene.rng, 0)] for place in range(1, scene.rng.randint(9, 15))]
    table = Table("units", "Units", 1, 1, columns, rows)
    formula = "B2*9/5+32" if offset else f"B2/{factor!r}"
    # No result is below 0, where halves that go up differ from those that ROUND rounds.
    integral = f"INT({formula}+0.5)" if rounds else formula

    def values(data: Data) -> list[list[Scalar]]:
        found = [_number(row[1]) / factor + offset for row in data["units"]]
        return [[float(_half_up(value)) if rounds else value for value in found]]

    note = ", rounded to a whole number (halves up)" if rounds else ", without rounding"
    return filled_sheet(
        scene, table, [(other, integral)], f"On the sheet Units, fill {{area}} with formulas that convert {metric} into {text}{note}.",
        values,
    )  # fmt: skip


def _half_up(value: float) -> int:
    return int((round(value, 9) + 0.5) // 1)


@kind(4, general=True)
def weighted_marks(scene: Scene, variant: int) -> Goal:
    """Compute marks with weights in the row of headers above."""
    parts = (("Homework", "Project", "Exam"), ("Speed", "Quality", "Price", "Service"))[variant % 2]
    passes = variant >= 2
    weights = scene.add(
        Table(
            "weights",
            "Marks",
            1,
            2,
            [Column(part, part, whole(1, 6)) for part in parts],
            [[scene.rng.randint(1, 6) for _ in parts]],
        )
    )
    columns = [Column("name", "Name", None), *(Column(part, f"{part} mark", whole(0, 100)) for part in parts)]
    rows: list[list[Content]] = [
        [scene.domain.draw("person", scene.rng, 0), *(scene.rng.randint(0, 100) for _ in parts)]
        for _ in range(scene.rng.randint(9, 14))
    ]
    table = Table("marks", "Marks", 4, 1, columns, rows)
    end = letters(1 + len(parts))
    mean = f"SUMPRODUCT($B$2:${end}$2,B5:{end}5)/SUM($B$2:${end}$2)"
    result = letters(2 + len(parts))
    steps = [("Result", mean)]
    if passes:
        steps.append(("Passed", f'IF(AND({result}5>=50,MIN(B5:{end}5)>=20),"yes","no")'))

    def values(data: Data) -> list[list[Scalar]]:
        given = [_number(value) for value in data[weights.id][0]]
        marks = [[_number(value) for value in row[1:]] for row in data["marks"]]
        found = [sum(w * m for w, m in zip(given, mark, strict=True)) / sum(given) for mark in marks]
        columns: list[list[Scalar]] = [[*found]]
        if passes:
            ok = [mean >= 50 and min(mark) >= 20 for mean, mark in zip(found, marks, strict=True)]
            columns.append(["yes" if one else "no" for one in ok])
        return columns

    def is_edge(data: Mapping[str, Rows]) -> None:
        """Pass barely: with a result of 50, and with a mark of 20."""
        data[weights.id][0][:] = [1] * len(parts)
        data["marks"][0][1:] = [50] * len(parts)
        data["marks"][1][1:] = [20, *[100] * (len(parts) - 1)]

    scene.edges.append(is_edge)
    scene.hot |= {("marks", part): [19, 20, 50] for part in parts}
    note = (
        ' Passed is "yes" if Result is at least 50 and no mark of the row is below 20, and "no" otherwise.'
        if passes
        else ""
    )
    return filled_sheet(
        scene, table, steps,
        f"On the sheet Marks, fill {{area}} with formulas. Result is the average of the row's {len(parts)} marks with the weights in "
        f"B2:{end}2, divided by the sum of the weights.{note}", values,
    )  # fmt: skip


@kind(4, general=True)
def depreciation(scene: Scene, variant: int) -> Goal:
    """Write off a value over years."""
    declining, years = variant % 2 == 1, (5, 8)[variant // 2]
    last = (
        ("Rate per year", lambda rng, place: rng.randint(10, 45) / 100, "0%")
        if declining
        else ("Residual value", whole(10, 90), "General")
    )
    given = _inputs(scene, "Assets", [("Cost", lambda rng, place: rng.randint(20, 900) * 50, "#,##0.00"), last])
    table = Table("assets", "Assets", 5, 1, [Column("year", "Year", None)], [[year] for year in range(1, years + 1)])
    first = table.first
    before = f"IF(A{first}=1,$B$2,C{first - 1})"
    written = f"{before}*$B$3" if declining else f"($B$2-$B$3)/{years}"
    steps = [("Write-off", written), ("Value", f"{before}-B{first}")]

    def values(data: Data) -> list[list[Scalar]]:
        value, other = _number(data[given.id][0][1]), _number(data[given.id][1][1])
        even, columns = (value - other) / years, [list[Scalar](), list[Scalar]()]
        for _ in range(years):
            off = value * other if declining else even
            value -= off
            columns[0].append(off)
            columns[1].append(value)
        return columns

    how = (
        "Write-off is the value before, times the rate in B3" if declining
        else f"Write-off is the same every year: the cost in B2 minus the residual value in B3, divided by the {years} years"
    )  # fmt: skip
    return filled_sheet(
        scene, table, steps,
        f"On the sheet Assets, fill {{area}} with formulas. {how}. Value is the value before minus Write-off; before the first year it "
        "is the cost in B2. Do not round.", values,
    )  # fmt: skip


@kind(4, general=True)
def reorder(scene: Scene, variant: int) -> Goal:
    """Decide what to order."""
    packs, with_cost = variant % 2 == 1, variant >= 2
    columns = [
        Column("part", "Part", None), Column("stock", "In stock", whole(0, 120)), Column("least", "Least", whole(10, 90)),
        Column("target", "Target", whole(120, 240)), Column("pack", "Pack size", whole(2, 12)), Column("price", "Price", hundredths(1, 30)),
    ]  # fmt: skip
    rows: list[list[Content]] = [
        [f"P-{place:03d}", *(column.draw(scene.rng, 0) for column in columns[1:] if column.draw)]
        for place in scene.rng.sample(range(1, 900), scene.rng.randint(10, 15))
    ]
    table = Table("parts", "Parts", 1, 1, columns, rows)
    scene.hot["parts", "stock"] = [10, 20, 40]
    scene.hot["parts", "least"] = [10, 20, 40]
    amount = "ROUNDUP((D2-B2)/E2,0)*E2" if packs else "D2-B2"
    steps = [("Order", f"IF(B2<C2,{amount},0)")] + ([("Cost", "G2*F2")] if with_cost else [])

    def values(data: Data) -> list[list[Scalar]]:
        orders: list[float] = []
        for row in data["parts"]:
            stock, least, target, pack = (int(_number(value)) for value in row[1:5])
            needed = target - stock
            orders.append(float(0 if stock >= least else -(-needed // pack) * pack if packs else needed))
        found: list[list[Scalar]] = [[*orders]]
        if with_cost:
            found.append([order * _number(row[5]) for order, row in zip(orders, data["parts"], strict=True)])
        return found

    how = ", rounded up to a multiple of Pack size" if packs else ""
    return filled_sheet(
        scene, table, steps,
        f"On the sheet Parts, fill {{area}} with formulas. Order is 0 if In stock is Least or more; otherwise it is Target minus In "
        f"stock{how}.{' Cost is Order times Price.' if with_cost else ''}", values,
    )  # fmt: skip
