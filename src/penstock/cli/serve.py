"""`penstock serve`: the broker as a server."""

import asyncio
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from penstock.engine.readers import Retention
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from penstock.runtime.runtime import Runtime
from penstock.server.listening import parsed_address
from penstock.server.server import Door, Server
from penstock.store.locate import MEMORY, store_at


def serve(
    data: Annotated[
        Path, typer.Option(help="Directory of the journal; made if it is missing.", envvar="PENSTOCK_DATA")
    ] = Path("penstock-data"),
    store: Annotated[
        str, typer.Option(help="journal, or memory to forget everything at the end.", envvar="PENSTOCK_STORE")
    ] = "journal",
    stomp_listen: Annotated[
        list[str] | None,
        typer.Option(
            help="Where STOMP is spoken, HOST:PORT; may be repeated. Port 0 picks a free one.",
            envvar="PENSTOCK_STOMP_LISTEN",
        ),
    ] = None,
) -> None:
    """Serve queues and topics until SIGTERM or Ctrl-C."""
    try:
        doors = [
            Door("stomp", "--stomp-listen", parsed_address(text, "--stomp-listen"))
            for text in stomp_listen or ["127.0.0.1:61613"]
        ]
        for door in doors:
            if not door.address.is_loopback:
                raise _not_loopback(door)
        if store not in ("journal", "memory"):
            raise typer.BadParameter(f"{store!r} is none; there are journal and memory", param_hint="--store")
        where = store_at(MEMORY if store == "memory" else data)
        runtime = Runtime(where, limits=Limits(), auto_create=True, retention=Retention())
        _run(Server(runtime, doors))
    except PenstockError as error:
        typer.echo(f"penstock: {error.message}", err=True)
        raise typer.Exit(1) from None


def _not_loopback(door: Door) -> typer.BadParameter:
    return typer.BadParameter(
        f"{door.address} can be reached from other machines, and there are no users yet; listen on 127.0.0.1",
        param_hint=door.option,
    )


def _run(server: Server) -> None:
    if find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415  # it is not there on every platform

        uvloop.run(_serve(server))
    else:
        asyncio.run(_serve(server))


async def _serve(server: Server) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start(typer.echo)
    await stopped.wait()
    await server.stop()
