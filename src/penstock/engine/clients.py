"""Clients: who they are, what they hold, and what becomes of it when they go or come back."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.engine.cursor import Agenda
from penstock.engine.effects import Notice
from penstock.engine.schedule import Schedule
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.model.records import Attribute, Kind

if TYPE_CHECKING:
    from penstock.engine.consumers import Consumer


class Client:
    """A connection, or a process that has the broker embedded."""

    __slots__ = (
        "connected",
        "consumers",
        "held",
        "id",
        "missed",
        "number",
        "on_close",
        "on_notice",
        "resume_timeout",
        "returns",
        "user",
    )

    def __init__(self, number: int, ident: bytes, user: str, *, returns: bool, resume_timeout: float) -> None:
        self.number = number
        self.id = ident
        self.user = user
        #: Whether it can come back after a restart of the broker, so that what it holds stays its own.
        self.returns = returns
        #: Seconds that it is kept while it is away.
        self.resume_timeout = resume_timeout
        self.connected = True
        #: What is assigned to it.
        self.held: dict[Message, None] = {}
        self.consumers: dict[Consumer, None] = {}
        #: Notices that came while it was away.
        self.missed: list[Notice] = []
        self.on_notice: Callable[[Notice], None] | None = None
        #: Called when another connection resumes this client.
        self.on_close: Callable[[], None] | None = None


class Clients:
    """All clients, connected or kept until they come back."""

    __slots__ = ("_absent", "_agenda", "_by_id", "_effects", "_limits", "_next_number", "by_number")

    def __init__(self, agenda: Agenda, limits: Limits) -> None:
        self._agenda = agenda
        self._effects = agenda.effects
        self._limits = limits
        self.by_number: dict[int, Client] = {}
        self._by_id: dict[bytes, Client] = {}
        self._absent: Schedule[Client] = Schedule()
        self._next_number = 1

    def connect(self, now: float, ident: bytes, *, user: str = "", returns: bool = False) -> Client:
        """Take on a new client with an id that nobody else has."""
        client = Client(self._next_number, ident, user, returns=returns, resume_timeout=0.0)
        self._next_number += 1
        self._keep(client)
        self._note(client, now)
        return client

    def keep_for(self, client: Client, resume_timeout: float, now: float) -> None:
        """Keep a client for so many seconds when its connection is lost."""
        client.resume_timeout = min(resume_timeout, self._limits.resume_timeout_max)
        self._note(client, now)

    def find(self, ident: bytes, user: str) -> Client | None:
        """Return the client of an id, if it belongs to that user."""
        client = self._by_id.get(ident)
        return client if client is not None and client.user == user else None

    def resume(self, client: Client, now: float) -> list[Notice]:
        """Connect a client again; returns the notices that it missed. One that was still connected is told."""
        if client.connected:
            if client.on_close is not None:
                client.on_close()
            self._close_consumers(client, now)
        self._absent.discard(client)
        client.connected = True
        client.on_close = client.on_notice = None
        missed, client.missed = client.missed, []
        return missed

    def disconnect(self, client: Client, now: float) -> None:
        """Let a connection go: what it held fails, unless the client asked to be kept."""
        self._close_consumers(client, now)
        client.connected = False
        client.on_notice = client.on_close = None
        if client.resume_timeout:
            self._absent.add(now + client.resume_timeout, client)
        else:
            self.forget(client, now)

    def leave(self, client: Client, now: float) -> None:
        """Let a client go in good order: what it held waits again and does not count as failed."""
        self._close_consumers(client, now)
        for message in list(client.held):
            message.cursor.release(message, now)
        self.forget(client, now)

    def forget(self, client: Client, now: float) -> None:
        """Let a client go for good."""
        for message in list(client.held):
            message.cursor.lose(message, now)
        self._absent.discard(client)
        del self.by_number[client.number]
        del self._by_id[client.id]
        self._effects.departed.client_went(client.number, self._effects.position, client.id)
        self._effects.note(Kind.CLIENT_GONE, now, client=client.number)

    def sweep(self, now: float, limit: int) -> int:
        """Let go of clients who did not come back in time; returns how many."""
        swept = 0
        while swept < limit and (client := self._absent.pop_due(now)) is not None:
            self.forget(client, now)
            swept += 1
        return swept

    def next_time(self) -> float | None:
        """Return when the next client is to be let go."""
        return self._absent.next_time()

    def deliver(self, notices: list[Notice]) -> None:
        """Tell publishers what has become of their messages, now or when they come back."""
        for notice in notices:
            client = self.by_number.get(notice.client)
            if client is None:
                continue
            if client.on_notice is not None:
                client.on_notice(notice)
            elif len(client.missed) < self._limits.missed_notices_max:
                client.missed.append(notice)

    # After a restart.

    def restore(self, number: int, ident: bytes, user: str, *, returns: bool, resume_timeout: float) -> Client:
        """Know a client again that the store tells of."""
        client = self.by_number.get(number)
        if client is None:
            client = Client(number, ident, user, returns=returns, resume_timeout=resume_timeout)
            client.connected = False
            self._keep(client)
        client.resume_timeout = resume_timeout
        self._next_number = max(self._next_number, number + 1)
        return client

    def drop(self, number: int) -> None:
        """Forget a client that the store tells to be gone."""
        client = self.by_number.pop(number, None)
        if client is not None:
            del self._by_id[client.id]
            self._effects.departed.client_went(number, self._effects.position, client.id)

    def start(self, now: float) -> None:
        """Give what cannot come back to others, and all else its time to come back."""
        for client in list(self.by_number.values()):
            if client.returns and (client.held or client.resume_timeout):
                for message in list(client.held):
                    self._agenda.leases.give(message, message.timeout or message.cursor.heartbeat_timeout, now)
                longest = max((message.timeout for message in client.held), default=0.0)
                self._absent.add(now + max(client.resume_timeout, longest), client)
            else:
                for message in list(client.held):
                    message.cursor.release(message, now)
                self.forget(client, now)

    @property
    def next_number(self) -> int:
        """The number of the next client."""
        return self._next_number

    @next_number.setter
    def next_number(self, number: int) -> None:
        self._next_number = max(self._next_number, number)

    def __iter__(self) -> Iterator[Client]:
        return iter(self.by_number.values())

    def _keep(self, client: Client) -> None:
        self.by_number[client.number] = client
        self._by_id[client.id] = client

    def _close_consumers(self, client: Client, now: float) -> None:
        for consumer in list(client.consumers):
            consumer.close(now)
        client.consumers.clear()

    def _note(self, client: Client, now: float) -> None:
        attributes = {
            int(Attribute.ID): client.id,
            int(Attribute.USER): client.user,
            int(Attribute.RETURNS): client.returns,
            int(Attribute.RESUME_TIMEOUT): client.resume_timeout,
        }
        self._effects.note(Kind.CLIENT, now, client=client.number, attributes=attributes)
