"""Run the code of a README with folders on the path, and print one of its variables."""

import json
import sys

given = json.loads(sys.argv[1])
sys.path[:0] = given["folders"]
scope = {}
exec(compile(given["code"], "README.md", "exec"), scope)
print(json.dumps({"shown": scope[given["show"]]}))
