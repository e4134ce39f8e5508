"""The commands of the server.

serve.py     `ludus serve` and `ludus token`
rescore.py   `ludus rescore` and `ludus checklist`
"""
