"""The settings of a hub.

hub.py         all of them; file.py reads the operator's file
endpoints.py   endpoints; people.py: accounts; results.py: limits on results
openid.py      the OpenID provider, and who may come in through it
"""
