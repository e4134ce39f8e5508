"""Cassettes: recorded answers of what is not deterministic, replayed in every episode."""

from ludus.sandbox.cassettes.tape import Tape
from ludus.sandbox.core.cassette_settings import Cassette, CassetteMode

__all__ = ["Cassette", "CassetteMode", "Tape"]
