"""MCP discovery: clients find the environments of a hub by the published formats, and nothing else.

names.py        the names of environments in these formats, derived from the hub's address
documents.py    `server.json`, server cards and the entries of the AI catalog
listing.py      what the registry holds, read page by page
routes.py       the addresses: the registry API v0.1, `/.well-known/ai-catalog.json`, and cards
paths.py        which addresses any web page may read
"""
