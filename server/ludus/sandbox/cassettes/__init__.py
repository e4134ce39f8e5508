"""Cassettes: recorded answers of what is not deterministic, replayed in every episode."""

from ludus.sandbox.cassettes.settings import Cassette, CassetteMode
from ludus.sandbox.cassettes.tape import Tape

__all__ = ["Cassette", "CassetteMode", "Tape"]
