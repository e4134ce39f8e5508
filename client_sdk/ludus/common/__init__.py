"""What processes of every package need and no wire names: how they are installed, wait, and collect garbage.

    distribution.py  the installed version, and the pip command for a missing extra
    lazy_names.py    packages that import the modules behind their public names at first use
    backoff.py       pauses between attempts
    heap.py          less garbage collection
    hub.py           where hubs are found, and how owners on them are named
    incidents.py     one id for an error in an answer and in the log

It imports no other package of Ludus.
"""
