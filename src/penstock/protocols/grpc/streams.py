"""Streams: what their sessions have in common, and the session that publishes batches."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.model.errors import PenstockError
from penstock.model.stages import Level
from penstock.protocols.grpc.callers import Caller
from penstock.protocols.grpc.errors import closing
from penstock.protocols.grpc.messages import has_more_fields, level_of, read
from penstock.protocols.grpc.publishing import enqueue_batch, too_many
from penstock.v1 import broker_pb2 as pb

#: Batches of one stream that are not confirmed, or whose responses its peer does not read, before no more are read.
BATCHES_MAX = 1000
#: What a batch may say beside its messages: the tags of its queue, and little else.
FIELDS_BESIDES = 1000


class Session(ABC):
    """One stream's conversation. It owns no socket; its carrier calls it, all from one thread."""

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._port = caller.port
        #: Called when there is something to be said, or nothing ever more.
        self._wake = wake
        #: Whether nothing that the peer says is listened to any more.
        self.is_deaf = False
        #: Why, if something went wrong.
        self.error: PenstockError | None = None
        self._port.watch(self._look_at_store)

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether nothing is left to be said."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be heard before something was said."""
        return False

    @abstractmethod
    def hear(self, data: bytes) -> None:
        """Handle a request."""

    @abstractmethod
    def next_response(self) -> bytes | None:
        """Return what is to be said next, None if there is nothing for now."""

    def end(self, error: PenstockError | None = None) -> None:
        """Hear no more, because the peer has said all or something went wrong; what was promised is still told."""
        if not self.is_deaf:
            self.is_deaf, self.error = True, error
            self._wake()

    def leave(self) -> None:
        """End in good order, because the server stops."""
        self.end(closing())

    def lost(self) -> None:
        """Take note that the stream is gone, in good order or not."""
        self.is_deaf = True
        self._port.unwatch(self._look_at_store)

    @abstractmethod
    def give_up(self) -> None:
        """Forget what was to be said: it cannot be promised any more."""

    def _look_at_store(self) -> None:
        try:
            self._port.check()
        except PenstockError as error:
            self.give_up()
            self.end(error)
            self.error = error
            self._wake()


class _Batch:
    """A batch whose response waits until it may be told, and its turn has come."""

    __slots__ = ("is_due", "response")

    def __init__(self, response: bytes) -> None:
        self.response = response
        self.is_due = False


class Batches(Session):
    """Publishes batches, and confirms them in their order."""

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        super().__init__(caller, wake)
        self._batches: deque[_Batch] = deque()

    @property
    def is_over(self) -> bool:
        """Whether all that was published is confirmed, and no more comes."""
        return self.is_deaf and not self._batches

    @property
    def is_full(self) -> bool:
        """Whether the peer should read before it goes on."""
        return len(self._batches) >= BATCHES_MAX

    def hear(self, data: bytes) -> None:
        """Publish a batch."""
        most = self._caller.limits.transaction_operations_max
        if has_more_fields(data, most + FIELDS_BESIDES):
            raise too_many(most)
        request = read(pb.EnqueueStreamRequest, data)
        level = level_of(request.confirm, "confirm", Level.SYNC)
        batch = _Batch(enqueue_batch(self._caller, request, self._port.now()).SerializeToString())
        self._batches.append(batch)
        self._port.after(level, partial(self._confirm, batch))
        self._port.touch(len(data))

    def next_response(self) -> bytes | None:
        """Return the confirmation of the next batch."""
        if self._batches and self._batches[0].is_due:
            return self._batches.popleft().response
        return None

    def give_up(self) -> None:
        """Confirm nothing more."""
        self._batches.clear()

    def _confirm(self, batch: _Batch) -> None:
        batch.is_due = True
        if self._batches and self._batches[0] is batch:
            self._wake()
