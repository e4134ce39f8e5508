"""The end of sandboxes and of their provider, and what others may not see."""

from __future__ import annotations

import asyncio

import pytest

from ludus.sandbox import SandboxFailed
from ludus.testing.sandbox_checks.bench import Bench, check


@check()
async def a_closed_sandbox_says_that_it_is_gone(bench: Bench) -> None:
    box = await bench.box()
    running = asyncio.create_task(box.run(["sleep", "60"]))
    await asyncio.sleep(0)
    await box.aclose()
    await box.aclose()
    with pytest.raises(SandboxFailed):
        await running
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    with pytest.raises(SandboxFailed):
        await box.read("x")


@check()
async def a_command_ends_with_its_sandbox_and_not_at_its_own_limit(bench: Bench) -> None:
    box = await bench.box()
    running = asyncio.create_task(box.run(["sleep", "25"]))
    await asyncio.sleep(1)
    async with asyncio.timeout(20):
        await box.aclose()
        with pytest.raises(SandboxFailed):
            await running


@check()
async def closing_the_provider_closes_every_sandbox(bench: Bench) -> None:
    boxes = [await bench.box() for _ in range(3)]
    await bench.provider.aclose()
    for box in boxes:
        with pytest.raises(SandboxFailed):
            await box.run(["true"])


@check("warm sandboxes")
async def warm_sandboxes_are_ready_and_replaced(bench: Bench) -> None:
    settings = bench.settings.model_copy(update={"warm": 2})
    await bench.provider.prepare(settings)
    boxes = [await bench.provider.create(settings) for _ in range(5)]
    for number, box in enumerate(boxes):
        await box.write("mine", str(number).encode())
    assert [await box.read("mine") for box in boxes] == [b"0", b"1", b"2", b"3", b"4"]


@check()
async def sandboxes_work_at_the_same_time(bench: Bench) -> None:
    boxes = await asyncio.gather(*(bench.box() for _ in range(6)))

    async def use(number: int) -> str:
        box = boxes[number]
        await box.write("mine", b"%d" % number)
        return (await box.run(["sh", "-c", "cat mine; echo; ls"])).text

    assert await asyncio.gather(*map(use, range(6))) == [f"{number}\nmine\n" for number in range(6)]


@check("isolation")
async def sandboxes_do_not_see_each_other(bench: Bench) -> None:
    one, two = await bench.box(), await bench.box()
    await one.write("secret", b"of one")
    running = asyncio.create_task(one.run(["sleep", "2"]))
    seen = await two.run(["sh", "-c", "ls -a; ls /tmp; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "secret" not in seen.text
    assert "sleep" not in seen.text
    await one.aclose()
    with pytest.raises(SandboxFailed):
        await running
