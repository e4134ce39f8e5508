"""Client transports: the implementations of `Wire`, which connect a client to a server."""
