"""`penstock backup` and `penstock restore`: all that a broker needs to go on, in one file, and from it into any store."""

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.broker import Broker
from penstock.cli.channels import URL, AsJson, Url
from penstock.cli.errors import errors_told
from penstock.client.address import target_of
from penstock.client.management import taken
from penstock.model.errors import BadRequest, NoObject, ObjectAlreadyExists, StoreInUse, Unavailable
from penstock.runtime.backup import Backup, Phases, Tell, head_of, write_backup
from penstock.runtime.clock import Clock
from penstock.runtime.recovery import restore_backup
from penstock.store.journal.recovery import SEGMENTS
from penstock.store.locate import store_at

Data: TypeAlias = Annotated[
    Path | None, typer.Option(help="The directory of a journal that no broker has open.", metavar="DIR")
]
StoreAt: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Another store that no broker has open, such as postgresql://host/database.", metavar="ADDRESS"),
]
_NAME = "penstock-%Y%m%dT%H%M%SZ.backup"


def backup(
    to: Annotated[Path, typer.Argument(help="A file, or a directory for one named by the time.", metavar="FILE|DIR")],
    url: Url = URL,
    data: Data = None,
    store: StoreAt = None,
    *,
    verify: Annotated[bool, typer.Option(help="Read the file again before it gets its name.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Back up the broker that runs at URL, which goes on meanwhile, or a store at rest with --data or --store.

    The file has all unsettled messages, queues, topics and subscribers as of one moment. It has no history.
    """
    with errors_told():
        begun = time.monotonic()
        target = _free(to / datetime.now(UTC).strftime(_NAME) if to.is_dir() else to, force=force)
        where = _where(data, store)
        with _bars() as phases:
            tell = phases("backing up")
            if where is None:
                take = partial(_receive, target, tell, verify=verify)
                size = taken(target_of(url), "/api/v1/backup", take)
            elif isinstance(where, Path) and not (where / SEGMENTS).is_dir():
                raise BadRequest(f"there is no journal {where}", key="data")
            else:
                size = asyncio.run(_back_up(where, target, tell, verify=verify))
        _report(target, size, begun, as_json=as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="What `penstock backup` has written.", metavar="FILE")],
    data: Data = None,
    store: StoreAt = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Fill an empty store from a backup, and read it back. A restore that was interrupted goes on when it is run again."""
    with errors_told():
        begun = time.monotonic()
        where = _where(data, store)
        if where is None:
            raise BadRequest("say where to: --data DIR or --store ADDRESS", key="data")
        if not store_at(where).durable:
            raise BadRequest(f"{where} forgets everything at its end, so nothing can be restored into it", key="store")
        with _bars() as phases:
            restore_backup(file, partial(store_at, where), Clock().now(), phases)
        _report(file, file.stat().st_size, begun, as_json=as_json)


def _where(data: Path | None, store: str | None) -> Path | str | None:
    if data is not None and store is not None:
        raise BadRequest("--data and --store name a store each; one is meant", key="store")
    return store if data is None else data


def _free(target: Path, *, force: bool) -> Path:
    if target.exists() and not target.is_file():
        raise BadRequest(f"{target} is no file, and a backup is one", key="backup")
    if target.exists() and not force:
        raise ObjectAlreadyExists(f"{target} is there already; --force replaces it", key="backup")
    return target


async def _back_up(where: Path | str, target: Path, tell: Tell, *, verify: bool) -> int:
    """Back up a store at rest, as a broker that starts on it and stops."""
    try:
        async with Broker.open(where) as broker:
            if not await broker.queues() and not await broker.topics():
                raise NoObject("there is no queue and no topic in this store; is it the right one?", key="store")
            return await broker.backup(target, tell=tell, verify=verify)
    except StoreInUse as error:
        raise StoreInUse(
            f"{error.message.rstrip('.')}. A broker that runs is backed up without --data and --store", key="store"
        ) from None


def _receive(target: Path, tell: Tell, answer: http.client.HTTPResponse, place: str, *, verify: bool) -> int:
    """Write what a broker answers, looking at each part as it comes."""
    received = Backup(_Answer(answer, place), f"from {place}")
    return write_backup(target, received.pieces(tell), verify=verify)


class _Answer:
    """The body of an answer."""

    def __init__(self, answer: http.client.HTTPResponse, place: str) -> None:
        self._answer = answer
        self._place = place

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, and fewer at the end only."""
        try:
            return self._answer.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the broker at {self._place} broke off: {error!r}", key="url") from None


@contextmanager
def _bars() -> Iterator[Phases]:
    """Show a bar for each phase, on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages"),
        TextColumn("{task.fields[megabytes]:,.0f} MB"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield partial(_bar, progress)


def _bar(progress: Progress, phase: str) -> Tell:
    task = progress.add_task(phase, total=None, megabytes=0.0)

    def tell(done_bytes: int, done_messages: int, messages: int) -> None:
        progress.update(task, completed=done_messages, total=messages, megabytes=done_bytes / 1e6)

    return tell


def _report(file: Path, size: int, begun: float, *, as_json: bool) -> None:
    head, seconds = head_of(file), time.monotonic() - begun
    if as_json:
        content = {"file": str(file), "bytes": size, "messages": head.messages, "position": head.position}
        typer.echo(json.dumps({**content, "created": head.created, "seconds": round(seconds, 3)}))
    else:
        typer.echo(f"{file}: {head.messages:,} messages, {size:,} bytes, {seconds:.1f} s")
