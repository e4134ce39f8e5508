"""The commands of a hub's operator.

hub.py         `ludus hub`, which serves; options.py: the options that all share
people.py      `ludus hub accounts`
blocking.py    `ludus hub block`, `unblock` and `blocks`
operation.py   `ludus hub backup`, `restore` and `check`
"""
