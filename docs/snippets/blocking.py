from ludus.client import text_of
from ludus.client.sync import connect

with connect("http://127.0.0.1:8000") as client:
    for info in client.environments():
        print(info.name, info.version, [split.name for split in info.splits])
    with client.environment("treasure_hunt").episode(split="validation", index=3) as episode:
        print(text_of(episode.prompt[0].content))
        print(episode.call("dig", metre="far away").error)
        print(text_of(episode.call("dig", metre=1).content))
