#!/bin/bash
cd /tests
if PYTHONPATH=/app timeout 20 python3 -m unittest -v test_hidden; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
