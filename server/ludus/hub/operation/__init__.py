"""Operate a hub: back it up, restore it, and check what it keeps.

archive.py   the file of a backup, which does not depend on the database
backup.py    write one while the hub runs
restore.py   fill an empty hub from one
check.py     compare digests, signatures and references with what is there
parts.py     where a hub keeps what it has
errors.py    what can go wrong
"""
