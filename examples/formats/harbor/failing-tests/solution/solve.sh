#!/bin/bash
cp /solution/intervals.py /app/intervals.py
