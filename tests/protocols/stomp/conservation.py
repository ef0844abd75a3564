"""Peers who do at random whatever STOMP allows, beside a plain account of who has which message and how often it failed.

Each message that was sent is handed to one peer at a time, marked and counted as the account has it, until it is settled;
and when all have gone, what is left is exactly what was not.
"""

import random
from dataclasses import dataclass, field
from math import inf

from tests.protocols.stomp.peers import Peer, World
from tests.stomp_wire import Frame

QUEUES = ("a", "b")
PEERS_MAX, SUBSCRIPTIONS_MAX = 4, 3
#: Seconds of a lease, for subscriptions that have one, and how many pass at a time.
LEASE, PAUSES = 5.0, (0.7, 1.9, 3.2)
#: Bodies with the number of their delivery, by what names them.
Held = dict[str, tuple[str, int]]


@dataclass(slots=True)
class Known:
    """A message."""

    queue: str
    deliveries: int = 0
    failures: int = 0
    is_settled: bool = False
    #: Who has it now, and until when.
    holder: "Actor | None" = None
    deadline: float = inf


@dataclass(slots=True)
class Taken:
    """What a subscription was handed and has not acknowledged, in its order."""

    ack: str
    lease: float
    bodies: Held = field(default_factory=dict)


@dataclass(slots=True)
class Work:
    """A transaction: what it sends, and what it acknowledges of each subscription."""

    sent: list[str] = field(default_factory=list)
    acknowledged: list[tuple[str, Held, bool]] = field(default_factory=list)


class Actor:
    """A peer, and what it has."""

    def __init__(self, world: World, version: str) -> None:
        self.peer: Peer = world.peer(version)
        self.version = version
        self.taken: dict[str, Taken] = {}
        self.works: dict[str, Work] = {}
        self.is_slow = False

    def naming(self, ident: str, name: str) -> list[str]:
        """Return the lines that name a message."""
        if self.version == "1.2":
            return [f"id:{name}"]
        return [f"message-id:{name}", f"subscription:{ident}"]


