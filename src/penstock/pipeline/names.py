"""What the numbers in records stand for: learned from the log itself where it tells, else asked of the broker."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock.model.records import Attribute, Kind
from penstock.pipeline.log_client import Names

if TYPE_CHECKING:
    from penstock.pipeline.decoding import Records

_TYPES = {"channel_type": pa.string(), "channel": pa.string(), "tags": pa.list_(pa.string()), "subscriber": pa.string()}


class CursorName(NamedTuple):
    """What the number of a queue, topic or subscriber stands for."""

    channel_type: str | None = None
    channel: str | None = None
    tags: tuple[str, ...] | None = None
    subscriber: str | None = None


class NameBook:
    """All names that were needed so far; `ask` gets those that the log did not tell."""

    def __init__(self, ask: Callable[[list[int], list[int]], Names]) -> None:
        self._ask = ask
        self.cursors: dict[int, CursorName] = {0: CursorName()}
        self._clients: dict[int, str | None] = {0: None}

    def learn(self, records: "Records") -> None:
        """See to it that all numbers of these records are known."""
        for place in records.of_kind(Kind.CLIENT):
            self._clients[int(records.clients[place])] = records.attributes(place)[Attribute.ID].hex()
        topics = [int(records.numbers[place]) for place in records.of_kind(Kind.SUBSCRIBER)]
        cursors = _missing(self.cursors, [*records.unique_cursors[0].tolist(), *topics])
        clients = _missing(self._clients, records.unique_clients[0].tolist())
        if not cursors and not clients:
            return
        told = self._ask(cursors, clients)
        for number, (channel_type, channel, tags, subscriber) in told.cursors.items():
            self.cursors[number] = CursorName(channel_type, channel, tags, subscriber)
        self._clients.update(told.clients)
        self._learn_cursors(records)
        for number in _missing(self.cursors, cursors):
            self.cursors[number] = CursorName()
        for number in _missing(self._clients, clients):
            self._clients[number] = f"#{number}"

    def column(self, field: str, records: "Records") -> pa.Array:
        """Return a part of the names of the cursors of records."""
        unique, places = records.unique_cursors
        values = [getattr(self.cursors[number], field) for number in unique.tolist()]
        return pa.array(values, type=_TYPES[field]).take(pa.array(places))

    def client_column(self, records: "Records") -> pa.Array:
        """Return the ids of the clients of records."""
        unique, places = records.unique_clients
        values = [self._clients[number] for number in unique.tolist()]
        return pa.array(values, type=pa.string()).take(pa.array(places))

    def _learn_cursors(self, records: "Records") -> None:
        """Learn what the broker has forgotten from where it began."""
        for place in records.of_kind(Kind.CREATE, Kind.SUBSCRIBER):
            number = int(records.cursors[place])
            if number not in self.cursors:
                self.cursors[number] = self._begun(number, int(records.numbers[place]), records.attributes(place))

    def _begun(self, number: int, topic: int, attributes: dict[int, Any]) -> CursorName:
        if Attribute.TYPE in attributes:
            tags = tuple(attributes.get(Attribute.TAGS, ()))
            return CursorName(attributes[Attribute.TYPE], attributes[Attribute.NAME], tags)
        channel = self.cursors.get(topic, CursorName()).channel or attributes.get(Attribute.PATTERN)
        return CursorName("topic", channel, (), attributes.get(Attribute.NAME) or str(number))


def _missing(known: dict[int, Any], numbers: Iterable[int]) -> list[int]:
    return [number for number in dict.fromkeys(numbers) if number not in known]
