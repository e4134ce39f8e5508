"""Published environments and their tasks: loading, checking, listing, sampling and curricula."""
