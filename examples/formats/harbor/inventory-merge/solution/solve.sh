#!/bin/bash
python3 - <<'END'
import json
from collections import Counter

both = Counter(json.load(open("/app/east.json"))) + Counter(json.load(open("/app/west.json")))
json.dump(dict(both), open("/app/out/inventory.json", "w"))
END
