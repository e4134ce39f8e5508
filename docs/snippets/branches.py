import asyncio

from ludus.client import Branching, RandomPolicy, connect, rollout_all


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        game = client.environment("guess_number-tiny")
        branches = Branching(width=4, at=(1, 2))  # four branches after the first turn and after the second one
        found = await rollout_all(game, RandomPolicy(), n=20, seed=0, branches=branches)
        for turn in (1, 2):
            values = [one.value for one in found if one.branch and one.branch.turn == turn and one.value is not None]
            print(f"after turn {turn}: mean return {sum(values) / len(values):.2f} of {len(values)} branches")

        async with game.drive(seed=1, form="hermes") as driver:
            await driver.act('<tool_call>{"name": "guess", "arguments": {"number": 5}}</tool_call>')
            async with driver.branch(3) as copies:
                print(len(copies), "copies of", driver.turns, "turn")


asyncio.run(main())
