#!/bin/bash
# Half of the reward for each setting; nothing if another line has changed.
file=/app/server.conf
score=0
grep -qx "port = 9090" "$file" && score=$((score + 1))
grep -qx "debug = false" "$file" && score=$((score + 1))
if ! diff <(grep -v -e '^port' -e '^debug' "$file") /tests/others.conf; then
    score=0
fi
case $score in
    2) echo 1.0 ;;
    1) echo 0.5 ;;
    *) echo 0.0 ;;
esac > /logs/verifier/reward.txt
