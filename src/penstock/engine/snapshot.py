"""The state of an engine as plain values, and an engine made of them.

The records of messages stay in the store: of most messages only the sequence is in the snapshot. With a store that
cannot recall them they are part of it. What cannot survive a restart anyway (consumers, who waited) is left out.
"""

from array import array
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from penstock.engine.cursor import Cursor
from penstock.engine.effects import Notice
from penstock.engine.engine import Engine
from penstock.engine.queue import Queue
from penstock.engine.replay import sleeping
from penstock.engine.topic import Subscriber, Topic
from penstock.engine.writes import Write
from penstock.model.message import Message, State
from penstock.model.names import QueueKey
from penstock.model.records import Record
from penstock.model.settings import QueueSettings, TopicSettings
from penstock.model.stages import Stage

VERSION = 1
_RECALL_AT_ONCE = 1024


def dump(engine: Engine) -> dict[str, Any]:
    """Return the state of an engine; it shares nothing with it."""
    times = _Times(engine)
    return {
        "version": VERSION,
        "position": engine.effects.position,
        "reserved": engine.effects.reserved,
        "next_channel": engine.channels.next_number,
        "next_client": engine.clients.next_number,
        "clients": [
            [client.number, client.id, client.user, client.returns, client.resume_timeout] for client in engine.clients
        ],
        "queues": [_dump_queue(queue, times) for queue in engine.channels.queues.values()],
        "topics": [_dump_topic(topic, times) for topic in engine.channels.topics.values()],
        "patterns": [
            [subscription.number, subscription.pattern, subscription.durable]
            for subscription in engine.subscriptions.durables.values()
            if subscription.number
        ],
        "readers": [asdict(reader) for reader in engine.readers.by_name.values()],
        "writes": engine.writes.dump(),
        "departed": engine.effects.departed.dump(),
        "records": None if engine.agenda.recall is not None else _all_records(engine),
    }


def load(engine: Engine, state: dict[str, Any]) -> None:
    """Bring a new engine to a dumped state; `Replay` goes on from there."""
    engine.effects.first = state["position"]
    engine.effects.reserved = state["reserved"]
    for number, ident, user, returns, resume_timeout in state["clients"]:
        engine.clients.restore(number, ident, user, returns=returns, resume_timeout=resume_timeout)
    engine.clients.next_number = state["next_client"]
    known = _Records(engine)
    known.learn(state)
    for number, pattern, durable in state["patterns"]:
        engine.subscriptions.restore_pattern(number, pattern, durable)
    for dumped in state["queues"]:
        _load_queue(engine, dumped, known)
    for dumped in state["topics"]:
        _load_topic(engine, dumped, known)
    engine.channels.next_number_is(state["next_channel"])
    for reader in state["readers"]:
        engine.readers.restore(reader["name"], reader["position"], reader["moved_at"])
    for write in state.get("writes", ()):
        engine.writes.restore(Write(**write))
    engine.effects.departed.load(**state.get("departed", {"cursors": [], "clients": []}))
    engine.effects.dirty.clear()


def live(state: dict[str, Any]) -> Iterator["array[int]"]:
    """Yield ascending arrays of the sequences of all messages that a dumped state needs, each message once."""
    for queue in state["queues"]:
        for _, sequences in queue["lanes"]:
            yield array("Q", sequences)
        yield array("Q", sorted({entry[0] for name in ("returned", "delayed", "assigned") for entry in queue[name]}))
    for topic in state["topics"]:
        yield array("Q", _kept(topic))


def _kept(topic: dict[str, Any]) -> Iterator[int]:
    """Yield the sequences that a dumped topic keeps, as `Topic.kept` has them."""
    remaining, horizon = array("I", topic["remaining"]), topic["horizon"]
    for row, sequence in enumerate(array("Q", topic["sequences"])):
        if row >= horizon or remaining[row]:
            yield sequence


def _all_records(engine: Engine) -> list[Record]:
    """Return the records of all messages, each once."""
    records: dict[int, Record] = {}
    for topic in engine.channels.topics.values():
        records.update(topic.records or {})
    for queue in engine.channels.queues.values():
        for entry in [*queue.ready.entries(), *queue.delayed.values()]:
            if isinstance(entry, tuple):
                records[entry[3]] = entry
        for message in [*queue.returned.values(), *queue.assigned.values()]:
            records[message.sequence] = message.record
    return list(records.values())


