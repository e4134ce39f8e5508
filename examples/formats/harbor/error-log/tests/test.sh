#!/bin/bash
# 0.5 for the right counts, and 1 if the order is right, too.
printf 'database 3\ncache 1\nqueue 1\n' > /tmp/expected.txt
reward=0
if diff <(sort /app/errors.txt) <(sort /tmp/expected.txt); then
    reward=0.5
    diff /app/errors.txt /tmp/expected.txt && reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
