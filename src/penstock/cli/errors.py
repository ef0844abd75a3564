"""How commands tell what went wrong: a sentence on stderr, and an exit code that scripts can trust."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from penstock.model.errors import BadRequest, PenstockError

FAILED, MISUSED = 1, 2


@contextmanager
def errors_told() -> Iterator[None]:
    """End the command if something goes wrong: with 2 if it was asked for wrongly, else with 1."""
    try:
        yield
    except PenstockError as error:
        for line in error.message.splitlines():
            typer.echo(f"penstock: {line}", err=True)
        raise typer.Exit(MISUSED if isinstance(error, BadRequest) else FAILED) from None
