"""The settings of a server: where each comes from, and that everything wrong is told at once."""

from pathlib import Path
from typing import Any

import pytest

from penstock.config import OPTIONS, Settings, settings_from
from penstock.engine.readers import Retention
from penstock.model.errors import BadRequest
from penstock.server.listening import Address

LISTS = {option.name for option in OPTIONS if option.is_list}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file that is not there yet."""
    return tmp_path / "penstock.toml"


def settings(environment: dict[str, str] | None = None, file: Path | None = None, **given: Any) -> Settings:
    """Return the settings from these places."""
    return settings_from(given, environment or {}, file)


def faults_of(environment: dict[str, str] | None = None, file: Path | None = None, **given: Any) -> list[str]:
    """Return all that is wrong."""
    with pytest.raises(BadRequest) as refused:
        settings(environment, file, **given)
    faults: list[str] = refused.value.data["faults"]
    assert refused.value.message == "\n".join(faults)
    return faults


def test_without_a_word_the_defaults_count() -> None:
    """On loopback alone, with a journal."""
    found = settings()
    assert found.listen == [Address("127.0.0.1", 8080)]
    assert found.stomp_listen == [Address("127.0.0.1", 61613)]
    assert found.grpc_listen == [Address("127.0.0.1", 50051)]
    assert (found.data, found.store, found.users, found.auto_create) == (Path("penstock-data"), "journal", None, True)
    assert found.retention == Retention(86400.0, 2**30, 10 * 2**30)
    assert found.limits.body_bytes_max == 16 * 2**20
    assert found.server_limits.connections_max == 50_000


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(file: Path) -> None:
    """Each setting by itself; an empty variable says nothing."""
    file.write_text('data = "f"\nstore = "memory"\nlog_level = "error"\nusers = "f"\n')
    environment = {"PENSTOCK_DATA": "e", "PENSTOCK_STORE": "journal", "PENSTOCK_USERS": "", "OTHER": "x"}
    found = settings(environment, file, data="c", store=None)
    assert (found.data, found.store, found.log_level, found.users) == (Path("c"), "journal", "error", Path("f"))


def test_every_option_can_be_said_everywhere(file: Path) -> None:
    """With the same meaning on the command line, in the environment, and in a file as text and as TOML has it."""
    texts = {
        "listen": "127.0.0.1:1", "stomp_listen": "tls:[::1]:2", "grpc_listen": "[::1]:3", "tls_cert": "c", "tls_key": "k",
        "data": "d", "store": "journal", "salvage": "true", "users": "u", "allow_origin": "https://Mill.example",
        "auto_create": "no", "durable_topics": "ON", "retain_log": "2h, 3 MB", "reader_hold": "1.5KiB",
        "limit": "stalled_seconds=1m", "log_level": "debug",
    }  # fmt: skip
    assert {option.name for option in OPTIONS} == texts.keys()
    expected = settings(**{name: [text] if name in LISTS else text for name, text in texts.items()})
    assert expected.allow_origin == ["https://mill.example"]
    assert (expected.auto_create, expected.durable_topics, expected.salvage) == (False, True, True)
    assert (expected.retain_log, expected.reader_hold) == ((7200.0, 3_000_000), 1536)
    assert expected.server_limits.stalled_seconds == 60.0

    assert settings({f"PENSTOCK_{name.upper()}": text for name, text in texts.items()}) == expected
    file.write_text("".join(f'{name} = "{text}"\n' for name, text in texts.items()))
    assert settings(file=file) == expected
    tables = {
        "listen": '["127.0.0.1:1"]', "salvage": "true", "auto_create": "false", "durable_topics": "true",
        "reader_hold": "1536", "limit": "{stalled_seconds = 60}", "allow_origin": '["https://Mill.example"]',
    }  # fmt: skip
    file.write_text("".join(f"{name} = " + tables.get(name, f'"{text}"') + "\n" for name, text in texts.items()))
    assert settings(file=file) == expected


def test_what_may_be_repeated_is_parted_by_commas_in_the_environment() -> None:
    """On the command line it stands several times."""
    environment = {"PENSTOCK_LISTEN": "127.0.0.1:1, 127.0.0.1:2", "PENSTOCK_LIMIT": "headers_max=1,channels_max=2"}
    found = settings(environment)
    assert [address.port for address in found.listen] == [1, 2]
    assert (found.limits.headers_max, found.limits.channels_max) == (1, 2)


def test_none_is_nowhere() -> None:
    """At one of the doors."""
    assert settings(stomp_listen=["none"]).stomp_listen == []
    assert faults_of(listen=["none"], stomp_listen=["none"], grpc_listen=["none"]) == [
        "--listen, --stomp-listen and --grpc-listen are all none: nobody could come in"
    ]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("listen", ["8080"], "--listen is '8080'; it must be HOST:PORT"),
        ("data", "", "--data is empty"),
        ("store", "disk", "--store is 'disk'; it must be journal, memory or an address such as "),
        ("store", "disk:here", "there is no store 'disk' here, but journal, memory, postgresql"),
        ("salvage", "maybe", "--salvage is 'maybe'; it must be true or false"),
        ("allow_origin", ["mill.example"], "--allow-origin is 'mill.example'; it must be an origin"),
        ("allow_origin", ["https://mill.example/"], "--allow-origin is 'https://mill.example/'; it must be an origin"),
        ("retain_log", "24h", "--retain-log is '24h'; it must be a time and a size"),
        ("retain_log", "1GiB,24h", "--retain-log is '1GiB'; it must be a time"),
        ("reader_hold", "much", "--reader-hold is 'much'; it must be a size"),
        ("limit", ["body_bytes_max"], "--limit is 'body_bytes_max'; it must be NAME=VALUE"),
        ("limit", ["nonsense=1"], "--limit is 'nonsense=1'; it must be NAME=VALUE, with one of body_bytes_max, "),
        ("limit", ["channels_max=0"], "--limit channels_max is '0'; it must be a whole number of at least 1"),
        ("limit", ["channels_max=1.5"], "--limit channels_max is '1.5'; it must be a whole number"),
        ("limit", ["body_bytes_max=0"], "--limit body_bytes_max must be more than 0"),
        ("limit", ["stalled_seconds=0s"], "--limit stalled_seconds must be more than 0"),
        ("limit", ["stalled_seconds=soon"], "--limit stalled_seconds is 'soon'; it must be a time"),
        ("log_level", "loud", "--log-level is 'loud'; it must be one of debug, info, warning, error"),
    ],
)
def test_a_value_that_cannot_be_is_told(name: str, text: Any, fault: str) -> None:
    """With the option, the value, and what it should be."""
    (told,) = faults_of(**{name: text})
    assert told.startswith(fault)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"tls_cert": "c"}, "--tls-cert and --tls-key go together"),
        ({"tls_key": "k"}, "--tls-cert and --tls-key go together"),
        ({"listen": ["tls:127.0.0.1:0"]}, "tls:HOST:PORT needs --tls-cert and --tls-key"),
        (
            {"tls_cert": "c", "tls_key": "k"},
            "--tls-cert is for doors with TLS, and there is none: listen with tls:HOST:PORT",
        ),
        ({"salvage": True, "store": "memory"}, "--salvage is for the store journal"),
    ],
)
def test_values_that_do_not_go_together_are_told(given: dict[str, Any], fault: str) -> None:
    """Each may be right by itself."""
    assert faults_of(**given) == [fault]


def test_everything_wrong_is_told_at_once(file: Path) -> None:
    """From all places, with the place."""
    file.write_text('dta = "x"\ndata = []\nusers = 3.5\nreader_hold = {a = 1}\n[limit]\nnonsense = 1\n')
    environment = {"PENSTOCK_STORE": "disk", "PENSTOCK_LISTEN": "a,b"}
    faults = faults_of(environment, file, log_level="loud")
    assert [fault.partition(";")[0] for fault in faults] == [
        f"there is no setting 'dta' in {file}",
        "PENSTOCK_LISTEN is 'a'",
        "PENSTOCK_LISTEN is 'b'",
        f"data in {file} is []",
        "PENSTOCK_STORE is 'disk'",
        f"reader_hold in {file} is ['a=1']",
        f"limit in {file} is 'nonsense=1'",
        "--log-level is 'loud'",
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [(None, "cannot be read: No such file"), (b"data = ", "is not TOML"), (b'data = "\xff"', "is not TOML")],
)
def test_a_file_that_is_none_is_told(file: Path, content: bytes | None, fault: str) -> None:
    """Beside all else that is wrong."""
    if content is not None:
        file.write_bytes(content)
    told, other = faults_of(file=file, log_level="loud")
    assert told.startswith(f"--config {file} {fault}")
    assert other.startswith("--log-level")


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("1k", None), ("1kB", 1000), ("1 KiB", 1024), ("1.5mib", 1572864), ("2TiB", 2 * 2**40), ("7B", 7)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int | None) -> None:
    """With units of both kinds; half a unit is none."""
    if size is None:
        assert faults_of(reader_hold=text)
    else:
        assert settings(reader_hold=text).reader_hold == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1.5", 1.5), ("250ms", 0.25), ("90 s", 90.0), ("2m", 120.0), ("1H", 3600.0), ("7d", 604800.0)],
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """In seconds where there is no unit."""
    assert settings(retain_log=f"{text},0").retain_log == (seconds, 0)
