"""`penstock pipeline`: the change log in a lake of tables, and what can be done with these.

Spark is heavy and need not be installed, so what needs it is imported by the command that uses it.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.channels import URL, Url
from penstock.cli.errors import FAILED, errors_told
from penstock.model.errors import BadRequest, NoObject, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.jobs.replay import Plan
    from penstock.pipeline.tables.lake import Lake

pipeline = typer.Typer(
    name="pipeline",
    help="Keep what went through a broker in a lake of Parquet tables: fill, report, replay, compact.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LakeAt: TypeAlias = Annotated[
    str, typer.Option("--lake", help="Where the tables are: a directory, or a URL that Spark knows.", metavar="DIR")
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Of a Spark that is running, as in spark://HOST:7077; else one is started here.", metavar="URL"),
]
_ROWS_PER_BATCH = 1_000_000


@pipeline.command("run")
def run_pipeline(
    lake: LakeAt,
    url: Url = URL,
    *,
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="End when all is in that is there now, or go on until stopped.")
    ] = True,
    every: Annotated[float, typer.Option(help="Seconds from one batch to the next with --continuous.", min=0.1)] = 10.0,
    reader: Annotated[str, typer.Option(help="Keeps our place in the log at the broker.", metavar="NAME")] = "lake",
    rows: Annotated[int, typer.Option(help="Records of a batch at most.", min=1)] = _ROWS_PER_BATCH,
    signature_headers: Annotated[
        str | None,
        typer.Option(
            help="Headers that are part of the signatures of dead letters from now on, separated by commas; "
            "else as before, and those named exception, exception-type, error, error-type and error-code at first.",
            metavar="NAMES",
        ),
    ] = None,
    master: Master = None,
) -> None:
    """Bring the change log of a broker into a lake.

    What is in the lake is in it once, however often this is stopped, killed and started again.
    """
    with errors_told():
        from penstock.pipeline.log_client import LogClient  # noqa: PLC0415

        LogClient(url).extent()  # tells if nobody is there before Spark is started, which takes seconds
        spark = _spark(master)
        from penstock.pipeline.jobs.run import Run, run  # noqa: PLC0415

        headers = (
            None if signature_headers is None else tuple(filter(None, map(str.strip, signature_headers.split(","))))
        )
        wanted = Run(url, lake, reader, rows, None if once else every, headers)
        count = run(spark, wanted, typer.echo)
    typer.echo(f"{count:,} more records are in the lake." if count else "There was nothing new.")


@pipeline.command()
def report(
    lake: LakeAt,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.", metavar="FILE")] = Path(
        "penstock-report.html"
    ),
    master: Master = None,
) -> None:
    """Write a page with plots: throughput, depths, waits, work, retries, the worst queues, dead letters."""
    with errors_told():
        if output.is_dir() or not output.absolute().parent.is_dir():
            raise BadRequest(
                f"--output: {output} cannot be written; name a file in a directory that exists", key="output"
            )
        spark = _spark(master)
        from penstock.pipeline.jobs.report import write_report  # noqa: PLC0415

        with Console(stderr=True).status("working it out"):
            write_report(spark, lake, output)
    typer.echo(str(output.resolve()))


@pipeline.command()
def replay(  # noqa: PLR0913  # options of the command line
    lake: LakeAt,
    url: Url = URL,
    *,
    source: Annotated[
        str, typer.Option("--from", help="`messages`, all that were published, or `dead_letters`.", metavar="TABLE")
    ] = "messages",
    where: Annotated[
        str | None,
        typer.Option(help="Which of them, in SQL, as in \"signature like '%timed out%' and channel = 'orders'\"."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="A queue for all of them; else each goes to where it was.", metavar="QUEUE")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Messages a second at most.", min=0.001)] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave dead letters in their queues, and send copies of all, each time anew.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell how many would go where, with examples.")
    ] = False,
    master: Master = None,
) -> None:
    """Send messages of the lake to a broker again. Dead letters leave their queue by that, so none is sent twice.

    They can be chosen by shard, sequence, channel_type, channel, tags, time, priority, headers, key, group and text (the
    body); dead letters also by reason, signature, attempts, subscriber, moved_to, grave and grave_tags.
    """
    with errors_told():
        if source not in {"messages", "dead_letters"}:
            raise BadRequest("--from must be messages or dead_letters", key="from")
        spark = _spark(master)
        from penstock.pipeline.jobs.replay import Replay, chosen, planned  # noqa: PLC0415
        from penstock.pipeline.jobs.sending import send  # noqa: PLC0415

        wanted = Replay(source, where, to, rate, keep)
        messages = chosen(_lake(spark, lake), wanted)
        plan = planned(messages, wanted)
        _tell_plan(plan)
        if dry_run or not plan.total:
            typer.echo(f"{plan.total:,} messages would be sent.")
            return
        with _bar() as bar:
            sent = send(url, messages, wanted, plan.total, _advanced(bar))
    typer.echo(f"{sent.moved:,} messages were sent.")
    if sent.gone:
        typer.echo(f"{sent.gone:,} were no longer waiting in their dead letter queue.")
    if sent.refused:
        typer.echo(
            f"{sent.refused:,} stay there: where they go is full, or has a newer message of their key.", err=True
        )
        raise typer.Exit(FAILED)


def _tell_plan(plan: "Plan") -> None:
    for target, shares in plan.targets.items():
        typer.echo(f"{target}: {sum(share.count for share in shares):,}")
        for share in shares:
            typer.echo(f"  {share.count:,} × {share.signature}" if share.signature else "  for example")
            typer.echo(f"    {share.example}")
    if plan.passed_over:
        typer.echo(f"passed over: {plan.passed_over:,} dead letters of topics; --to QUEUE takes them", err=True)


@pipeline.command()
def compact(lake: LakeAt, master: Master = None) -> None:
    """Make few large files of many small ones. It may run beside `pipeline run`."""
    with errors_told():
        spark = _spark(master)
        from penstock.pipeline.jobs.compact import compact as rewrite  # noqa: PLC0415

        done = rewrite(_lake(spark, lake), typer.echo)
    typer.echo(f"{done.files_before:,} small files became {done.files_after:,}.")


def _spark(master: str | None) -> "SparkSession":
    """Return Spark, or say what is missing."""
    if find_spec("pyspark") is None:
        raise Unavailable("this needs Spark: install penstock[spark]", key="spark")
    from penstock.pipeline.jobs.session import started  # noqa: PLC0415

    with Console(stderr=True).status("starting Spark"):
        return started(master)


def _lake(spark: "SparkSession", directory: str) -> "Lake":
    """Return a lake that has been filled; an empty one was most likely named wrongly."""
    from penstock.pipeline.tables.lake import Lake  # noqa: PLC0415

    lake = Lake(spark, directory)
    if not lake.last.number:
        raise NoObject(f"there is nothing in the lake {directory}; fill it by `penstock pipeline run`", key="lake")
    return lake


def _bar() -> Progress:
    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def _advanced(bar: Progress) -> Callable[[int, int], None]:
    task = bar.add_task("sending", total=None)

    def advance(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)

    return advance
