import asyncio

from ludus.client import Call, CallItem, Conversation, OutputItem, connect, rollout_all, summarize, text_of


async def halve(conversation: Conversation) -> Call:
    """Dig in the middle of where the gold can still be."""
    low, high = 1, conversation.task.fields["length"]
    metre = 0
    for item in conversation.items:
        if isinstance(item, CallItem) and isinstance(item.call, Call):
            metre = item.call.arguments["metre"]
        elif isinstance(item, OutputItem):
            low, high = (metre + 1, high) if "further on" in text_of(item.content) else (low, metre - 1)
    return Call("dig", {"metre": (low + high) // 2})


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        hunt = client.environment("treasure_hunt")
        trajectories = await rollout_all(hunt, halve, split="validation", n=20)
    summary = summarize(trajectories)
    print(f"mean reward {summary.mean:.2f} over {summary.scored} episodes; {summary.end_reasons}")


asyncio.run(main())
