"""Wheels that an administrator has blocked: a malicious version, also a pinned one, is stopped at once.

store.py      blocked wheels in the database, and what a block ends there
watch.py      what this process knows of them, and what it ends
"""
