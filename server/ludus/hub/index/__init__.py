"""The package index: the simple repository API (PEP 503, 658, 691, 700) and the legacy upload API of twine."""
