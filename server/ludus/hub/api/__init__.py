"""The JSON API under /api/v1: packages, accounts, organizations, sign-ins of devices, and blocked wheels."""
