"""The words from which companies are generated."""

from __future__ import annotations

from typing import Final

COMPANY_HEADS: Final = (
    "Alder", "Amber", "Arbor", "Beacon", "Birch", "Bright", "Cedar", "Clear", "Copper", "Delta", "Ember", "Fern",
    "Granite", "Harbor", "Hazel", "Iron", "Juniper", "Lumen", "Maple", "Meridian", "North", "Opal", "Pine", "Quartz",
    "River", "Silver", "Stone", "Summit", "Tidal", "Willow",
)  # fmt: skip
COMPANY_TAILS: Final = (
    "bridge", "craft", "field", "flow", "forge", "gate", "grid", "leaf", "line", "logic", "mark", "path", "peak",
    "point", "port", "shore", "span", "view", "ware", "works",
)  # fmt: skip
CUSTOMER_HEADS: Final = (
    "Aurora",
    "Atlantic",
    "Baltic",
    "Boreal",
    "Capital",
    "Central",
    "Coastal",
    "Crescent",
    "Crown",
    "Eastern",
    "Evergreen",
    "Falcon",
    "First",
    "Global",
    "Golden",
    "Grand",
    "Highland",
    "Imperial",
    "Lakeside",
    "Liberty",
    "Metro",
    "Modern",
    "Nordic",
    "Pacific",
    "Pioneer",
    "Prime",
    "Royal",
    "Southern",
    "Sterling",
    "Union",
    "United",
    "Vertex",
    "Western",
)
CUSTOMER_TAILS: Final = (
    ("Foods", "food"), ("Logistics", "transport"), ("Insurance", "insurance"), ("Textiles", "retail"),
    ("Energy", "energy"), ("Pharma", "health"), ("Motors", "automotive"), ("Media", "media"), ("Bank", "finance"),
    ("Hotels", "travel"), ("Clinics", "health"), ("Builders", "construction"),
)  # fmt: skip
CITIES: Final = ("Berlin", "Dublin", "Lisbon", "Lyon", "Madrid", "Milan", "Oslo", "Porto", "Prague", "Vienna", "Zurich")
OFFICES: Final = ("Hamburg", "Lisbon", "Oslo")
DEPARTMENTS: Final = {
    "Sales": (14, "Account Manager"), "Engineering": (24, "Software Engineer"), "Support": (12, "Support Agent"),
    "Marketing": (8, "Marketing Specialist"), "Finance": (7, "Accountant"), "HR": (6, "HR Partner"),
    "Operations": (8, "Operations Specialist"), "Product": (8, "Product Manager"), "Legal": (4, "Counsel"),
}  # fmt: skip
"""The least number of people of each department, and their title."""
HEADS: Final = {
    "Sales": "Head of Sales", "Engineering": "Head of Engineering", "Support": "Head of Support",
    "Marketing": "Head of Marketing", "Finance": "Head of Finance", "HR": "Head of HR",
    "Operations": "Head of Operations", "Product": "Head of Product", "Legal": "General Counsel",
}  # fmt: skip
CONTACT_TITLES: Final = (
    "Purchasing Manager", "IT Manager", "Managing Director", "Project Lead", "Head of Operations", "Controller",
)  # fmt: skip
ROOMS: Final = (
    ("Aspen", 4, 1), ("Cypress", 6, 1), ("Hickory", 8, 2), ("Linden", 10, 2), ("Magnolia", 14, 3), ("Sequoia", 20, 3),
)  # fmt: skip
PRODUCTS: Final = ("Anchor", "Compass", "Lantern", "Rudder", "Sextant")
REGIONS: Final = ("North", "East", "South", "West")
CHANNELS: Final = ("search", "social", "newsletter", "partners", "direct")
PROJECTS: Final = (
    ("ATLAS", "Data platform"), ("BOREAS", "Mobile app"), ("CYGNUS", "Billing"), ("DRACO", "Customer portal"),
    ("ERIS", "Warehouse integration"), ("FORNAX", "Reporting"), ("GEMINI", "Single sign-on"), ("HYDRA", "Search"),
)  # fmt: skip
TICKET_THINGS: Final = (
    "login page", "invoice export", "search index", "password reset", "address form", "price list", "order import",
    "weekly report", "backup job", "user menu", "mail templates", "audit view", "calendar sync", "upload dialog",
    "product filter", "tax rules", "shopping cart", "error page", "session timeout", "chart colors",
)  # fmt: skip
TICKET_FAULTS: Final = (
    "shows wrong totals", "is slow for large accounts", "fails on Mondays", "ignores the time zone",
    "loses the last entry", "needs a new design", "has no tests", "must support German", "crashes on empty input",
    "sends two messages", "needs an audit trail", "rejects long names",
)  # fmt: skip
STAGES: Final = ("lead", "qualified", "proposal", "negotiation", "won", "lost")
OPEN_STAGES: Final = STAGES[:4]
DEAL_THINGS: Final = (
    "license renewal", "support contract", "pilot", "rollout", "training package", "migration", "extra seats",
    "consulting days", "integration",
)  # fmt: skip
EXPENSE_CATEGORIES: Final = ("travel", "hotel", "meals", "equipment", "training", "software")
LEAVE_KINDS: Final = ("vacation", "sick", "parental", "unpaid")
MEETINGS: Final = (
    "Roadmap review", "Budget check", "Design review", "Release planning", "Customer feedback", "Hiring sync",
    "Incident review", "Pricing discussion", "Onboarding", "Architecture talk", "Campaign kickoff", "Retrospective",
    "Vendor call", "Risk review", "Demo rehearsal", "Contract review",
)  # fmt: skip
DOCUMENT_THINGS: Final = (
    "Price list", "Travel guide", "Onboarding checklist", "Release notes", "Brand guide", "Security guide",
    "Support playbook", "Partner terms", "Office rules", "Data sheet", "Sales deck", "Service catalog",
)  # fmt: skip
MAIL_TOPICS: Final = (
    (
        "Slides for the {thing}",
        "Hi {to},\n\nthe slides for the {thing} are in the shared folder. Please have a look before the"
        " week ends.\n\nBest,\n{me}",
    ),
    (
        "Lunch on {day}?",
        "Hi {to},\n\nare you in the office on {day}? We could have lunch and talk about the {thing}.\n\n{me}",
    ),
    (
        "Question about the {thing}",
        "Hello {to},\n\nwho is responsible for the {thing} now? I would like to ask two questions.\n\nThanks,\n{me}",
    ),
    (
        "Notes from the {thing}",
        "Hi {to},\n\nhere are my notes from the {thing}: we agreed on the plan, and the next step is a"
        " short review.\n\nBest,\n{me}",
    ),
    (
        "Parking on {day}",
        "Hi {to},\n\nthe garage is closed on {day}. Please use the parking lot behind the building.\n\n{me}",
    ),
    (
        "Feedback on the {thing}",
        "Hi {to},\n\nthank you for the {thing} last week. It was clear and short. One more example would help.\n\n{me}",
    ),
)
CUSTOMER_TOPICS: Final = (
    (
        "Delivery times of {product}",
        "Dear {to},\n\ncould you tell me how long the delivery of {product} takes at the moment?\n\nKind regards,\n"
        "{me}\n{company}",
    ),
    (
        "Meeting in {city}",
        "Dear {to},\n\nwe will be at the fair in {city} next month. Shall we meet there?\n\nKind regards,\n{me}\n"
        "{company}",
    ),
    (
        "Thanks for the {product} demo",
        "Dear {to},\n\nthank you for showing us {product}. The team liked it.\n\nKind regards,\n{me}\n{company}",
    ),
)
NEWSLETTERS: Final = (
    ("Cloud Weekly", "news@cloudweekly.example"),
    ("Sales Digest", "hello@salesdigest.example"),
    ("Office Deals", "offers@officedeals.example"),
    ("Event Radar", "team@eventradar.example"),
)
SUBJECTS: Final = (
    "Agenda for the offsite",
    "Cleaning of the archive",
    "Costs of the fair",
    "Draft of the brochure",
    "Entry badges",
    "Figures for the board",
    "Guests on the open day",
    "Hotel for the team trip",
    "Interview questions",
    "Keys of the storage room",
    "Lights in the garage",
    "New coffee machine",
    "Plan for the move",
    "Printers on floor 2",
    "Quotes of the caterers",
    "Repairs in the kitchen",
    "Seating plan",
    "Spare laptops",
    "Trainee program",
    "Video of the launch",
)
EVENT_NAMES: Final = (
    "Quarterly forum",
    "Fire drill",
    "Summer workshop",
    "Product evening",
    "Safety briefing",
    "Partner breakfast",
    "Team lunch",
    "Town hall",
    "Coding evening",
    "First aid course",
    "Language course",
    "Photo session",
)
