"""Durable subscribers who come, go and change hands at random, beside a plain account of what each has still to get.

Each gets all that was published since it was made, in the order of each topic, until it has settled it: whatever becomes
of its connections.
"""

import random
from dataclasses import dataclass, field

from tests.protocols.stomp.peers import Peer, World
from tests.stomp_wire import Frame

TOPICS = ("t.a", "t.b")


@dataclass(slots=True)
class Account:
    """What a durable subscriber has still to get: bodies by their topic, in their order."""

    pattern: str
    is_made: bool = False
    peer: Peer | None = None
    ack: str = ""
    waiting: dict[str, str] = field(default_factory=dict)
    #: What it was handed and has not acknowledged on this connection, by the name for that.
    taken: dict[str, str] = field(default_factory=dict)
    deliveries: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    #: The newest message that came for the first time, by topic.
    newest: dict[str, int] = field(default_factory=dict)


class Durability:
    """See the module."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._choice = random.Random(seed)
        self._publisher = world.peer()
        self._accounts = {"one": Account("t.a"), "two": Account("t.b"), "all": Account("t.*")}
        self._numbers = 0
        self.settled = 0
        for topic in TOPICS:
            world.set_topic(topic, retry_delay=0.0, max_failures=None)

    async def run(self, steps: int) -> None:
        """Do so many things, then let each subscriber have the rest."""
        acts = [
            *[self._publish] * 6, *[self._acknowledge] * 8, *[self._attach] * 3, self._take_over, self._detach,
            self._detach, self._end,
        ]  # fmt: skip
        for _ in range(steps):
            self._choice.choice(acts)(self._choice.choice([*self._accounts]))
            await self._settle_down()
        for name, account in self._accounts.items():
            if account.peer is not None:
                self._detach(name)
            self._subscribe(name, "auto")
            await self._settle_down()
            assert not account.waiting, f"{name} never got {account.waiting}"

    async def _settle_down(self) -> None:
        await self._world.quiet()
        for account in self._accounts.values():
            if account.peer is not None:
                assert account.peer.is_open, account.peer.frames
                for frame in account.peer.messages():
                    self._take(account, frame)

    def _take(self, account: Account, frame: Frame) -> None:
        body, topic = frame.body.decode(), frame.headers["destination"]
        assert account.waiting.get(body) == topic, f"{body} is not for {account.pattern}, or was settled"
        assert body not in account.taken.values(), f"{body} came twice to one connection"
        before = account.deliveries.get(body, 0)
        assert frame.headers["redelivered"] == str(before > 0).lower(), body
        assert frame.attempt == 1 + account.failures.get(body, 0), body
        if not before:
            assert frame.sequence > account.newest.get(topic, 0), f"{body} is out of order"
            account.newest[topic] = frame.sequence
        account.deliveries[body] = before + 1
        if account.ack == "auto":
            self._settle(account, [body])
        else:
            account.taken[frame.headers["ack"]] = body

    # What they do.

    def _publish(self, name: str) -> None:
        topic = self._choice.choice(TOPICS)
        for _ in range(self._choice.choice((1, 1, 3))):
            self._numbers += 1
            self._publisher.tell("SEND", f"destination:/topic/{topic}", body=f"m{self._numbers}".encode())
            for account in self._accounts.values():
                if account.is_made and account.pattern in {topic, "t.*"}:
                    account.waiting[f"m{self._numbers}"] = f"/topic/{topic}"

    def _attach(self, name: str) -> None:
        if self._accounts[name].peer is None:
            self._subscribe(name, self._choice.choice(("auto", "client", "client-individual", "client-individual")))

    def _take_over(self, name: str) -> None:
        """Subscribe from another connection: the earlier is told and closed."""
        account = self._accounts[name]
        earlier = account.peer
        if earlier is not None:
            self._subscribe(name, "client-individual")
            earlier.error()
            self._world.peers.remove(earlier)

    def _detach(self, name: str) -> None:
        """Go, so that it can come back: by UNSUBSCRIBE, by DISCONNECT, or by losing the connection."""
        account = self._accounts[name]
        if account.peer is None:
            return
        peer, account.peer = account.peer, None
        account.taken.clear()
        way = self._choice.choice(("UNSUBSCRIBE", "DISCONNECT", "lost"))
        if way == "lost":
            peer.is_open = False
            peer.session.lost()
        else:
            peer.tell(way, f"id:{self._ident(name)}")
        if way != "UNSUBSCRIBE":
            self._world.peers.remove(peer)

    def _end(self, name: str) -> None:
        """Unsubscribe for good, from its own connection or from another."""
        account = self._accounts[name]
        if not account.is_made:
            return
        if account.peer is not None and self._choice.random() < 0.5:
            self._detach(name)
        peer = account.peer or self._world.peer()
        lines = ("durable:true",) if name == "one" else (f"durable-subscription-name:{name}",)
        peer.tell("UNSUBSCRIBE", f"id:{self._ident(name)}", *lines)
        if account.peer is not None:
            self._detach(name)
        self._accounts[name] = Account(account.pattern)

    def _acknowledge(self, name: str) -> None:
        account = self._accounts[name]
        if account.peer is None or not account.taken:
            return
        chosen = self._choice.choice([*account.taken])
        names = [*account.taken]
        meant = names[: names.index(chosen) + 1] if account.ack == "client" else [chosen]
        bodies = [account.taken.pop(one) for one in meant]
        if self._choice.random() < 0.7:
            account.peer.tell("ACK", f"id:{chosen}")
            self._settle(account, bodies)
        else:
            account.peer.tell("NACK", f"id:{chosen}")
            for body in bodies:
                account.failures[body] = account.failures.get(body, 0) + 1

    # Inside.

    def _ident(self, name: str) -> str:
        """Return the id of its subscription: its name for one, as programs of RabbitMQ have it, and any for others."""
        return name if name == "one" else "mine"

    def _subscribe(self, name: str, ack: str) -> None:
        account = self._accounts[name]
        account.peer, account.ack, account.is_made = self._world.peer(), ack, True
        account.taken.clear()
        lines = ("durable:true",) if name == "one" else (f"durable-subscription-name:{name}",)
        destination = f"destination:/topic/{account.pattern}"
        prefetch = f"prefetch-count:{self._choice.randrange(1, 6)}"
        account.peer.tell("SUBSCRIBE", f"id:{self._ident(name)}", destination, f"ack:{ack}", prefetch, *lines)

    def _settle(self, account: Account, bodies: list[str]) -> None:
        for body in bodies:
            del account.waiting[body]
            self.settled += 1
