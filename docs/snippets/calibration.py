import asyncio
import random

from ludus.client import Call, Conversation, connect, rollout_all
from ludus.evaluation import calibrate, difficulty_of, write_difficulty


async def dig_anywhere(conversation: Conversation) -> Call:
    """Dig where chance has it."""
    chance = random.Random(f"{conversation.seed}/{conversation.sample}/{conversation.turn}")
    return Call("dig", {"metre": chance.randint(1, conversation.task.fields["length"])})


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        hunt = client.environment("treasure_hunt")
        trajectories = await rollout_all(hunt, dig_anywhere, split="validation", samples=8, seed=1)
    found = calibrate(trajectories, success_at=0.1, band=(0.2, 0.5), by="length")
    for level in found.levels:
        print(f"beaches {level.level} metres long: {level.passes} of {level.attempts} found within ten holes")
    if found.band is not None:
        print(f"in the band: {found.band.estimate:.0%} of the tasks, {found.band.estimate_interval}")
    write_difficulty("difficulty.json", difficulty_of(found))


asyncio.run(main())
