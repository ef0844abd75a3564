"""The settings of a server: from the command line, the environment, a file, and defaults, in this order.

One table says what there is. Every value is looked at once, and all that is wrong is told together.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from penstock.engine.readers import Retention
from penstock.model.errors import BadRequest, PenstockError
from penstock.model.limits import Limits
from penstock.server.limits import ServerLimits
from penstock.server.listening import Address, parsed_address
from penstock.store.locate import checked_address

PREFIX = "PENSTOCK_"
LOG_LEVELS = ("debug", "info", "warning", "error")
JOURNAL, MEMORY = "journal", "memory"
NONE = "none"

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGT]i?B|B)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_SPAN = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|h|d)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(slots=True, frozen=True)
class Option:
    """A row of the table: a setting, by its name in a file; on the command line `_` is `-`."""

    name: str
    help: str
    #: Turns a text into the value; a file may also have the value as it is.
    read: Callable[[str, str], Any]
    default: Any = None
    is_list: bool = False
    is_flag: bool = False
    #: How a value is called in the help.
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        return "--" + self.name.replace("_", "-")


@dataclass(slots=True, frozen=True)
class Settings:
    """What a server is told to do."""

    listen: list[Address]
    stomp_listen: list[Address]
    grpc_listen: list[Address]
    tls_cert: Path | None
    tls_key: Path | None
    data: Path
    store: str
    salvage: bool
    users: Path | None
    allow_origin: list[str]
    auto_create: bool
    durable_topics: bool
    retain_log: tuple[float, int]
    reader_hold: int
    log_level: str
    limit: list[tuple[str, int | float]] = field(default_factory=list)
    #: Names of what somebody has said; all else has its default.
    said: frozenset[str] = frozenset()

    @property
    def retention(self) -> Retention:
        """How much of the change log is kept."""
        return Retention(*self.retain_log, self.reader_hold)

    @property
    def limits(self) -> Limits:
        """The limits of messages and channels."""
        return Limits(**_changed(Limits, dict(self.limit)))

    @property
    def server_limits(self) -> ServerLimits:
        """The limits of the server."""
        return ServerLimits(**_changed(ServerLimits, dict(self.limit)))


def read_text(text: str, name: str) -> str:
    """Return a text that is there."""
    if not text:
        raise BadRequest(f"{name} is empty", key=name)
    return text


def read_path(text: str, name: str) -> Path:
    """Return a path."""
    return Path(read_text(text, name))


def read_flag(text: str, name: str) -> bool:
    """Return yes or no."""
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if text.lower() not in words:
        raise BadRequest(f"{name} is {text!r}; it must be true or false", key=name)
    return words[text.lower()]


def read_size(text: str, name: str) -> int:
    """Return bytes: `1GiB`, `500 MB`, `4096`."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadRequest(f"{name} is {text!r}; it must be a size such as 512MiB or 10GiB", key=name)
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def read_seconds(text: str, name: str) -> float:
    """Return seconds: `24h`, `90s`, `1.5`."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise BadRequest(f"{name} is {text!r}; it must be a time such as 30s or 24h", key=name)
    return float(found[1]) * _SECONDS[(found[2] or "").lower()]


def read_retention(text: str, name: str) -> tuple[float, int]:
    """Return the seconds and bytes of `24h,1GiB`."""
    age, comma, size = text.partition(",")
    if not comma:
        raise BadRequest(f"{name} is {text!r}; it must be a time and a size such as 24h,1GiB", key=name)
    return read_seconds(age.strip(), name), read_size(size.strip(), name)


def read_count(text: str, name: str) -> int:
    """Return a number of at least one."""
    if not text.isdecimal() or not int(text):
        raise BadRequest(f"{name} is {text!r}; it must be a whole number of at least 1", key=name)
    return int(text)


def read_choice(*choices: str) -> Callable[[str, str], str]:
    """Return what takes one of these words."""

    def read(text: str, name: str) -> str:
        if text not in choices:
            raise BadRequest(f"{name} is {text!r}; it must be one of {', '.join(choices)}", key=name)
        return text

    return read


def read_store(text: str, name: str) -> str:
    """Return `journal`, `memory`, or the address of a store that is installed."""
    return text if text in {JOURNAL, MEMORY} else checked_address(text, name)


def read_address(text: str, name: str) -> Address | None:
    """Return an address, None for `none`."""
    return None if text == NONE else parsed_address(text, name)


def read_origin(text: str, name: str) -> str:
    """Return an origin as browsers write it."""
    if text != "*" and not re.fullmatch(r"https?://[^/\s]+", text):
        raise BadRequest(f"{name} is {text!r}; it must be an origin such as https://example.org, or *", key=name)
    return text.lower()


def read_limit(text: str, name: str) -> tuple[str, int | float]:
    """Return name and value of `body_bytes_max=32MiB`."""
    limit, equals, value = (part.strip() for part in text.partition("="))
    known = {one.name: one.default for one in (*fields(Limits), *fields(ServerLimits))}
    if not equals or limit not in known:
        raise BadRequest(f"{name} is {text!r}; it must be NAME=VALUE, with one of {', '.join(sorted(known))}", key=name)
    if isinstance(known[limit], float):
        return limit, _positive(read_seconds(value, f"{name} {limit}"), f"{name} {limit}")
    read = read_size if "bytes" in limit else read_count
    return limit, _positive(read(value, f"{name} {limit}"), f"{name} {limit}")


OPTIONS = (
    Option("listen", "Where everything is spoken: HTTP, WebSocket, STOMP, the native protocol. May be repeated; "
           "tls:HOST:PORT with TLS, port 0 picks a free one.", read_address, "127.0.0.1:8080", is_list=True,
           metavar="HOST:PORT"),
    Option("stomp_listen", "Where STOMP alone is spoken, likewise; none for nowhere.", read_address,
           "127.0.0.1:61613", is_list=True, metavar="HOST:PORT"),
    Option("grpc_listen", "Where gRPC is spoken, likewise.", read_address, "127.0.0.1:50051", is_list=True,
           metavar="HOST:PORT"),
    Option("tls_cert", "Certificate of the doors with TLS, with those between it and a known root.", read_path,
           metavar="FILE"),
    Option("tls_key", "Its key.", read_path, metavar="FILE"),
    Option("data", "Directory of the journal; made if it is missing.", read_path, "penstock-data", metavar="DIR"),
    Option("store", "journal, in the directory of --data; memory, to forget everything at the end; or the address of "
           "another, such as postgresql://host/database.", read_store, JOURNAL, metavar="STORE"),
    Option("salvage", "Go on with what is readable of a damaged journal, and keep copies of the rest.", read_flag,
           default="false", is_flag=True),
    Option("users", "Who may log in, and do what; needed to listen beyond this machine.", read_path, metavar="FILE"),
    Option("allow_origin", "Pages of this origin may come in too, such as https://example.org. May be repeated; * for "
           "all.", read_origin, is_list=True, metavar="ORIGIN"),
    Option("auto_create", "Make queues and topics that somebody publishes to.", read_flag, "true", is_flag=True),
    Option("durable_topics", "Every STOMP subscriber with a client-id is durable.", read_flag, "false", is_flag=True),
    Option("retain_log", "Settled history that is kept, by age and size, whichever is less.", read_retention,
           "24h,1GiB", metavar="TIME,SIZE"),
    Option("reader_hold", "How much more at most for readers that are behind.", read_size, "10GiB", metavar="SIZE"),
    Option("limit", "A limit by its name, such as body_bytes_max=32MiB. May be repeated; docs/operating.md has "
           "them all.", read_limit, is_list=True, metavar="NAME=VALUE"),
    Option("log_level", f"What is told on stderr: {', '.join(LOG_LEVELS)}.", read_choice(*LOG_LEVELS), "warning",
           metavar="LEVEL"),
)  # fmt: skip


def settings_from(command_line: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Settings:
    """Return the settings, or raise with all that is wrong; what is None on the command line was not said there."""
    faults: list[str] = []
    in_file: dict[str, Any] = {}
    if file is not None:
        try:
            in_file = _read_file(file)
        except BadRequest as error:
            faults.append(error.message)
    known = {option.name for option in OPTIONS}
    faults += [f"there is no setting {name!r} in {file}" for name in in_file if name not in known]
    values: dict[str, Any] = {}
    said = set(known)
    for option in OPTIONS:
        given = command_line.get(option.name)
        if given is not None and given != []:
            source, name = given, option.flag
        elif text := environment.get(variable := PREFIX + option.name.upper()):  # one that is empty says nothing
            source, name = _split(text) if option.is_list else text, variable
        elif option.name in in_file:
            source, name = in_file[option.name], f"{option.name} in {file}"
        else:
            source, name = option.default, option.flag
            said.discard(option.name)
        values[option.name] = _read(option, source, name, faults)
    if not faults:
        settings = Settings(**values, said=frozenset(said))
        faults += _contradictions(settings)
        if not faults:
            return settings
    raise BadRequest("\n".join(faults), key="settings", faults=faults)


def _read(option: Option, source: Any, name: str, faults: list[str]) -> Any:
    """Return the value of an option, and take note of what is wrong with it."""
    if source is None:
        return [] if option.is_list else None
    if isinstance(source, Mapping):
        source = [f"{key}={value}" for key, value in source.items()]
    sources = source if option.is_list and isinstance(source, list) else [source]
    found = []
    for one in sources:
        try:
            if not isinstance(one, str | int | float):
                raise BadRequest(f"{name} is {one!r}; a text is meant", key=name)  # told with all others
            value = option.read(str(one), name)
        except PenstockError as error:
            faults.append(error.message)
            continue
        if value is not None:
            found.append(value)
    if option.is_list:
        return found
    return found[0] if found else None


def _contradictions(settings: Settings) -> list[str]:
    """Return what is wrong with settings that are well formed one by one."""
    faults = []
    addresses = [*settings.listen, *settings.stomp_listen, *settings.grpc_listen]
    has_tls = any(address.tls for address in addresses)
    if (settings.tls_cert is None) is not (settings.tls_key is None):
        faults.append("--tls-cert and --tls-key go together")
    elif settings.tls_cert is not None and not has_tls:
        faults.append("--tls-cert is for doors with TLS, and there is none: listen with tls:HOST:PORT")
    if not addresses:
        faults.append("--listen, --stomp-listen and --grpc-listen are all none: nobody could come in")
    if has_tls and settings.tls_cert is None:
        faults.append("tls:HOST:PORT needs --tls-cert and --tls-key")
    if settings.salvage and settings.store != JOURNAL:
        faults.append("--salvage is for the store journal")
    return faults


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"--config {file} cannot be read: {error.strerror}", key="config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"--config {file} is not TOML: {error}", key="config") from None


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _positive(value: float, name: str) -> float:
    if not value > 0 or not isfinite(value):
        raise BadRequest(f"{name} must be more than 0", key=name)
    return value


def _changed(kind: type, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the changes that are fields of a kind of limits."""
    return {one.name: changes[one.name] for one in fields(kind) if one.name in changes}
