"""Signing in through an OpenID Connect provider.

fetching.py    bounded requests to the provider
provider.py    the provider's documents, where to send a browser, and what a code is worth
id_tokens.py   checks of ID tokens
pending.py     sign-ins that have begun, each bound to one browser
identities.py  identities that are linked to accounts
sign_in.py     all of these together: begin, come back, register, link, confirm
"""
