"""Subscriptions: a stream that hands out messages in batches, and takes what became of them."""

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.engine.port import Client, Consumer, Outcome, settle
from penstock.model.access import Action
from penstock.model.errors import BadRequest, NoObject, PenstockError, TooLarge
from penstock.model.message import Message, State
from penstock.model.names import checked_name
from penstock.model.publication import checked_reason
from penstock.model.selector import parse
from penstock.model.settings import checked_count
from penstock.model.stages import Level
from penstock.protocols.grpc.callers import Caller
from penstock.protocols.grpc.messages import fill, lease_of, level_of, read, selection_of
from penstock.protocols.grpc.streams import Session
from penstock.v1 import broker_pb2 as pb

CREDIT_DEFAULT = 256
#: A response has no more messages, and unless one message is larger no more bytes of bodies: clients take 4 MiB.
RESPONSE_MESSAGES, RESPONSE_BYTES = 1000, 2**20
#: Answers to settlements, each refusal among them, that go into one response; and that are not read by the peer, or wait
#: for the disk, before no more is read from it.
RESPONSE_REFUSALS, UNTOLD_MAX = 1000, 1000


class Subscriber(Session):
    """See the module. The stream is a client of the engine by itself."""

    def __init__(self, caller: Caller, new_id: Callable[[], bytes], wake: Callable[[], None]) -> None:
        super().__init__(caller, wake)
        self._limits = caller.limits
        self._engine = caller.engine
        self._client: Client = self._engine.clients.connect(self._port.now(), new_id(), user=caller.client.user)
        self._consumer: Consumer | None = None
        #: Messages that may be sent, and those that were sent and are not settled, by their sequence.
        self._ready: deque[Message] = deque()
        self._sent: dict[int, Message] = {}
        self._settled: deque[pb.Settled] = deque()
        #: Answers that wait for the disk.
        self._unsynced = 0
        #: Answers of both kinds and refusals in them.
        self._untold = 0

    # What the carrier calls.

    @property
    def is_over(self) -> bool:
        """Whether the peer was told of all its settlements, and there will be no more."""
        return self.is_deaf and not self._settled and not self._unsynced

    @property
    def is_full(self) -> bool:
        """Whether the peer should read what became of its settlements before it goes on."""
        return self._untold >= UNTOLD_MAX

    def hear(self, data: bytes) -> None:
        """Begin, settle, or both."""
        request = read(pb.SubscribeRequest, data)
        now = self._port.now()
        if request.HasField("subscription"):
            self._begin(request.subscription, now)
        if self._consumer is None:
            raise BadRequest("subscription is missing: the first request says what is wanted", key="subscription")
        if request.HasField("credit"):
            self._give_credit(self._consumer, request.credit)
        settled = pb.Settled(label=request.label)
        self._settle(request, settled, now)
        if request.leave:
            self._give_back()
        if request.label or settled.refusals:
            self._untold += 1 + len(settled.refusals)
        if request.label:
            self._unsynced += 1
            self._port.after(Level.SYNC, partial(self._tell_synced, settled))
        elif settled.refusals:
            self._settled.append(settled)
            self._wake()
        if request.leave:
            self.end()
        self._port.touch()

    def next_response(self) -> bytes | None:
        """Return messages, and what became of settlements."""
        if not self._ready and not self._settled:
            return None
        response = pb.SubscribeResponse()
        self._tell_settled(response)
        self._hand_out(response)
        return response.SerializeToString()

    def end(self, error: PenstockError | None = None) -> None:
        """Take no more; what the peer holds has failed."""
        if not self.is_deaf:
            self._let_go(self._engine.clients.disconnect)
        super().end(error)

    def leave(self) -> None:
        """End because the server stops; what the peer holds waits again and does not count as failed."""
        self._give_back()
        super().leave()

    def lost(self) -> None:
        """Take note that the peer has gone."""
        self.end()
        super().lost()

    def give_up(self) -> None:
        """Tell nothing more of settlements."""
        self._settled.clear()
        self._unsynced = self._untold = 0

    # Handing out.

    def _begin(self, wanted: pb.Subscription, now: float) -> None:
        if self._consumer is not None:
            raise BadRequest("there is a subscription already; another needs a stream of its own", key="subscription")
        selector = self._engine.selected_by(parse(wanted.selector).matches) if wanted.HasField("selector") else None
        consumer = Consumer(
            self._client,
            self._arrived,
            credit=CREDIT_DEFAULT,
            timeout=lease_of(wanted),
            selector=selector,
            level=level_of(wanted.sync, "sync", Level.READY),
        )
        if wanted.WhichOneof("channel") == "topic":
            self._take_from_topic(consumer, wanted, now)
        else:
            self._take_from_queues(consumer, wanted)
        self._consumer = consumer

    def _take_from_queues(self, consumer: Consumer, wanted: pb.Subscription) -> None:
        for name in ("durable", "from_seq"):
            if wanted.HasField(name):
                raise BadRequest(f"{name} goes with a topic", key=name)
        selection = selection_of(wanted)
        self._caller.check(Action.CONSUME, selection.name)
        consumer.takes_turns = selection.takes_turns
        self._engine.subscribe(consumer, selection)

    def _take_from_topic(self, consumer: Consumer, wanted: pb.Subscription, now: float) -> None:
        if wanted.HasField("tags"):
            raise BadRequest("topics have no tags", key="tags")
        topic = checked_name(wanted.topic, "topic")
        self._caller.check(Action.CONSUME, topic)
        durable = checked_name(wanted.durable, "durable") if wanted.HasField("durable") else None
        if durable is not None:
            for earlier in self._engine.subscriptions.take_over(durable, topic, now):
                earlier.on_ready(earlier)
        first = wanted.from_seq if wanted.HasField("from_seq") else None
        self._engine.subscribe_topic(consumer, topic, now, durable, first)

    def _give_credit(self, consumer: Consumer, credit: int) -> None:
        consumer.credit = checked_count(credit, "credit", 1, self._limits.credit_max)
        if consumer.unsettled >= credit:
            consumer.pause()
        else:
            consumer.let_go(self._engine.effects)

    def _arrived(self, consumer: Consumer) -> None:
        """Take over what may be sent."""
        if not self.is_deaf:
            self._ready.extend(consumer.take_out())
            self._wake()
        if consumer.failure is not None:
            self.end(consumer.failure)

    def _hand_out(self, response: pb.SubscribeResponse) -> None:
        ready, sent, add = self._ready, self._sent, response.messages.add
        size = 0
        for _ in range(min(len(ready), RESPONSE_MESSAGES)):
            length = len(ready[0].record[7])
            if size and size + length > RESPONSE_BYTES:
                break
            message = ready.popleft()
            if message.state is State.ASSIGNED:  # else it lapsed, or went with its queue, before anybody saw it
                sent[message.record[3]] = message
                fill(add(), message)
                size += length

    # Settling.

    def _settle(self, request: pb.SubscribeRequest, settled: pb.Settled, now: float) -> None:
        self._check_count(request)
        sent = self._sent
        for sequence in request.complete:
            message = sent.pop(sequence, None)
            try:
                if message is None:
                    raise _unknown(sequence)
                if message.cursor.finish(message, now):
                    settled.late.append(sequence)
            except PenstockError as error:
                _refuse(settled, sequence, error)
        for failure in request.fail:
            outcome = Outcome.REJECT if failure.reject else Outcome.FAIL
            reason = checked_reason(failure.reason or ("rejected" if failure.reject else ""), self._limits)
            self._settle_otherwise(settled, failure.sequence, outcome, reason, now)
        for sequence in request.release:
            self._settle_otherwise(settled, sequence, Outcome.RELEASE, "", now)
        for sequence in request.keep_alive:
            self._keep_alive(settled, sequence, now)
        if request.keep_all_alive:
            self._engine.keep_alive_all(self._client, now)

    def _check_count(self, request: pb.SubscribeRequest) -> None:
        """Raise if a request settles more than a stream can have; each would be refused by a text of its own."""
        count = len(request.complete) + len(request.fail) + len(request.release) + len(request.keep_alive)
        most = self._limits.credit_max
        if count > most:
            raise TooLarge(
                f"{count} settlements are too many for a request; at most {most} are allowed (credit_max)",
                key="complete",
                size=count,
                limit=most,
            )

    def _settle_otherwise(self, settled: pb.Settled, sequence: int, outcome: Outcome, reason: str, now: float) -> None:
        message = self._sent.pop(sequence, None)
        try:
            if message is None:
                raise _unknown(sequence)
            settle(message, outcome, reason, now)
        except PenstockError as error:
            _refuse(settled, sequence, error)

    def _keep_alive(self, settled: pb.Settled, sequence: int, now: float) -> None:
        message = self._sent.get(sequence)
        try:
            if message is None:
                raise _unknown(sequence)
            message.cursor.keep_alive(message, now)
        except PenstockError as error:
            _refuse(settled, sequence, error)

    def _tell_settled(self, response: pb.SubscribeResponse) -> None:
        """Tell what became of settlements; of many refusals a part now, and the label with the last of them."""
        room = RESPONSE_REFUSALS
        while self._settled and room > 0:
            refusals = self._settled[0].refusals
            if len(refusals) > room:
                response.settled.add(refusals=refusals[:room])
                del refusals[:room]
                self._untold -= room
                return
            room -= 1 + len(refusals)
            self._untold -= 1 + len(refusals)
            response.settled.append(self._settled.popleft())

    def _tell_synced(self, settled: pb.Settled) -> None:
        if self._unsynced:
            self._unsynced -= 1
            self._settled.append(settled)
            self._wake()

    # Ending.

    def _give_back(self) -> None:
        """Let all wait again that the peer holds; it does not count as failed."""
        now = self._port.now()
        if self._consumer is not None:
            self._consumer.hold()
        for message in list(self._client.held):
            message.cursor.release(message, now)
        self._sent.clear()
        self._port.touch()

    def _let_go(self, part: Callable[[Client, float], None]) -> None:
        """Give back what was not sent, and part with the client."""
        now = self._port.now()
        for message in list(self._client.held):
            if message.sequence not in self._sent:
                message.cursor.release(message, now)
        self._ready.clear()
        part(self._client, now)
        self._sent.clear()
        self._port.touch()


def _unknown(sequence: int) -> NoObject:
    return NoObject(f"there is no unsettled message {sequence} that this stream was sent", key="sequence")


def _refuse(settled: pb.Settled, sequence: int, error: PenstockError) -> None:
    settled.refusals.add(sequence=sequence, code=error.code, key=error.key or "", text=error.message)
