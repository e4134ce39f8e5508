#!/bin/bash
# The repaired module runs in processes of its own; this one only compares what they print.
if python3 /tests/check.py; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
