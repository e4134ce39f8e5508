"""A server as one process.

serve.py      its start and end; reload.py starts it again when a file changes
settings.py   its settings
app.py        the HTTP application over the transports; openapi.py: its documentation, metrics.py: its metrics
"""
