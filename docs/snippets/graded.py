from coding import Coding

from ludus.server import call_function


class Graded(Coding):
    async def grade(self, answer: str) -> float:
        tests = self.task.tests
        async with self.verifier() as box:
            results = await call_function(box, "answer.py", "add", [test.arguments for test in tests])
        return sum(one.equals(test.returns) for one, test in zip(results, tests, strict=True)) / len(tests)