def _dump_queue(queue: Queue, times: "_Times") -> dict[str, Any]:
    return {
        "number": queue.number,
        "name": queue.name,
        "tags": sorted(queue.tags),
        "settings": queue.settings.as_dict(),
        "bytes": queue.bytes,
        "keys": dict(queue.keys),
        "dedup": [list(item) for item in queue.dedup.items()],
        "watched": _dump_watched(queue.watched),
        **_dump_cursor(queue, times),
    }


def _dump_topic(topic: Topic, times: "_Times") -> dict[str, Any]:
    start = topic.drained
    return {
        "number": topic.number,
        "name": topic.name,
        "settings": topic.settings.as_dict(),
        "sequences": topic.sequences[start:].tobytes(),
        "remaining": topic.remaining[start:].tobytes(),
        "times": topic.times[start:].tobytes(),
        "sizes": topic.sizes[start:].tobytes(),
        "timed": [[sequence, due, expires_at] for sequence, (due, expires_at) in topic.timed.items()],
        "horizon": topic.horizon - start,
        "bytes": topic.bytes,
        "dedup": [list(item) for item in topic.dedup.items()],
        "watched": _dump_watched(topic.watched),
        "totals": topic.totals.as_dict(),
        "subscribers": [
            {
                "number": subscriber.number,
                "durable": subscriber.durable,
                "pattern": subscriber.pattern,
                "bytes": subscriber.bytes,
                "condemned": subscriber.condemned,
                **_dump_cursor(subscriber, times),
            }
            for subscriber in topic.subscribers.values()
        ],
    }


def _dump_cursor(cursor: Cursor, times: "_Times") -> dict[str, Any]:
    due = times.due.get(cursor, {})
    return {
        "lanes": [[priority, sequences.tobytes()] for priority, sequences in cursor.ready.fresh()],
        "returned": [
            [
                sequence,
                message.place,
                message.attempt,
                message.id,
                message.redelivered,
                due.get(sequence, 0.0) if sequence in cursor.delayed else 0.0,
            ]
            for sequence, message in cursor.returned.items()
        ],
        "delayed": [[sequence, due[sequence]] for sequence in cursor.delayed if sequence not in cursor.returned],
        "assigned": [
            [
                sequence,
                message.client.number,
                message.place,
                message.attempt,
                message.id,
                message.redelivered,
                message.timeout,
            ]
            for sequence, message in cursor.assigned.items()
        ],
        "expiries": [[sequence, time] for sequence, time in times.expires.get(cursor, {}).items()],
        "totals": cursor.totals.as_dict(),
    }


class _Times:
    """When messages become due or expire, by cursor."""

    def __init__(self, engine: Engine) -> None:
        self.due: dict[Cursor, dict[int, float]] = {}
        self.expires: dict[Cursor, dict[int, float]] = {}
        for (cursor, sequence), time in engine.agenda.delays.items():
            self.due.setdefault(cursor, {})[sequence] = time
        for (cursor, sequence), time in engine.agenda.expiries.items():
            self.expires.setdefault(cursor, {})[sequence] = time


def _dump_watched(watched: dict[int, Notice]) -> list[list[int]]:
    return [[sequence, notice.client, notice.label, int(notice.stage)] for sequence, notice in watched.items()]


