"""Dead letters that are wanted back over HTTP: once, with what they had in life, by those who may."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import sync
from penstock.model.access import Action
from penstock.model.errors import BadRequest, NoObject, PermissionDenied, TooLarge
from penstock.pipeline.broker_client import BrokerClient
from penstock.server.http.redriving import LETTERS_MAX
from penstock.server.users import User, UserFile, hashed
from tests.served import FREE_PORTS, Served
from tests.server.http.test_log import connected, url


@pytest.fixture(scope="module")
def journalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker with a journal."""
    with Served(tmp_path_factory.mktemp("journalled")) as served:
        yield served


def buried(broker: sync.Broker, queue: str, count: int) -> list[int]:
    """Let messages die; returns the sequences of their dead letters."""
    broker.create_queue(queue, retry_limit=1)
    for number in range(count):
        broker.enqueue(queue, b"%d" % number)
        broker.fail(broker.poll(queue), reason="cold")
    letters = []
    while (message := broker.poll(f"DLQ.{queue}")) is not None:
        letters.append(message)
    broker.release_many(letters)
    return [letter.sequence for letter in letters]


def asked(client: BrokerClient, queue: str, target: str, *letters: object) -> dict[str, int]:
    """Want letters back."""
    wanted = {"queue": f"DLQ.{queue}", "target": target, "letters": letters}
    return client.ask(dict[str, int], "POST", "/redrives", wanted)


def test_they_go_once_also_over_a_crash(journalled: Served) -> None:
    """What was answered is on disk: after a crash the letters are where they were sent, and nowhere else."""
    client = BrokerClient(url(journalled))
    with connected(journalled) as broker:
        one, two, three = buried(broker, "ovens", 3)
    letters = [{"sequence": two, "key": "k", "group": "g"}, {"sequence": one}]
    assert asked(client, "ovens", "ovens", *letters) == {"moved": 2, "gone": 0, "refused": 0}
    journalled.revive()
    assert asked(client, "ovens", "ovens", *letters) == {"moved": 0, "gone": 2, "refused": 0}
    with connected(journalled) as broker:
        found = [broker.poll("ovens"), broker.poll("ovens"), broker.poll("DLQ.ovens")]
        assert [message and bytes(message.body) for message in found] == [b"1", b"0", b"2"]
        assert broker.poll("ovens") is None
        assert broker.poll("DLQ.ovens") is None
        assert found[2] is not None
        assert found[2].sequence == three


def test_nonsense_is_told(journalled: Served) -> None:
    """And nothing is moved by it."""
    client = BrokerClient(url(journalled))
    with connected(journalled) as broker:
        (one,) = buried(broker, "stoves", 1)
        with pytest.raises(NoObject):
            asked(client, "nothing", "stoves", {"sequence": one})
        with pytest.raises(BadRequest, match="control"):
            asked(client, "stoves", "stoves", {"sequence": one}, {"sequence": one, "key": "\n"})
        with pytest.raises(BadRequest, match="cannot be read"):
            asked(client, "stoves", "stoves", {"sequence": -1})
        with pytest.raises(TooLarge, match=str(LETTERS_MAX)):
            asked(client, "stoves", "stoves", *[{"sequence": one}] * (LETTERS_MAX + 1))
        assert broker.status("DLQ.stoves").ready == 1


def test_who_may(tmp_path: Path) -> None:
    """Whoever administers the dead letter queue, and may publish where the letters go."""
    users = UserFile(tmp_path / "users.toml")
    users.add(User("operator", hashed("s"), {Action.ADMINISTER: ["DLQ.*"], Action.PUBLISH: ["ovens"]}))
    with Served(tmp_path, *FREE_PORTS, "--users", str(users.path)) as served:
        client = BrokerClient(url(served, "operator:s@"))
        with pytest.raises(PermissionDenied, match="publish"):
            asked(client, "ovens", "stoves")
        with pytest.raises(PermissionDenied, match="administer"):
            client.ask(dict[str, int], "POST", "/redrives", {"queue": "ovens", "target": "ovens", "letters": []})
        with pytest.raises(NoObject):
            asked(client, "ovens", "ovens")