class Conservation:
    """See the module."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._choice = random.Random(seed)
        self._messages: dict[str, Known] = {}
        self._actors: list[Actor] = []
        self._names = 0
        for queue in QUEUES:
            world.set_queue(queue, retry_limit=None)

    async def run(self, steps: int) -> None:
        """Do so many things, then let everybody go, and look at what is left."""
        acts = (
            *[self._send] * 6, *[self._acknowledge] * 8, *[self._subscribe] * 2, self._connect, self._unsubscribe,
            self._begin, self._commit, self._abort, self._go, self._slow_down,
        )  # fmt: skip
        for _ in range(steps):
            actor = self._choice.choice(self._actors) if self._actors else None
            act = self._choice.choice(acts)
            if act == self._connect or actor is None:
                self._connect()
            else:
                act(actor)
            if self._choice.random() < 0.1:
                await self._world.wait(self._choice.choice(PAUSES))
                self._lapse()
            await self._settle_down()
        while self._actors:
            self._go(self._actors[0])
        await self._settle_down()
        for queue in QUEUES:
            left = {body for body, known in self._messages.items() if known.queue == queue and not known.is_settled}
            assert await self._browsed(queue) == left

    @property
    def settled(self) -> int:
        """How many were settled."""
        return sum(known.is_settled for known in self._messages.values())

    async def _settle_down(self) -> None:
        await self._world.quiet()
        for actor in self._actors:
            assert actor.peer.is_open, actor.peer.frames
            for frame in actor.peer.messages():
                self._take(actor, frame)

    def _take(self, actor: Actor, frame: Frame) -> None:
        body, taken = frame.body.decode(), actor.taken[frame.headers["subscription"]]
        known = self._messages[body]
        assert known.holder is None, f"{body} is with two peers at once"
        assert not known.is_settled, f"{body} came again after it was settled"
        assert frame.headers["redelivered"] == str(known.deliveries > 0).lower(), body
        assert frame.attempt == 1 + known.failures, body
        known.deliveries += 1
        if taken.ack == "auto":
            known.is_settled = True
            return
        known.holder, known.deadline = actor, self._world.clock.seconds + taken.lease
        taken.bodies[frame.headers["ack" if actor.version == "1.2" else "message-id"]] = body, known.deliveries

    # What peers do.

    def _connect(self) -> None:
        if len(self._actors) < PEERS_MAX:
            self._actors.append(Actor(self._world, self._choice.choice(("1.1", "1.2"))))

    def _send(self, actor: Actor) -> None:
        queue, body = self._choice.choice(QUEUES), self._new_name()
        name = self._choice.choice([*actor.works, None, None])
        lines = [] if name is None else [f"transaction:{name}"]
        actor.peer.tell("SEND", f"destination:/queue/{queue}", *lines, body=body.encode())
        self._messages[body] = Known(queue, is_settled=name is not None)  # until COMMIT it is as if it were not
        if name is not None:
            actor.works[name].sent.append(body)

    def _subscribe(self, actor: Actor) -> None:
        if len(actor.taken) < SUBSCRIPTIONS_MAX:
            ident, ack = self._new_name(), self._choice.choice(("auto", "client", "client", "client-individual"))
            queue, prefetch = self._choice.choice(QUEUES), self._choice.randrange(1, 6)
            lease = self._choice.choice((inf, LEASE))
            actor.taken[ident] = Taken(ack, lease)
            lines = [f"id:{ident}", f"destination:/queue/{queue}", f"ack:{ack}", f"prefetch-count:{prefetch}"]
            actor.peer.tell("SUBSCRIBE", *lines, *([] if lease == inf else [f"work-timeout:{lease}"]))

    def _acknowledge(self, actor: Actor) -> None:
        """Acknowledge or refuse, at once or in a transaction."""
        holding = [ident for ident, taken in actor.taken.items() if taken.bodies]
        if not holding:
            return
        ident = self._choice.choice(holding)
        taken = actor.taken[ident]
        name = self._choice.choice([*taken.bodies])
        meant: Held = {}
        for other in list(taken.bodies) if taken.ack == "client" else [name]:
            meant[other] = taken.bodies.pop(other)
            if other == name:
                break
        is_success = self._choice.random() < 0.7
        work = self._choice.choice([*actor.works, None, None])
        lines = [] if work is None else [f"transaction:{work}"]
        actor.peer.tell("ACK" if is_success else "NACK", *actor.naming(ident, name), *lines)
        if work is None:
            self._end(meant, is_success=is_success)
        else:
            actor.works[work].acknowledged.append((ident, meant, is_success))

    def _unsubscribe(self, actor: Actor) -> None:
        if actor.taken:
            ident = self._choice.choice([*actor.taken])
            actor.peer.tell("UNSUBSCRIBE", f"id:{ident}")
            self._release(actor.taken.pop(ident).bodies)

    def _begin(self, actor: Actor) -> None:
        name = self._new_name()
        actor.works[name] = Work()
        actor.peer.tell("BEGIN", f"transaction:{name}")

    def _commit(self, actor: Actor) -> None:
        if actor.works:
            name = self._choice.choice([*actor.works])
            work = actor.works.pop(name)
            actor.peer.tell("COMMIT", f"transaction:{name}")
            if any(len(self._current(actor, meant)) < len(meant) for _, meant, _ in work.acknowledged):
                assert actor.peer.error().headers["message"] in {"NotAssigned", "NoObject"}
                self._forget(actor)
                return
            for body in work.sent:
                self._messages[body].is_settled = False
            for _, meant, is_success in work.acknowledged:
                self._end(meant, is_success=is_success)

    def _abort(self, actor: Actor) -> None:
        if actor.works:
            name = self._choice.choice([*actor.works])
            work = actor.works.pop(name)
            actor.peer.tell("ABORT", f"transaction:{name}")
            for ident, meant, _ in reversed(work.acknowledged):
                taken = actor.taken.get(ident)
                if taken is None:
                    self._release(self._current(actor, meant))
                else:
                    taken.bodies = {**self._current(actor, meant), **taken.bodies}

    def _go(self, actor: Actor) -> None:
        """Lose the connection, or say DISCONNECT: what it has failed."""
        if self._choice.random() < 0.5:
            actor.peer.tell("DISCONNECT")
        else:
            actor.peer.is_open = False
            actor.peer.session.lost()
        self._forget(actor)

    def _forget(self, actor: Actor) -> None:
        """Take note that somebody has gone: what it had has failed."""
        self._actors.remove(actor)
        self._world.peers.remove(actor.peer)
        for known in self._messages.values():
            if known.holder is actor:
                known.holder = None
                known.failures += 1

    def _slow_down(self, actor: Actor) -> None:
        """Stop reading, or read on."""
        if actor.is_slow:
            actor.peer.session.go_on()
        else:
            actor.peer.session.hold_back()
        actor.is_slow = not actor.is_slow

    # The account.

    def _lapse(self) -> None:
        """Count as failed what was held for longer than its lease."""
        for body, known in self._messages.items():
            if known.holder is not None and known.deadline <= self._world.clock.seconds:
                for taken in known.holder.taken.values():
                    taken.bodies = {name: held for name, held in taken.bodies.items() if held[0] != body}
                known.holder = None
                known.failures += 1

    def _current(self, actor: Actor, meant: Held) -> Held:
        """Return what of this somebody still has from that delivery."""
        return {
            name: (body, delivery)
            for name, (body, delivery) in meant.items()
            if self._messages[body].holder is actor and self._messages[body].deliveries == delivery
        }

    def _end(self, meant: Held, *, is_success: bool) -> None:
        for body, _ in meant.values():
            known = self._messages[body]
            known.holder = None
            known.is_settled = is_success
            known.failures += not is_success

    def _release(self, meant: Held) -> None:
        for body, _ in meant.values():
            self._messages[body].holder = None

    def _new_name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    async def _browsed(self, queue: str) -> set[str]:
        peer = self._world.peer()
        await peer.take_from(f"/queue/{queue}", "browser:true", "credit:100")
        bodies = [one.body.decode() for one in peer.messages()[:-1]]
        assert len(bodies) == len(set(bodies))
        return set(bodies)
