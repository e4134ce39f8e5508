#!/bin/bash
python3 - <<'END'
import json
import re

words = re.findall("[a-z]+", open("/app/story.txt").read().lower())
report = {"words": len(words), "distinct": len(set(words)), "longest": max(words, key=len)}
json.dump(report, open("/app/report.json", "w"))
END
