"""Random work by clients of every protocol on one queue, held against a model that is a table of messages.

    run_machine(["lines"], examples=30)                 # all clients over TCP
    run_machine(["lines", "binary", "stomp"], examples=30)      # publish in one, take in another, settle in a third

A client that is kept comes back over whatever carrier there is: what was fetched over a WebSocket is finished over TCP.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.protocols.native.peers import Native, World
from tests.protocols.stomp.peers import Peer

STEPS = 50
CLIENTS_MAX = 4
RETRY_LIMIT = 3
LEASE_SECONDS = 10.0
KEPT_SECONDS = 25.0
WAYS = ("finish", "fail", "release", "reject")
STOMP = "stomp"


@dataclass(eq=False)
class Entry:
    """A message as the model has it."""

    body: str
    priority: int
    sequence: int
    attempt: int = 1
    redelivered: bool = False
    holder: "Somebody | None" = None
    #: Until when it is leased; None: by the connection.
    until: float | None = None


@dataclass(eq=False)
class Somebody:
    """A client: its connection, and what names the messages in its hands."""

    peer: Any
    carrier: str
    is_kept: bool = False
    #: Until when it may come back; None: it is there.
    gone_until: float | None = None
    #: Of STOMP: what names the one message that it holds.
    ack: str = ""


class Machine(RuleBasedStateMachine):
    """See the module."""

    carriers: Sequence[str] = ()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run(self._start())
        self.clients: list[Somebody] = []
        self.entries: list[Entry] = []
        self.dead = 0
        self.count = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the broker's loop."""
        return self.runner.run(work)

    async def _start(self) -> None:
        self.world = World()
        await self.world.start()
        self.world.set_queue("q", retry_limit=RETRY_LIMIT, heartbeat_timeout=LEASE_SECONDS)

    def teardown(self) -> None:
        """End the broker."""
        self.run(self.world.stop())
        self.runner.close()

    # The model.

    @property
    def now(self) -> float:
        """The time of the broker."""
        return self.world.clock.seconds

    def here(self) -> list[Somebody]:
        """Return who is connected."""
        return [client for client in self.clients if client.gone_until is None]

    def held(self, client: Somebody) -> list[Entry]:
        """Return what a client has in its hands, the first one first."""
        return [entry for entry in self.entries if entry.holder is client]

    def next_entry(self) -> Entry | None:
        """Return the message that is next."""
        waiting = [entry for entry in self.entries if entry.holder is None]
        return min(waiting, key=lambda entry: (-entry.priority, entry.sequence), default=None)

    def came_back(self, entry: Entry, *, counted: bool) -> None:
        """Let a message wait again, or die of its last failure."""
        entry.holder, entry.redelivered = None, True
        if counted and entry.attempt == RETRY_LIMIT:
            self.entries.remove(entry)
            self.dead += 1
        else:
            entry.attempt += counted

    def gone(self, client: Somebody) -> None:
        """Forget a client for good; what it held has failed."""
        self.clients.remove(client)
        for entry in self.held(client):
            self.came_back(entry, counted=True)

    # Coming and going.

    @precondition(lambda self: len(self.here()) < CLIENTS_MAX)
    @rule(data=st.data(), is_kept=st.booleans())
    def connect(self, data: st.DataObject, is_kept: bool) -> None:
        """Come."""
        carrier = data.draw(st.sampled_from(self.carriers))
        is_kept = is_kept and carrier != STOMP
        peer = self.run(self._opened(carrier))
        if is_kept:
            assert self.run(peer.ask("resume", resume_timeout=KEPT_SECONDS))["type"] == "hello"
        self.clients.append(Somebody(peer, carrier, is_kept))

    async def _opened(self, carrier: str) -> Native | Peer:
        return self.world.peer() if carrier == STOMP else self.world.native(carrier)

    @precondition(lambda self: self.here())
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """Lose a connection."""
        client = data.draw(st.sampled_from(self.here()))
        self.run(client.peer.vanish())
        if client.is_kept:
            client.gone_until = self.now + KEPT_SECONDS
        else:
            self.gone(client)

    @precondition(lambda self: any(client.is_kept for client in self.clients))
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        """Come back over another connection, or take the place of one that is still there."""
        client = data.draw(st.sampled_from([client for client in self.clients if client.is_kept]))
        carrier = data.draw(st.sampled_from([one for one in self.carriers if one != STOMP]))
        before, client.peer, client.carrier = client.peer, self.run(self._opened(carrier)), carrier
        assert self.run(client.peer.ask("resume", id=before.id))["id"] == before.id
        client.peer.id = before.id
        if client.gone_until is None:
            assert before.last_words()["key"] == "id"
        client.gone_until = None

    @rule(seconds=st.sampled_from([1.0, 6.0, 11.0]))
    def wait(self, seconds: float) -> None:
        """Let leases run out, and clients that stay away."""
        self.run(self.world.wait(seconds))
        for entry in list(self.entries):
            if entry.holder is not None and entry.until is not None and entry.until <= self.now:
                self.came_back(entry, counted=True)
        for client in list(self.clients):
            if client.gone_until is not None and client.gone_until <= self.now:
                self.gone(client)

    # Work.

    @precondition(lambda self: self.here())
    @rule(data=st.data(), priority=st.integers(0, 2))
    def post(self, data: st.DataObject, priority: int) -> None:
        """Publish a message."""
        client = data.draw(st.sampled_from(self.here()))
        self.count += 1
        body = str(self.count)
        if client.carrier == STOMP:
            headers = ("destination:/queue/q", f"priority:{priority}", "receipt:r")
            self.run(client.peer.say("SEND", *headers, body=body.encode()))
            assert client.peer.frames.pop().headers["receipt-id"] == "r"
            sequence = self.world.runtime.engine.effects.position - 1
        else:
            answer = self.run(client.peer.ask("post", queue="q", message=body, priority=priority, label=self.count))
            assert (answer["type"], answer["label"]) == ("ok", self.count)
            sequence = answer["sequence"]
        self.entries.append(Entry(body, priority, sequence))

    @precondition(lambda self: self.here())
    @rule(data=st.data(), pops=st.booleans(), lease=st.sampled_from([None, 5.0]))
    def take(self, data: st.DataObject, pops: bool, lease: float | None) -> None:
        """Take the message that is next, or learn that there is none."""
        client = data.draw(st.sampled_from(self.here()))
        expected = self.next_entry()
        if client.carrier == STOMP:
            self._take_by_stomp(client, expected)
            return
        timeout = {} if pops or lease is None else {"work_timeout": lease}
        answer = self.run(client.peer.ask("pop" if pops else "fetch", queue="q", **timeout))
        if expected is None:
            assert answer["type"] == "nomessage"
            return
        assert answer["type"] == "message"
        told = (answer["body"], answer["attempt"], answer.get("redelivered", False), answer["finished"])
        assert told == (expected.body, expected.attempt, expected.redelivered, pops)
        assert answer["sequence"] == expected.sequence
        if pops:
            self.entries.remove(expected)
        else:
            expected.holder, expected.until = client, self.now + (lease or LEASE_SECONDS)

    def _take_by_stomp(self, client: Somebody, expected: Entry | None) -> None:
        if self.held(client):
            return
        self.run(client.peer.take_from("/queue/q", "prefetch-count:1"))
        frames, client.peer.frames = client.peer.frames, []
        if expected is None:
            assert not frames
            self.run(client.peer.say("UNSUBSCRIBE", "id:1"))
            return
        (frame,) = frames
        assert (frame.body.decode(), frame.headers["delivery-count"]) == (expected.body, str(expected.attempt))
        assert frame.headers["redelivered"] == str(expected.redelivered).lower()
        expected.holder, expected.until, client.ack = client, None, frame.headers["ack"]

    @precondition(lambda self: any(self.held(client) for client in self.here()))
    @rule(data=st.data(), way=st.sampled_from(WAYS))
    def settle(self, data: st.DataObject, way: str) -> None:
        """Settle a message that one has in its hands."""
        client = data.draw(st.sampled_from([client for client in self.here() if self.held(client)]))
        entry = data.draw(st.sampled_from(self.held(client)))
        if client.carrier == STOMP:
            self.run(self._settle_by_stomp(client, way))
        else:
            answer = self.run(client.peer.ask(way, sequence=entry.sequence, queue="q", label=1))
            assert answer == {"type": "ok", "label": 1}
        self.settled(entry, way)

    async def _settle_by_stomp(self, client: Somebody, way: str) -> None:
        """Acknowledge as STOMP can, and take no more before anything else comes."""
        frames = {
            "finish": ("ACK", f"id:{client.ack}"),
            "fail": ("NACK", f"id:{client.ack}"),
            "reject": ("NACK", f"id:{client.ack}", "requeue:false"),
        }
        if way in frames:
            client.peer.tell(*frames[way])
        await client.peer.say("UNSUBSCRIBE", "id:1")

    def settled(self, entry: Entry, way: str) -> None:
        """Do the same in the model."""
        if way in {"finish", "reject"}:
            self.entries.remove(entry)
            self.dead += way == "reject"
        else:
            self.came_back(entry, counted=way == "fail")

    @precondition(lambda self: len([one for one in self.here() if one.carrier != STOMP]) > 1 and self.entries)
    @rule(data=st.data(), way=st.sampled_from(WAYS))
    def settle_in_vain(self, data: st.DataObject, way: str) -> None:
        """Settle what is not, or never was, in one's hands: nothing is changed."""
        client = data.draw(st.sampled_from([one for one in self.here() if one.carrier != STOMP]))
        entry = data.draw(st.sampled_from(self.entries))
        if entry.holder is None or entry.holder is client:
            return
        assert self.run(client.peer.refused(way, sequence=entry.sequence, queue="q")) == ("NotAssigned", "sequence")

    @precondition(lambda self: any(one.carrier != STOMP for one in self.here()))
    @rule(data=st.data())
    def keep_alive(self, data: st.DataObject) -> None:
        """Start all leases of a client anew."""
        client = data.draw(st.sampled_from([one for one in self.here() if one.carrier != STOMP]))
        answer = self.run(client.peer.ask("keepalive", label=1))
        assert answer["count"] == len(self.held(client))
        for entry in self.held(client):
            entry.until = self.now + self.lease_of(entry)

    def lease_of(self, entry: Entry) -> float:
        """Return the length of a lease, which the model does not keep."""
        cursor = self.world.runtime.engine.channels.by_name["q"][0]
        seconds: float = cursor.assigned[entry.sequence].timeout
        return seconds

    @precondition(lambda self: any(self.held(one) for one in self.here() if one.carrier != STOMP))
    @rule(data=st.data(), posts=st.integers(0, 3))
    def batch(self, data: st.DataObject, posts: int) -> None:
        """Publish and settle all that one holds, together."""
        client = data.draw(st.sampled_from([one for one in self.here() if one.carrier != STOMP and self.held(one)]))
        requests: list[dict[str, Any]] = []
        for entry in self.held(client):
            way = data.draw(st.sampled_from(WAYS))
            requests.append({"type": way, "sequence": entry.sequence})
        settled = list(zip(self.held(client), [request["type"] for request in requests], strict=True))
        bodies = [str(self.count + number + 1) for number in range(posts)]
        self.count += posts
        requests += [{"type": "post", "queue": "q", "message": body, "label": int(body)} for body in bodies]
        *answers, all_of_it = self.run(self._told(client.peer, requests))
        assert all_of_it["count"] == len(requests)
        for body, answer in zip(bodies, answers, strict=True):
            assert answer["label"] == int(body)
            self.entries.append(Entry(body, 4, answer["sequence"]))
        for entry, way in settled:
            self.settled(entry, way)

    async def _told(self, peer: Native, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        await peer.say("batch", requests=requests, label=1)
        return peer.take_all()

    # What must always hold.

    @invariant()
    def the_broker_has_what_the_model_has(self) -> None:
        """Numbers of waiting, assigned and dead messages."""
        assert self.world.length("q") == len(self.entries)
        assigned = self.world.runtime.engine.channels.by_name["q"][0].assigned
        assert sorted(assigned) == sorted(entry.sequence for entry in self.entries if entry.holder is not None)
        assert self.world.length("DLQ.q") == self.dead

    @invariant()
    def nobody_is_told_what_it_did_not_ask_for(self) -> None:
        """All answers were taken where they were expected."""
        for client in self.here():
            left = client.peer.frames if client.carrier == STOMP else client.peer.answers
            assert not left, left


def run_machine(carriers: Sequence[str], examples: int, seed: int | None = None) -> None:
    """Run so many examples; with a seed always the same ones."""
    machine = type("Machine", (Machine,), {"carriers": carriers})
    machine._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]  # what the decorator `seed` sets
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=STEPS, deadline=None)
    )
