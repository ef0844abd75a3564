"""All commands in one place."""

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import backup, channels, pipeline, user
from penstock.cli.serve import serve

app = typer.Typer(
    name="penstock",
    help="A message broker that keeps its promises: work queues and topics over STOMP, or in your own process.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.add_typer(channels.queue)
app.add_typer(channels.topic)
app.command()(backup.backup)
app.command()(backup.restore)
app.add_typer(user.app)
app.add_typer(pipeline.pipeline)


def _show_version(wanted: bool) -> None:  # typer gives it so
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take options that go with no command."""
    del version
