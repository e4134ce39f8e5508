import skyrl_gym  # pyright: ignore[reportMissingImports]

from ludus.client import ServerAddress
from ludus.integrations.skyrl_gym import ENV_ID  # the import registers the id "ludus"

task = ServerAddress("http://127.0.0.1:8000").task("sums", "train", "sum-0")
environment = skyrl_gym.make(ENV_ID, extras={"ludus": task.to_json(), "max_turns": 8})
prompt, _ = environment.init([])  # messages; the first one describes the tools
step = environment.step('<tool_call>{"name": "submit", "arguments": {"number": 12}}</tool_call>')
print(step["reward"], step["done"])
environment.close()
