"""Head-to-head matches: entrants of different accounts meet in games that the hub starts, and are ranked together.

store.py      entrants and matches in the database; reading.py: what is shown of them
pairing.py    which waiting entrants meet
playing.py    the lobby, starts, ends and deadlines
episodes.py   the hub as the client of a board's endpoint, which draws and starts matches and reads both seats
outcomes.py   who has won
rating.py     the ratings of a board, by the Bradley–Terry model of `ludus.evaluation.bradley_terry`
receipts.py   signed receipts of entrants
personal.py   what an export and a deletion of an account mean for entrants
routes.py     the JSON API
limits.py     the limits on matches
"""
