import json
import urllib.parse
import urllib.request

from ludus.server import Cassette, Environment, Task, tool


class Question(Task):
    question: str
    answer: str


class Research(Environment[Question]):
    """A search engine whose results never change, once they are recorded."""

    splits = {"train": [Question(id="capital", question="What is the capital of Iceland?", answer="Reykjavik")]}
    cassette_settings = Cassette(path="search.cassette")
    url = "http://127.0.0.1:8010/search"

    def prompt(self) -> str:
        return self.task.question

    @tool
    async def search(self, query: str) -> str:
        """Search the web."""
        results = await self.cassette.call("search", {"query": query}, lambda: self.live(query))
        return json.dumps(results)

    def live(self, query: str) -> object:
        with urllib.request.urlopen(f"{self.url}?{urllib.parse.urlencode({'q': query})}", timeout=30) as reply:
            return json.load(reply)

    def grade(self, answer: str) -> float:
        return float(self.task.answer in answer)
