"""What of an engine has to survive a restart, as plain dicts that can be compared."""

from dataclasses import dataclass
from typing import Any

from penstock.engine.cursor import Cursor
from penstock.engine.engine import Engine
from penstock.engine.queue import Queue
from penstock.engine.topic import Topic


@dataclass
class Summary:
    """The state of an engine at a time."""

    now: float
    state: dict[str, Any]


def summary_of(engine: Engine, now: float) -> Summary:
    """Return the state of an engine."""
    dues = {(cursor.number, sequence): time for (cursor, sequence), time in engine.agenda.delays.items()}
    expiries = {(cursor.number, sequence): time for (cursor, sequence), time in engine.agenda.expiries.items()}
    queues = {
        queue.number: {
            "key": str(queue.key),
            "settings": queue.settings,
            "bytes": queue.bytes,
            "keys": dict(queue.keys),
            "dedup": _dedup(queue),
            "totals": queue.totals.as_dict(),
            "messages": _messages(queue, dues, expiries),
            "assigned": _assigned(queue),
        }
        for queue in engine.channels.queues.values()
    }
    topics = {
        topic.number: {
            "name": topic.name,
            "settings": topic.settings,
            "dedup": _dedup(topic),
            "subscribers": {
                one.number: {
                    "name": one.durable,
                    "pattern": one.pattern,
                    "bytes": one.bytes,
                    "messages": _messages(one, dues, expiries),
                    "assigned": _assigned(one),
                }
                for one in topic.subscribers.values()
            },
        }
        for topic in engine.channels.topics.values()
    }
    patterns = sorted(name for name, one in engine.subscriptions.durables.items() if one.number)
    clients = {client.number: (client.id, client.returns, client.resume_timeout) for client in engine.clients}
    return Summary(now, {"queues": queues, "topics": topics, "patterns": patterns, "clients": clients})


def _dedup(channel: Queue | Topic) -> dict[str, tuple[int, float]]:
    """Return the sequence of each dedup id, and when it leaves the window."""
    window = channel.settings.dedup_window
    return {name: (sequence, time + window) for name, sequence, time in channel.dedup.items()}


def _messages(
    cursor: Cursor, dues: dict[tuple[int, int], float], expiries: dict[tuple[int, int], float]
) -> dict[int, tuple[Any, ...]]:
    """Return what waits by sequence: attempt, mark, place, id, when it expires and when it is due."""
    found: dict[int, tuple[Any, ...]] = {}
    for _, sequences in cursor.ready.fresh():
        for sequence in sequences:
            found[sequence] = (1, False, sequence, 0)
    for sequence in cursor.delayed:
        found[sequence] = (1, False, sequence, 0)
    for sequence, message in cursor.returned.items():
        found[sequence] = (message.attempt, message.redelivered, message.place, message.id)
    for sequence, entry in found.items():
        key = cursor.number, sequence
        due = dues.get(key, 0.0)
        found[sequence] = (*entry, expiries.get(key), due)
    return found


def _assigned(cursor: Cursor) -> dict[int, tuple[Any, ...]]:
    """Return what is assigned by sequence: to whom, attempt, mark, place, id."""
    return {
        sequence: (one.client.number, one.attempt, one.redelivered, one.place, one.id)
        for sequence, one in cursor.assigned.items()
    }


def without_past(state: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the state with all that was due by `now` as waiting, and without dedup ids past their window.

    The log does not tell when the sweeper came.
    """
    return {
        kind: {key: _without_past(value, now) for key, value in part.items()} if isinstance(part, dict) else part
        for kind, part in state.items()
    }


def _without_past(part: Any, now: float) -> Any:
    if not isinstance(part, dict):
        return part
    changed = {key: _without_past(value, now) for key, value in part.items() if key not in {"messages", "dedup"}}
    if "dedup" in part:
        changed["dedup"] = {name: entry for name, entry in part["dedup"].items() if entry[1] > now}
    if "messages" in part:
        changed["messages"] = {
            sequence: entry if entry[-1] > now else (*entry[:-1], 0.0) for sequence, entry in part["messages"].items()
        }
    return changed


def difference(first: Any, second: Any, path: str = "") -> str:
    """Tell where two summaries differ first."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}, key=str):
            if first.get(key, "nothing") != second.get(key, "nothing"):
                return difference(first.get(key, "nothing"), second.get(key, "nothing"), f"{path}/{key}")
    return f"{path}: expected {first}, found {second}"
