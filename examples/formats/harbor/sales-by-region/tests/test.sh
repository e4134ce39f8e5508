#!/bin/bash
cat > /tmp/expected.csv <<'END'
region,revenue
east,61.00
north,127.50
south,20.25
west,99.90
END
if tr -d '\r' < /app/totals.csv | diff - /tmp/expected.csv; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
