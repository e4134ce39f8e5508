"""The business domains from which schemas are generated, in a short notation that `schema.py` reads.

A table is a line, which indented lines go on: its singular and plural, then its columns after a colon. A column is one
of

* `role>table`: a foreign key to a table above, `role_id`;
* `name=a|b|c`: one of these texts;
* `name:person`, `name:title`, `name:date`: a person's name, a title, a date;
* `name:int 1-20`, `name:money 5-90`: a whole number, or a multiple of 0.25, in that range.

A `?` after the name of a column or the target of a key allows NULL. A table or column with `~` is a distractor: it is
in some of the domain's schemas, and no question is about it.
"""

from __future__ import annotations

from typing import Final

DOMAINS: Final = {
    "shop": """
customer customers: name:person, city=Oslo|Lima|Cairo|Turin|Quebec|Perth, segment?=private|business|school,
    signup_date:date, loyalty_points?:int 0-40, ~newsletter=yes|no
category categories: title:title, department=kitchen|garden|office|sports
product products: title:title, category>category?, price:money 2-40, stock:int 0-25, color?=red|blue|green|black,
    ~barcode:int 1000-9999
order orders: customer>customer, order_date:date, status=paid|open|cancelled|returned, shipping_fee:money 0-9,
    coupon?=SPRING|LOYAL|FRIEND, ~note?:title
order_item order_items: order>order, product>product, quantity:int 1-8, discount?:int 5-30
review reviews: product>product, customer>customer?, stars:int 1-5, review_date:date
~return_label return_labels: order>order, label_code:int 1-900
~site_setting site_settings: title:title, level:int 1-9
""",
    "library": """
branch branches: title:title, district=north|south|east|west|harbor, opening_year:int 1950-1975
member members: name:person, branch>branch?, join_date:date, level=junior|adult|senior, phone_type?=mobile|landline
author authors: name:person, country=Norway|Peru|Kenya|Italy|Japan, birth_year?:int 1930-1960
book books: title:title, author>author, genre=crime|poetry|history|science|travel, pages:int 80-110,
    shelf?=A1|A2|B1|B2|C1
loan loans: book>book, member>member, loan_date:date, return_date?:date, renewals:int 0-4
fine fines: loan>loan, amount:money 1-12, paid?=yes|no, fine_date:date
~event_room event_rooms: title:title, seats:int 5-60
~old_member old_members: name:person, join_date:date
""",
    "clinic": """
department departments: title:title, floor:int 1-6, wing?=north|south
doctor doctors: name:person, department>department, specialty=heart|skin|bones|eyes, hire_date:date, ~pager:int 100-999
patient patients: name:person, city=Leeds|Porto|Gdansk|Bergen|Lyon, birth_year:int 1950-1980, insurance?=basic|plus|full
visit visits: patient>patient, doctor>doctor?, visit_date:date, reason=checkup|pain|followup|accident,
    minutes:int 5-25, fee?:money 10-30
prescription prescriptions: visit>visit, drug=ibuprofen|insulin|zinc|statin|iron, doses:int 1-12, refills?:int 0-3
lab_test lab_tests: patient>patient, kind=blood|urine|scan, test_date:date, score?:int 1-15
~waiting_list waiting_lists: patient>patient, position:int 1-40
""",
    "school": """
teacher teachers: name:person, subject=math|music|art|biology|history, hire_date:date, weekly_hours:int 10-25
room rooms: title:title, building=main|annex|lab, seats:int 10-25
course courses: title:title, teacher>teacher?, room>room?, level=basic|middle|advanced, credits:int 1-8
student students: name:person, grade:int 7-12, town=Alta|Brno|Cork|Delft, entry_date:date, club?=chess|choir|robotics
enrollment enrollments: student>student, course>course, enroll_date:date, mark?:int 1-12, status=active|dropped|finished
absence absences: student>student, absence_date:date, lessons:int 1-6, excuse?=ill|family|transport
~locker lockers: student>student?, locker_number:int 1-300
""",
    "airline": """
airport airports: title:title, country=Chile|Spain|Ghana|India|Canada, runways:int 1-5, altitude?:int 0-30
aircraft aircraft: model=A320|B737|E190|ATR72, seats:int 60-80, built_year:int 1998-2015, lease?=owned|leased
flight flights: origin>airport, destination>airport, aircraft>aircraft?, flight_date:date,
    status=landed|delayed|cancelled|diverted, delay_minutes?:int 0-20
passenger passengers: name:person, nationality=Chile|Spain|Ghana|India|Canada, tier?=silver|gold|platinum,
    birth_year:int 1950-1985
booking bookings: passenger>passenger, flight>flight, booking_date:date, cabin=economy|premium|business,
    price:money 40-70, bags:int 0-3
~gate gates: airport>airport, gate_code:int 1-60
~fuel_log fuel_logs: aircraft>aircraft, liters:int 100-900
""",
    "bank": """
branch branches: title:title, region=coast|valley|hills|city, open_date:date, staff:int 3-15
client clients: name:person, branch>branch?, kind=person|company, risk?=low|medium|high, since_date:date
account accounts: client>client, type=checking|savings|loan, opened_date:date, balance:money 0-60, currency=EUR|USD|NOK
payment payments: account>account, payment_date:date, amount:money 1-30, channel=card|transfer|cash,
    tag?=rent|food|travel|salary
card cards: account>account, network=Vista|Maestra|Amerex, issue_date:date, daily_limit?:int 1-20
advisor advisors: name:person, branch>branch, hire_date:date, clients_managed:int 0-20
~audit_entry audit_entries: account>account, entry_date:date, code:int 1-99
~exchange_rate exchange_rates: currency=EUR|USD|NOK, rate:money 1-12
""",
    "hotel": """
hotel hotels: title:title, city=Nice|Bari|Faro|Split|Malmo, stars:int 1-5, pool?=indoor|outdoor
room rooms: hotel>hotel, kind=single|double|suite, nightly_rate:money 30-60, floor:int 1-6, view?=sea|garden|street
guest guests: name:person, country=Brazil|Egypt|Poland|Korea, birth_year:int 1955-1985, member_level?=bronze|silver|gold
reservation reservations: guest>guest, room>room, agency>agency?, checkin_date:date, nights:int 1-9,
    status=booked|stayed|cancelled
agency agencies: title:title, commission:int 5-15
extra_charge extra_charges: reservation>reservation, item=breakfast|parking|spa|minibar, amount:money 3-20,
    charge_date?:date
~housekeeping_shift housekeeping_shifts: room>room, shift_date:date
""",
    "company": """
office offices: city=Bonn|Ghent|Tartu|Vigo, country=Germany|Belgium|Estonia|Spain, desks:int 10-30, lease_end?:date
team teams: title:title, office>office?, budget:money 20-60
employee employees: name:person, team>team?, manager>employee?, role=engineer|analyst|designer|lead,
    salary:money 30-55, hire_date:date, remote?=yes|no
project projects: title:title, team>team, start_date:date, end_date?:date, priority=low|normal|high
assignment assignments: employee>employee, project>project, hours:int 1-20, task=build|test|plan|review
leave leaves: employee>employee, leave_date:date, days:int 1-10, kind=vacation|sick|parental
~parking_spot parking_spots: employee>employee?, spot_code:int 1-80
~archived_employee archived_employees: name:person, salary:money 30-55
""",
    "music": """
artist artists: name:person, country=Iceland|Mali|Cuba|Wales|Japan, debut_year:int 1980-2005,
    label?=Northern|Tidal|Redwood
album albums: title:title, artist>artist, release_date:date, format=vinyl|cd|digital, rating?:int 1-10
track tracks: title:title, album>album, seconds:int 120-150, genre=jazz|folk|rock|techno, explicit?=yes|no
listener listeners: name:person, plan=free|basic|family, country=Iceland|Mali|Cuba|Wales|Japan, signup_date:date,
    referrer?=friend|advert|radio
play plays: listener>listener, track>track, play_date:date, device=phone|car|desktop, skipped?=yes|no
playlist playlists: listener>listener?, title:title, mood=calm|happy|focus, followers:int 0-30
~royalty royalties: track>track, amount:money 1-9
""",
    "logistics": """
depot depots: title:title, region=north|south|east|west, docks:int 2-12, manager?=Berg|Costa|Dahl
driver drivers: name:person, depot>depot?, license=B|C|D, hire_date:date, rating?:int 1-10
truck trucks: model=Volta|Hauler|Titan, depot>depot, capacity:int 10-30, bought_date:date
trip trips: driver>driver, truck>truck?, trip_date:date, distance:int 20-60, status=done|late|aborted
parcel parcels: trip>trip?, sender=Acme|Borea|Corax|Dymo, weight:money 1-25, kind=box|pallet|envelope, insured?=yes|no
fuel_stop fuel_stops: trip>trip, liters:int 20-45, cost?:money 30-60, country=Austria|France|Hungary
~tire_check tire_checks: truck>truck, check_date:date, depth:int 1-9
~old_parcel old_parcels: sender=Acme|Borea|Corax|Dymo, weight:money 1-25
""",
    "helpdesk": """
company companies: title:title, industry=retail|energy|health|media, plan=trial|standard|premium, start_date:date
contact contacts: name:person, company>company?, language=English|German|Hindi|Arabic, vip?=yes|no
agent agents: name:person, skill=network|billing|hardware, hire_date:date, shift=day|night, ~desk_number:int 1-90
ticket tickets: contact>contact, agent>agent?, opened_date:date, closed_date?:date, priority=low|normal|urgent,
    effort:int 1-15
reply replies: ticket>ticket, agent>agent?, reply_date:date, words:int 10-35, channel=mail|chat|phone
survey surveys: ticket>ticket, score:int 1-5, survey_date:date, comment_kind?=praise|complaint|idea
~canned_text canned_texts: title:title, uses:int 0-90
""",
    "farm": """
farm farms: name:title, region=delta|plateau|coast|forest, founded_year:int 1950-1985, certificate?=organic|fair
field fields: farm>farm, soil=clay|sand|loam, area:money 2-20, irrigated?=yes|no
crop crops: title:title, family=grain|root|fruit|herb, growing_weeks:int 6-26
planting plantings: field>field, crop>crop, planting_date:date, seeds:int 10-40, method=hand|machine
harvest harvests: planting>planting, harvest_date:date, tons:money 1-15, quality?=A|B|C
worker workers: name:person, farm>farm?, role=picker|driver|foreman, daily_wage:money 20-40, start_date:date
~weather_log weather_logs: farm>farm, rain:int 0-50
~tool_shed tool_sheds: title:title, shelves:int 1-20
""",
    "events": """
venue venues: title:title, city=Riga|Graz|Leon|Cluj, capacity:int 50-75, indoor?=yes|no
organizer organizers: name:person, kind=charity|agency|club, founded_year?:int 1970-2000
show shows: title:title, venue>venue, organizer>organizer?, show_date:date, genre=comedy|concert|dance|talk,
    base_price:money 8-30
visitor visitors: name:person, hometown=Riga|Graz|Leon|Cluj, birth_year:int 1955-1990, discount_group?=student|senior
ticket tickets: show>show, visitor>visitor, sold_date:date, price:money 5-30, seat_zone=front|middle|back, used?=yes|no
rating ratings: show>show, visitor>visitor?, stars:int 1-5, rating_date:date
~sponsor sponsors: show>show?, amount:money 5-50
""",
}  # fmt: skip

FIRST_NAMES: Final = (
    "Ada", "Amir", "Ana", "Ben", "Bea", "Boris", "Cleo", "Carl", "Chen", "Dov", "Dina", "Eli", "Emma", "Erik", "Fay",
    "Finn",
)  # fmt: skip
LAST_NAMES: Final = ("Abel", "Brandt", "Castro", "Dube", "Eriksen", "Faro", "Greco", "Hill", "Ito", "Jansen")
ADJECTIVES: Final = (
    "Amber", "Arctic", "Bold", "Bright", "Calm", "Crystal", "Dusty", "Deep", "Early", "Eager", "Fine", "Fresh",
)  # fmt: skip
NOUNS: Final = ("Anchor", "Bridge", "Canyon", "Delta", "Echo", "Forest", "Garden", "Harbor", "Island", "Lantern")