class _Records:
    """The records of those messages that are not bare sequences, recalled together."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_sequence: dict[int, Record] = {}

    def __getitem__(self, sequence: int) -> Record:
        return self._by_sequence[sequence]

    def learn(self, state: dict[str, Any]) -> None:
        """Recall all that a state names, or take it from there."""
        recall = self._engine.agenda.recall
        if recall is None:
            for fields in state["records"] or ():
                self._by_sequence[fields[3]] = tuple(fields)
            return
        wanted = sorted({sequence for cursor in _dumped_cursors(state) for sequence in _named(cursor)})
        for start in range(0, len(wanted), _RECALL_AT_ONCE):
            for record in recall(wanted[start : start + _RECALL_AT_ONCE]):
                self._by_sequence[record[3]] = record

    def resident(self, sequence: int) -> Record | None:
        """Return the record of a message if no store can recall it."""
        return self._by_sequence[sequence] if self._engine.agenda.recall is None else None

    def wait(self, cursor: Cursor, sequences: "array[int]", priority: int) -> None:
        """Let messages wait that were never handed out."""
        if self._engine.agenda.recall is not None:
            cursor.ready.push_cold(sequences, priority)
        else:
            for sequence in sequences:
                cursor.ready.push(self._by_sequence[sequence], priority)


def _dumped_cursors(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from state["queues"]
    for topic in state["topics"]:
        yield from topic["subscribers"]


def _named(cursor: dict[str, Any]) -> Iterator[int]:
    for entry in cursor["returned"]:
        yield entry[0]
    for entry in cursor["assigned"]:
        yield entry[0]


def _load_queue(engine: Engine, dumped: dict[str, Any], known: _Records) -> None:
    key = QueueKey(dumped["name"], frozenset(dumped["tags"]))
    queue = sleeping(engine.channels.add_queue(dumped["number"], key, QueueSettings(**dumped["settings"])))
    queue.bytes = dumped["bytes"]
    _load_dedup(queue, dumped)
    _load_watched(queue, dumped)
    _load_cursor(engine, queue, dumped, known)
    queue.keys = dict(dumped["keys"])


def _load_topic(engine: Engine, dumped: dict[str, Any], known: _Records) -> None:
    topic = engine.channels.add_topic(dumped["number"], dumped["name"], TopicSettings(**dumped["settings"]))
    topic.sequences = array("Q", dumped["sequences"])
    topic.remaining = array("I", dumped["remaining"])
    topic.times = array("d", dumped["times"])
    topic.sizes = array("Q", dumped["sizes"])
    topic.timed = {sequence: (due, expires_at) for sequence, due, expires_at in dumped["timed"]}
    topic.horizon, topic.bytes = dumped["horizon"], dumped["bytes"]
    if topic.records is not None:
        topic.records = {topic.sequences[row]: known[topic.sequences[row]] for row in topic.kept()}
    _load_dedup(topic, dumped)
    _load_watched(topic, dumped)
    for name, count in dumped["totals"].items():
        setattr(topic.totals, name, count)
    for one in dumped["subscribers"]:
        subscriber = engine.subscriptions.restore(one["number"], topic, one["durable"], one["pattern"])
        subscriber.bytes = one["bytes"]
        _load_cursor(engine, subscriber, one, known)
        if one["condemned"] is not None:
            engine.subscriptions.restore_removal(subscriber.number, one["condemned"])


def _load_cursor(engine: Engine, cursor: Queue | Subscriber, dumped: dict[str, Any], known: _Records) -> None:
    for priority, sequences in dumped["lanes"]:
        known.wait(cursor, array("Q", sequences), priority)
    for sequence, time in dumped["delayed"]:
        cursor.delayed[sequence] = known.resident(sequence)
        cursor.agenda.delays.add(time, (cursor, sequence))
    for sequence, place, attempt, ident, redelivered, due in dumped["returned"]:
        message = _message(cursor, known[sequence], place, attempt, ident, redelivered=redelivered)
        cursor.enqueue_again(message, 0.0, due)
    for sequence, client, place, attempt, ident, redelivered, timeout in dumped["assigned"]:
        message = _message(cursor, known[sequence], place, attempt, ident, redelivered=redelivered)
        message.state, message.timeout = State.ASSIGNED, timeout
        message.client = engine.clients.by_number[client]
        message.client.held[message] = None
        cursor.assigned[sequence] = message
    for sequence, time in dumped["expiries"]:
        cursor.agenda.expiries.add(time, (cursor, sequence))
    for name, count in dumped["totals"].items():
        setattr(cursor.totals, name, count)


def _message(cursor: Cursor, record: Record, place: int, attempt: int, ident: int, *, redelivered: bool) -> Message:
    message = Message(record, cursor)
    message.place, message.attempt, message.id, message.redelivered = place, attempt, ident, redelivered
    return message


def _load_dedup(channel: Queue | Topic, dumped: dict[str, Any]) -> None:
    for dedup_id, sequence, time in dumped["dedup"]:
        channel.dedup.remember(dedup_id, sequence, time, channel.settings.dedup_window, channel.limits.dedup_ids_max)


def _load_watched(channel: Queue | Topic, dumped: dict[str, Any]) -> None:
    for sequence, client, label, stages in dumped["watched"]:
        channel.watched[sequence] = Notice(client, label, Stage(stages), sequence)
