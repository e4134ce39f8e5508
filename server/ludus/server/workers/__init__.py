"""Several server processes behind one address: `ludus serve ENV --workers N`.

* `supervisor` starts the worker processes (`child`), watches them, replaces those that die, and restarts them in turn.
* `gateway` accepts clients in the supervisor's process. Each `connection` speaks HTTP and passes requests on, to the
  worker that `routing` finds in the request; `framed` does the same for the requests of one channel, and a channel of
  one worker is passed on byte by byte.
* `pool` knows the workers, their states and their load, and `placements` which worker got which start.

Every worker is a complete Ludus server with its own episodes. Ids name the worker (`ludus.protocol.workers`), so the
gateway has no table of episodes, and replies pass through it unread.
"""
