"""The domains of tasks: what a table is about, and what its columns hold."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Final, Literal, NamedTuple

from ludus.environments._names import FIRST_NAMES, LAST_NAMES
from ludus.environments.spreadsheet.engine.book import Content
from ludus.environments.spreadsheet.engine.values import to_serial

Role = Literal["key", "date", "group", "kind", "person", "count", "money"]
"""What a column is for: an id, a date, one of two categories, a person, a whole number, an amount of money."""
ROLES: Final[tuple[Role, ...]] = ("key", "date", "group", "kind", "person", "count", "money")
DATES: Final = "yyyy-mm-dd"
MONEY: Final = "#,##0.00"


class Domain(NamedTuple):
    """What the tables of a domain are about.

    Attributes:
        sheet: the name of the main sheet.
        things: what a row is, in the plural.
        prefix: the letters of ids.
        headers: the headers by role.
        groups: the values of the first category.
        kinds: the values of the second category.
        counts: the least and the greatest whole number.
        amounts: the least and the greatest amount.
    """

    sheet: str
    things: str
    prefix: str
    headers: tuple[str, str, str, str, str, str, str]
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    counts: tuple[int, int]
    amounts: tuple[int, int]

    def header(self, role: Role) -> str:
        """Return the header of a column."""
        return self.headers[ROLES.index(role)]

    def draw(self, role: Role, rng: random.Random, place: int) -> Content:
        """Return a value of a column; ids follow from the place of the row."""
        if role == "key":
            return f"{self.prefix}-{rng.choice(_YEARS)}-{place:03d}"
        if role == "date":
            return int(to_serial(_FIRST_DAY + timedelta(rng.randrange(365))))
        if role == "group":
            return rng.choice(self.groups)
        if role == "kind":
            return rng.choice(self.kinds)
        if role == "person":
            return f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
        if role == "count":
            return rng.randint(*self.counts)
        low, high = self.amounts
        return rng.randint(low * 100, high * 100) / 100


_YEARS: Final = ("2023", "2024", "2025")
_FIRST_DAY: Final = date(2025, 1, 1)

DOMAINS: Final[dict[str, Domain]] = {
    "sales": Domain(
        "Orders", "orders", "SO", ("Order", "Order date", "Region", "Product", "Customer", "Quantity", "Unit price"),
        ("North", "South", "East", "West", "Central"), ("Desk", "Chair", "Lamp", "Shelf", "Monitor"), (1, 40), (8, 400),
    ),
    "payroll": Domain(
        "Payroll", "entries", "PR",
        ("Entry", "Pay date", "Department", "Contract", "Employee", "Hours", "Hourly rate"),
        ("Finance", "Logistics", "Support", "Engineering", "Marketing"), ("Full time", "Part time", "Temporary", "Intern"),
        (4, 60), (14, 95),
    ),
    "inventory": Domain(
        "Stock", "items", "IT", ("Item", "Last counted", "Warehouse", "Class", "Counted by", "Units", "Unit cost"),
        ("Oslo", "Lisbon", "Vienna", "Dublin", "Riga"), ("Tools", "Paint", "Timber", "Fittings", "Cable"),
        (0, 250), (1, 120),
    ),
    "grades": Domain(
        "Grades", "results", "GR", ("Result", "Test date", "Class", "Subject", "Student", "Points", "Fee"),
        ("10A", "10B", "11A", "11B", "12A"), ("Math", "Physics", "History", "Art", "French"), (0, 100), (5, 60),
    ),
    "budget": Domain(
        "Expenses", "expenses", "EX", ("Expense", "Paid on", "Category", "Payment", "Approved by", "Receipts", "Amount"),
        ("Travel", "Rent", "Software", "Training", "Catering"), ("Card", "Transfer", "Cash", "Voucher"), (1, 12), (6, 900),
    ),
    "projects": Domain(
        "Timesheet", "bookings", "TS", ("Booking", "Day", "Project", "Activity", "Consultant", "Hours", "Rate"),
        ("Aurora", "Beacon", "Comet", "Delta", "Ember"), ("Design", "Coding", "Testing", "Review", "Travel"),
        (1, 10), (40, 180),
    ),
    "invoices": Domain(
        "Invoices", "invoices", "IN", ("Invoice", "Issued", "Country", "Status", "Client", "Lines", "Net amount"),
        ("Spain", "Norway", "Poland", "Kenya", "Chile"), ("Open", "Paid", "Overdue", "Disputed"), (1, 25), (50, 5000),
    ),
    "donations": Domain(
        "Donations", "donations", "DN", ("Donation", "Received", "Campaign", "Channel", "Donor", "Tickets", "Gift"),
        ("Spring", "Schools", "Rivers", "Shelter", "Winter"), ("Online", "Letter", "Event", "Phone"), (1, 15), (5, 750),
    ),
    "clinic": Domain(
        "Visits", "visits", "VS", ("Visit", "Visit date", "Clinic", "Service", "Patient", "Minutes", "Charge"),
        ("Harbor", "Hillside", "Market", "Station"), ("Checkup", "Dental", "X-ray", "Therapy", "Vaccine"), (5, 90), (20, 480),
    ),
    "fleet": Domain(
        "Trips", "trips", "TR", ("Trip", "Departure", "Depot", "Vehicle", "Driver", "Distance", "Fuel cost"),
        ("Aarhus", "Bremen", "Cork", "Delft"), ("Van", "Truck", "Bus", "Car", "Tanker"), (8, 900), (4, 350),
    ),
    "energy": Domain(
        "Readings", "readings", "RD", ("Reading", "Read on", "Site", "Meter", "Reader", "Kilowatt hours", "Cost"),
        ("Plant", "Office", "Depot", "Campus", "Annex"), ("Heat", "Light", "Cooling", "Pumps"), (10, 900), (3, 300),
    ),
    "bookings": Domain(
        "Bookings", "bookings", "BK", ("Reservation", "Arrival", "Hotel", "Room", "Guest", "Nights", "Price per night"),
        ("Bellevue", "Astoria", "Central Inn", "Seaview"), ("Single", "Double", "Suite", "Family", "Studio"), (1, 14), (45, 520),
    ),
}  # fmt: skip
