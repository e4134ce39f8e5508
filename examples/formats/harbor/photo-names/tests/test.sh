#!/bin/bash
cd /app/photos || exit 1
right=0
check() {
    [ "$(cat "$1" 2>/dev/null)" = "$2" ] && right=$((right + 1))
}
check 2024-01-31-007.txt seven
check 2023-12-24-042.txt tree
check 2022-06-01-123.txt beach
check notes.txt notes
expected=4
[ "$(ls | wc -l)" -eq 4 ] || right=0
# A file that was only kept is worth nothing by itself.
[ "$right" -gt 1 ] || right=0
awk "BEGIN { print $right / $expected }" > /logs/verifier/reward.txt
