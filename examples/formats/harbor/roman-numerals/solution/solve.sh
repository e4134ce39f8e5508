#!/bin/bash
cat > /app/roman.py <<'END'
import sys

SIGNS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
         (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]

for line in sys.stdin:
    number, numeral = int(line), ""
    for value, sign in SIGNS:
        numeral += sign * (number // value)
        number %= value
    print(numeral)
END
