"""The JSON API under /api/v1; results have theirs in `results`.

packages.py          packages, versions and access
accounts.py          accounts and tokens; device_sign_ins.py: signing in on a device
organizations.py     organizations and their members
blocking.py          blocked wheels
"""
