import asyncio

from ludus.client import RandomPolicy, connect, run_episode


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        async with await client.environment("nim").start_match(index=0, seed=1) as match:
            policies = {seat: RandomPolicy(seed=number) for number, seat in enumerate(match.seats)}
            played = await asyncio.gather(*(run_episode(match[seat], policies[seat]) for seat in match.seats))
        for seat, trajectory in zip(match.seats, played, strict=True):
            print(seat, trajectory.reward.value if trajectory.reward else None, trajectory.end_reason)


asyncio.run(main())
