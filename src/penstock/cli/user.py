"""`penstock user`: who may log in, and do what. It writes the file of users; a server that runs sees the change."""

import json
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.errors import errors_told
from penstock.model.access import Action
from penstock.model.errors import BadRequest
from penstock.server.users import User, UserFile, checked_patterns, checked_user, hashed

app = typer.Typer(
    name="user",
    help="Say who may log in, and do what.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name: TypeAlias = Annotated[str, typer.Argument(help="Of the user.", metavar="NAME", show_default=False)]
File: TypeAlias = Annotated[
    Path, typer.Option("--users", help="The file of users.", metavar="FILE", envvar="PENSTOCK_USERS")
]


Publish: TypeAlias = Annotated[
    list[str], typer.Option(help="Queues and topics to publish to; * is any characters.", metavar="PATTERN")
]
Consume: TypeAlias = Annotated[list[str], typer.Option(help="Queues and topics to consume from.", metavar="PATTERN")]
Administer: TypeAlias = Annotated[
    list[str], typer.Option(help="Queues and topics to make, alter, empty, delete and look at.", metavar="PATTERN")
]

PATTERNS: list[str] = []


@app.command()
def add(
    name: Name, users: File, publish: Publish = PATTERNS, consume: Consume = PATTERNS, administer: Administer = PATTERNS
) -> None:
    """Add a user. The secret is asked for, or read as a line from stdin; the file is made if it is missing."""
    with errors_told():
        checked_user(name)
        patterns = _checked(publish, consume, administer)
        UserFile(users).add(User(name, hashed(_secret(name)), patterns))


@app.command()
def passwd(name: Name, users: File) -> None:
    """Give a user another secret."""
    with errors_told():
        file = UserFile(users)
        user = file.find(name)
        user.secret_hash = hashed(_secret(name))
        file.write(file.users())


@app.command()
def grant(
    name: Name, users: File, publish: Publish = PATTERNS, consume: Consume = PATTERNS, administer: Administer = PATTERNS
) -> None:
    """Let a user do more."""
    with errors_told():
        file = UserFile(users)
        user = file.find(name)
        for action, patterns in _checked(publish, consume, administer).items():
            user.patterns[action] += [pattern for pattern in patterns if pattern not in user.patterns[action]]
        file.write(file.users())


@app.command()
def revoke(
    name: Name, users: File, publish: Publish = PATTERNS, consume: Consume = PATTERNS, administer: Administer = PATTERNS
) -> None:
    """Let a user do less: takes away patterns as they were granted."""
    with errors_told():
        file = UserFile(users)
        user = file.find(name)
        for action, patterns in _checked(publish, consume, administer).items():
            missing = [pattern for pattern in patterns if pattern not in user.patterns[action]]
            if missing:
                raise BadRequest(f"{name!r} was not granted to {action.value} on {', '.join(missing)}", key="pattern")
            user.patterns[action] = [pattern for pattern in user.patterns[action] if pattern not in patterns]
        file.write(file.users())


@app.command()
def rm(name: Name, users: File) -> None:
    """Remove a user. Connections that it has open stay."""
    with errors_told():
        UserFile(users).remove(name)


@app.command()
def ls(users: File, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """List the users, and what each may do."""
    with errors_told():
        found = UserFile(users).users().values()
    if as_json:
        typer.echo(json.dumps([{"user": user.name, **user.patterns} for user in found], ensure_ascii=False))
        return
    table = Table("user", *Action)
    for user in found:
        table.add_row(user.name, *(", ".join(user.patterns[action]) for action in Action))
    Console().print(table, markup=False)


def _checked(publish: list[str], consume: list[str], administer: list[str]) -> dict[Action, list[str]]:
    given = {Action.PUBLISH: publish, Action.CONSUME: consume, Action.ADMINISTER: administer}
    return {action: checked_patterns(patterns, action) for action, patterns in given.items()}


def _secret(name: str) -> str:
    """Return a secret that was typed blindly and twice, or the first line of stdin where nobody types."""
    if sys.stdin.isatty():
        secret = typer.prompt(f"Secret of {name}", hide_input=True, confirmation_prompt=True)
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise BadRequest("a secret has at least one character; it is read from stdin", key="secret")
    return str(secret)
