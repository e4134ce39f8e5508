"""People: accounts, passwords, sessions, tokens and organizations.

authenticator.py  finds who sends a request, by its token
accounts.py       accounts: created, disabled, deleted; passwords.py: Argon2id within bounds
sessions.py       browsers that have signed in
access_tokens.py  tokens of accounts
device_sign_ins.py  signing in on a device, which a person confirms in a browser
invitations.py    codes with which people may register
organizations.py  organizations: created, changed and deleted; memberships.py: the rows of their members
audit.py          the log of what people did
personal_data.py  export and deletion of what belongs to a person
openid/           signing in through an OpenID provider
people.py         all of these together
"""
