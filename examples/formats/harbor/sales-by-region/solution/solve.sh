#!/bin/bash
python3 /solution/totals.py
