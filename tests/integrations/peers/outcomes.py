"""Play episodes with the driver alone: what `ludus.client` needs is there in a peer's environment."""

import asyncio
import json
import sys

from ludus.client import ServerAddress


async def main() -> None:
    given = json.loads(sys.argv[1])
    address = ServerAddress(given["url"])
    values = []
    for index in range(given["episodes"]):
        async with address.task(given["environment"], "train", f"sum-{index}").drive() as driver:
            await driver.act("I do not know.")
            values.append((await driver.finish()).value)
    print(json.dumps({"values": values}))


asyncio.run(main())
