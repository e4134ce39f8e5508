"""What runs next to a hosted package: its adapter, and the program that serves it to Ludus over a socket.

These modules use the standard library and the hosted package only, and run on Python 3.8 or newer: usually in an
interpreter that has no Ludus. `runner.py` loads the folder as the package `ludus_inside`.
"""
