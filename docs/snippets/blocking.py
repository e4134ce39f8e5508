from ludus.client.sync import connect
from ludus.protocol import text_of

with connect("http://127.0.0.1:8000") as client:
    for info in client.environments():
        print(info.name, info.version, [split.name for split in info.splits])
    with client.environment("arithmetic").episode(split="train", index=20) as episode:
        print(text_of(episode.prompt[0].content))
        print(episode.call("submit", value="a lot").error)
        print(episode.call("submit", value=40).reward)
