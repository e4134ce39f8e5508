"""The `ludus doctor` commands."""

from __future__ import annotations

import importlib.util
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.protocol.text import printable
from ludus.trainer.core.errors import TrainerError

if TYPE_CHECKING:
    from ludus.trainer.doctor.report import Result

doctor = typer.Typer(rich_markup_mode="rich", no_args_is_help=True, help="Check that training works on this machine.")


class Device(StrEnum):
    """Where the checks compute."""

    cuda = "cuda"
    cpu = "cpu"


class Dtype(StrEnum):
    """The dtype of forward and backward pass and of the engines' weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"


@doctor.callback()
def group() -> None:
    """Check that training works on this machine."""


@doctor.command("gpu")
def gpu(
    checks: Annotated[
        str | None,
        typer.Option("--checks", metavar="NAME,…", help="Only these checks; all when left out.", show_default=False),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="A model in Hugging Face format; random weights in the shape of Qwen3-0.6B when left out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The report.")] = Path("ludus-gpu-report.json"),
    device: Annotated[
        Device, typer.Option("--device", help="`cpu` tries the checks' logic without a GPU.")
    ] = Device.cuda,
    small: Annotated[bool, typer.Option("--small", help="A tiny model and few tokens.")] = False,
    dtype: Annotated[
        Dtype | None,
        typer.Option("--dtype", help="bfloat16 on a GPU and float32 on a CPU when left out.", show_default=False),
    ] = None,
    vllm: Annotated[str, typer.Option("--vllm", metavar="PROGRAM", help="The program that starts vLLM.")] = "vllm",
    limit_scale: Annotated[
        float, typer.Option("--limit-scale", min=0.01, max=100.0, help="A factor for the checks' time limits.")
    ] = 1.0,
) -> None:
    """Check on a GPU what no other test can, and write one JSON report to send back.

    Each check runs in its own process with a time limit, at most 20 minutes in all. The report has no names of hosts,
    users or folders. Exit code 0: all checks that could run passed; 1: one failed, or none could run.

    [bold]ludus doctor gpu[/bold]
    [bold]ludus doctor gpu --checks attention-flash,update --model ./Qwen3-0.6B[/bold]
    [bold]ludus doctor gpu --device cpu --small[/bold]
    """
    for package in ("torch", "transformers", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    from ludus.trainer.doctor import runner

    used = dtype or (Dtype.bfloat16 if device is Device.cuda else Dtype.float32)
    try:
        options = runner.Options(runner.chosen(checks), out, model, device.value, small, used.value, vllm, limit_scale)
        report = runner.run(options, _show, _announce)
    except TrainerError as error:
        if os.environ.get("LUDUS_DEBUG"):
            raise
        typer.echo(printable(f"ludus: {error}"), err=True)
        raise typer.Exit(error.exit_code) from None
    counts = {status: sum(r.status == status for r in report.checks) for status in ("passed", "failed", "skipped")}
    typer.echo(f"{', '.join(f'{number} {status}' for status, number in counts.items())} in {report.seconds:.0f} s")
    typer.echo(printable(f"report: {out}"))
    raise typer.Exit(0 if report.passed else 1)


def _announce(part: str) -> None:
    """Print on standard error what begins now."""
    typer.echo(f"── {part}", err=True)


def _show(result: Result) -> None:
    """Print one line for a check, and its reason."""
    typer.echo(f"{result.name:16} {result.status:8} {result.seconds:6.1f} s  {_headline(result.figures)}".rstrip())
    if result.reason:
        typer.echo(printable("\n".join(f"  {line}" for line in result.reason.splitlines())))


def _headline(figures: dict[str, object]) -> str:
    """Return the figures that matter most, in one line."""
    words = []
    for name, text in (
        ("tokens_per_second", "{:,.0f} tokens/s"), ("mfu", "MFU {:.1%}"), ("bytes_per_second", "{:,.0f} bytes/s"),
        ("mean_difference", "mean difference {:.2g} nats"), ("max_difference", "max {:.2g}"),
        ("parameter_difference", "difference {:.2g}"), ("bfloat16_logits_error", "logits differ by {:.2g}"),
    ):  # fmt: skip
        if isinstance(value := figures.get(name), float):
            words.append(text.format(value))
    return ", ".join(words)
