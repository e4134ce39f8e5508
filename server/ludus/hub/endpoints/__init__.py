"""Endpoints: published environments that run at `/e/{owner}/{name}[@version]/...`, on demand and each on its own.

proxy.py          the routes: who may use an endpoint, and which gateway gets a request
hosts.py          host names of endpoints, for clients that ignore a path
exchanges.py      HTTP requests, passed on unread; upgrades.py: channels
answers.py        what an answer of a process may say under the hub's address
gateways.py       which process gets a request: that of its episode, or the newest version's
passes.py         how a process learns who sends a request
pool.py           all endpoints, the limits on them, new versions, idle ones
servers.py        the server of one release: started on demand, watched, stopped
processes.py      its processes, each in a sandbox; child.py is the program inside
environments.py   its virtual environment; installers.py runs the commands that make it, and
                  removal.py removes those that are not used
places.py         what an endpoint sees of this machine
resources.py      the memory and disk that a release gets
span_lines.py     spans as a process writes them; span_relay.py sends them on
releases.py       what a release is; logs.py, errors.py
mounting.py       adds all of it to the hub's application
"""
