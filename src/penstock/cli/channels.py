"""`penstock queue` and `penstock topic`: what there is on a running broker."""

import json
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.errors import errors_told
from penstock.client.address import target_of
from penstock.client.management import got

queue = typer.Typer(name="queue", help="Look at queues.", no_args_is_help=True, rich_markup_mode=None)
topic = typer.Typer(name="topic", help="Look at topics.", no_args_is_help=True, rich_markup_mode=None)

Url: TypeAlias = Annotated[
    str, typer.Option(help="Of the broker: penstock://[user:secret@]host[:port].", metavar="URL", envvar="PENSTOCK_URL")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs.")]
URL = "penstock://127.0.0.1:8080"

_QUEUE_COLUMNS = ("ready", "assigned", "delayed", "dead_letters", "consumers", "publishers", "bytes")
_TOPIC_COLUMNS = ("publishers", "subscribers", "waiting", "passed", "kept", "bytes")


# Typer wants one command's function to stay a command of a group.
@queue.callback()
@topic.callback()
def _group() -> None:
    """Look at what there is."""


@queue.command("ls")
def list_queues(url: Url = URL, as_json: AsJson = False) -> None:
    """List the queues, and what waits in each."""
    with errors_told():
        content = got(target_of(url), "/api/v1/queues")
    if as_json:
        _tell(content["queues"])
        return
    rows = [
        (one["queue"], ", ".join(one["tags"]), *[one[column] for column in _QUEUE_COLUMNS]) for one in content["queues"]
    ]
    _show(("queue", "tags", *_QUEUE_COLUMNS), rows)


@topic.command("ls")
def list_topics(url: Url = URL, as_json: AsJson = False) -> None:
    """List the topics, with the publishers and subscribers of each, and the messages that wait and have passed."""
    with errors_told():
        content = got(target_of(url), "/api/v1/topics")
    if as_json:
        _tell(content["topics"])
        return
    rows = []
    for one in content["topics"]:
        counts = {**one, "subscribers": len(one["subscribers"]), "passed": one["totals"]["published"]}
        rows.append((one["topic"], *[counts[column] for column in _TOPIC_COLUMNS]))
    _show(("topic", *_TOPIC_COLUMNS), rows)


def _tell(content: list[dict[str, Any]]) -> None:
    typer.echo(json.dumps(content, ensure_ascii=False))


def _show(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Show a table, numbers to the right."""
    table = Table()
    for column, name in enumerate(header):
        is_number = bool(rows) and isinstance(rows[0][column], int)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in row))
    Console().print(table, markup=False)
