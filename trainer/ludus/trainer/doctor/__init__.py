"""`ludus doctor gpu`: checks that need a GPU, each in its own process, and one JSON report of what they found.

`runner` starts the checks one after the other and writes the report. `guard` runs one check and ends it at its limit
with everything that it started. `process` is the program of that check. The checks are listed in `checks`.
"""
