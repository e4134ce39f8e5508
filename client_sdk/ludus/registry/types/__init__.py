"""The messages of the hub's JSON API, and what both of its ends compute from them.

packages.py       packages, versions, manifests and statements; errors.py: the errors of the API
people.py         accounts; organizations.py: organizations and their members
results.py        declared and played runs, boards
signing.py        Ed25519 signatures over canonical JSON
receipts.py       signed records of runs, and how anyone checks them
drawing.py        which tasks and seeds a run gets
strict_json.py    JSON without repeated keys
"""
