"""The ways a client reaches a server: each module here is one `Wire`."""
