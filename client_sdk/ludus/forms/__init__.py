"""How models write calls and thoughts into text, one form for each family of models, and how endpoints end a reply.

tool_calls.py  the registry of forms, and thoughts
text.py        what forms share, and forms in JSON and Python
markup.py      forms in tags and channels
"""
