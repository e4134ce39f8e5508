import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp

from ludus.client import Call, Conversation, Policy
from ludus.evaluation import EnvironmentSpec, EvaluationConfig, ModelSpec, compare, evaluate


async def first_meter(conversation: Conversation) -> Call:
    """Dig at the beginning of the beach."""
    return Call("dig", {"metre": conversation.turn})


async def last_meter(conversation: Conversation) -> Call:
    """Dig at the end of the beach."""
    return Call("dig", {"metre": conversation.task.fields["length"] + 1 - conversation.turn})


@asynccontextmanager
async def my_policy(spec: ModelSpec) -> AsyncIterator[Policy]:
    yield {"first": first_meter, "last": last_meter}[spec.model]


async def main() -> None:
    config = EvaluationConfig(
        models=(ModelSpec(model="first"), ModelSpec(model="last")),
        environments=(
            EnvironmentSpec(target="http://127.0.0.1:8000", environment="treasure_hunt", splits=("validation",)),
        ),
        n=20,
        samples=2,
    )
    results = await evaluate(config, Path(mkdtemp()), open_policy=my_policy)
    for cell in results.cells:
        if cell.mean is not None:
            print(f"{cell.model}: {cell.mean.value:.3f} over {cell.mean.tasks} tasks, {cell.mean.interval}")
    (pair,) = compare(results, results, model_a="first", model_b="last").cells
    if pair.reward is not None:
        print(f"difference {pair.reward.value:+.3f}, p = {pair.reward.p}")


asyncio.run(main())
