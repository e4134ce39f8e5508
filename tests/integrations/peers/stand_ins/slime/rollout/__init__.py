"""The part of slime that a generate function uses, written after its public sources: it is on no package index."""
