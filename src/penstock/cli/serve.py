"""`penstock serve`: the broker as a server."""

import asyncio
import gc
import logging
import os
import signal
import sys
from importlib.util import find_spec
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.assembly import assembled
from penstock.cli.errors import errors_told
from penstock.config import OPTIONS, Option, settings_from
from penstock.model.errors import PenstockError, StoreFailed
from penstock.runtime.interpreter import SWITCH_SECONDS
from penstock.server.server import READY
from penstock.server.standby import STANDBY
from penstock.server.succession import Succession

CONFIG = "config"
#: Objects made between two looks for garbage in cycles. There is next to none: a look is a loss.
GARBAGE_OBJECTS = 10_000


def serve(**given: Any) -> None:
    """Serve queues and topics until SIGTERM or Ctrl-C.

    Prints a line per door, then `ready`. Each option can stand in a file (--config) or in the environment as PENSTOCK_…
    too; the command line goes before the environment, and that before the file.
    """
    file = given.pop(CONFIG) or os.environ.get("PENSTOCK_CONFIG")
    with errors_told():
        settings = settings_from(given, os.environ, None if file is None else Path(file))
        logging.basicConfig(
            stream=sys.stderr,
            level=settings.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        failure = _run(assembled(settings))
        if failure is not None:
            raise StoreFailed(f"the store has failed: {failure}")


def _parameter(option: Option) -> Parameter:
    """Return an option as typer reads it from a signature; it is looked at later, together with all others."""
    kind: Any = list[str] | None if option.is_list else str | None
    names = [option.flag]
    if option.is_flag:
        kind, names = bool | None, [f"{option.flag}/{option.flag.replace('--', '--no-', 1)}"]
    default = f" [{option.default}]" if option.default is not None and not option.is_flag else ""
    info = typer.Option(*names, help=option.help + default, metavar=option.metavar, show_default=False)
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info])


_CONFIG = Parameter(
    CONFIG,
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None, typer.Option(help='All of this in TOML: `data = "…"`, and so on.', metavar="FILE")
    ],
)
serve.__signature__ = Signature([*map(_parameter, OPTIONS), _CONFIG])  # type: ignore[attr-defined]


def _run(succession: Succession) -> PenstockError | None:
    sys.setswitchinterval(SWITCH_SECONDS)
    if find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415  # it is not there on every platform

        return uvloop.run(_serve(succession))
    return asyncio.run(_serve(succession))


async def _serve(succession: Succession) -> PenstockError | None:
    """Serve until a signal; returns why promises could not be kept, if so."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, succession.stop)
    return await succession.run(_say)


def _say(line: str) -> None:
    typer.echo(line)
    if line == READY:
        gc.freeze()  # what is there now stays: a broker with many messages need not be looked through for garbage
        gc.set_threshold(GARBAGE_OBJECTS)
    elif line.startswith(STANDBY):
        gc.unfreeze()  # what was there is of a broker that has lost its store
        gc.collect()
