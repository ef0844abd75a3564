"""Transactions of a STOMP session: what is done at COMMIT, all or nothing, and taken back at ABORT."""

from penstock.engine.port import Publish, Settle
from penstock.model.errors import BadRequest, NoObject, TooLarge
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.model.publication import size_of
from penstock.protocols.stomp.subscription import Subscription

#: Begun and not ended, in one connection.
TRANSACTIONS_MAX = 16


class Shared:
    """The bytes that all transactions of a connection publish, which together may be as many as those of one."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Transaction:
    """One that was begun."""

    __slots__ = ("_limits", "_shared", "acknowledged", "bytes", "operations")

    def __init__(self, limits: Limits, shared: Shared) -> None:
        self._limits = limits
        self._shared = shared
        #: Of what it publishes, headers included.
        self.bytes = 0
        self.operations: list[Publish | Settle] = []
        self.acknowledged: list[tuple[Subscription, dict[bytes, Message]]] = []

    def add(self, operation: Publish | Settle) -> None:
        """Do this, too, at COMMIT."""
        most, bytes_max = self._limits.transaction_operations_max, self._limits.transaction_bytes_max
        if len(self.operations) >= most:
            raise TooLarge(f"the transaction has more than {most} operations", key="transaction", limit=most)
        if isinstance(operation, Publish):
            size = size_of((0, 0, 0.0, 0, 0, 0, operation.attributes, operation.body))
            self.bytes += size
            self._shared.bytes += size
            if self._shared.bytes > bytes_max:
                raise TooLarge(
                    f"what the transactions of this connection publish has more than {bytes_max} bytes",
                    key="transaction",
                    limit=bytes_max,
                )
        self.operations.append(operation)

    @property
    def publishes(self) -> bool:
        """Whether it needs room for new messages."""
        return any(isinstance(operation, Publish) for operation in self.operations)

    def take_back(self, now: float) -> None:
        """Let what was acknowledged in it be acknowledged again."""
        taken: dict[Subscription, dict[bytes, Message]] = {}
        for subscription, meant in self.acknowledged:
            taken.setdefault(subscription, {}).update(meant)
        for subscription, messages in taken.items():
            subscription.restore(messages, now)


class Transactions:
    """Those of one connection, by name."""

    __slots__ = ("_by_name", "_limits", "_shared")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shared = Shared()
        self._by_name: dict[bytes, Transaction] = {}

    def begin(self, name: bytes) -> None:
        """Begin one."""
        if name in self._by_name:
            raise BadRequest(f"the transaction {_shown(name)} was begun already", key="transaction")
        if len(self._by_name) >= TRANSACTIONS_MAX:
            raise TooLarge(f"{TRANSACTIONS_MAX} transactions are the most a connection can have", key="transaction")
        self._by_name[name] = Transaction(self._limits, self._shared)

    def find(self, name: bytes) -> Transaction:
        """Return one that was begun."""
        found = self._by_name.get(name)
        if found is None:
            raise NoObject(f"there is no transaction {_shown(name)}", key="transaction")
        return found

    def end(self, name: bytes) -> Transaction:
        """Return one that was begun, and forget it."""
        found = self.find(name)
        del self._by_name[name]
        self._shared.bytes -= found.bytes
        return found

    def forget(self) -> None:
        """Forget all of them, with the end of the connection."""
        self._by_name.clear()


def _shown(name: bytes) -> str:
    return name.decode(errors="replace")
