"""The commands of the server: `ludus serve` and those for its tokens, journals and stored rewards."""
