"""The ready order against a plain list, warm and cold, with messages withdrawn from anywhere."""

import random

import pytest

from penstock.engine import ready as ready_module
from penstock.engine.ready import ReadyOrder
from penstock.model.message import Message, State
from penstock.model.records import Record
from tests.engine.rig import Rig


def record(sequence: int, priority: int = 4, size: int = 1) -> Record:
    return (1, 1, 0.0, sequence, 1, priority, None, b"x" * size)


class Order:
    """A ready order with the store that it recalls from."""

    def __init__(self, *, recalls: bool) -> None:
        self.store: dict[int, Record] = {}
        self.recalled: list[int] = []
        self.ready = ReadyOrder(self._recall if recalls else None)
        self.queue = Rig().queue()

    def _recall(self, sequences: object) -> list[Record]:
        self.recalled.append(len(sequences))  # type: ignore[arg-type]
        return [self.store[sequence] for sequence in sequences]  # type: ignore[attr-defined]

    def push(self, *sequences: int, priority: int = 4, size: int = 1) -> None:
        for sequence in sequences:
            self.store[sequence] = record(sequence, priority, size)
            self.ready.push(self.store[sequence], priority)

    def put_back(self, sequence: int, priority: int = 4, place: int | None = None) -> Message:
        message = Message(record(sequence, priority), self.queue)
        message.place = sequence if place is None else place
        self.ready.put_back(message, priority)
        return message

    def drain(self) -> list[int]:
        drained = []
        while (entry := self.ready.pop()) is not None:
            drained.append(entry.sequence if isinstance(entry, Message) else entry[3])
        assert self.ready.count == 0
        return drained


@pytest.fixture(params=[False, True], ids=["resident", "recalled"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Order:
    """Return an order that keeps three records in memory, if there is a store to recall from."""
    monkeypatch.setattr(ready_module, "HEAD_RECORDS", 3)
    monkeypatch.setattr(ready_module, "RECALL_RECORDS", 2)
    monkeypatch.setattr(ready_module, "TOMBSTONES_MIN", 3)
    monkeypatch.setattr(ready_module, "_DRAINED_MIN", 4)
    return Order(recalls=request.param)


def test_by_priority_then_place(order: Order) -> None:
    """The highest priority goes first, then the lowest place, returned or fresh."""
    order.push(1, 5, 6, 7, 8, 9)
    order.push(2, 3, priority=9)
    order.put_back(4)
    order.put_back(10, place=0)

    assert order.ready.first() == (-9, 2)
    assert order.drain() == [2, 3, 10, 1, 4, 5, 6, 7, 8, 9]


def test_what_is_deep_stays_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records beyond the head, in number or bytes, are recalled a few at a time when their turn comes."""
    monkeypatch.setattr(ready_module, "HEAD_RECORDS", 3)
    monkeypatch.setattr(ready_module, "HEAD_BYTES", 10)
    monkeypatch.setattr(ready_module, "RECALL_RECORDS", 2)
    order = Order(recalls=True)
    order.push(*range(1, 9))
    order.push(9, 10, priority=3, size=8)

    assert order.drain() == list(range(1, 11))
    assert order.recalled == [2, 2, 1, 1]


@pytest.mark.parametrize(("size", "at_once"), [(1, 10), (3, 3), (50, 1)])
def test_as_many_are_recalled_as_may_be_in_memory(monkeypatch: pytest.MonkeyPatch, size: int, at_once: int) -> None:
    """By the size of those before; the first few are looked at for that. Whoever looks for some reads no more at a time."""
    monkeypatch.setattr(ready_module, "HEAD_BYTES", 10)
    for take in (Order.drain, lambda order: [entry[3] for entry in order.ready.entries()]):
        order = Order(recalls=True)
        order.push(*range(1, 41), size=size)
        assert take(order) == list(range(1, 41))
        assert order.recalled[0] == ready_module.FIRST_RECALL_RECORDS
        assert set(order.recalled[1:-1]) == {at_once}


def test_withdrawn_ones_are_passed_over(order: Order) -> None:
    """What was withdrawn, in memory or not, does not go out, is not found, and is forgotten."""
    order.push(*range(1, 13))
    for sequence in (1, 2, 5, 6, 9, 12):
        order.ready.withdraw(sequence)
        assert order.ready.find(sequence) is None
        assert sequence not in order.ready

    assert (order.ready.first(), order.ready.oldest_fresh()) == ((-4, 3), 3)
    assert [entry[3] for entry in order.ready.entries()] == [3, 4, 7, 8, 10, 11]  # type: ignore[index]
    assert order.drain() == [3, 4, 7, 8, 10, 11]
    assert not order.ready._withdrawn or max(order.ready._withdrawn) == 12


def test_put_back_messages_that_wait_no_longer(order: Order) -> None:
    """A message that was put back and settled meanwhile is passed over; the same sequence may stand there again."""
    for _ in range(10):
        message = order.put_back(1)
        message.state = State.SETTLED
        order.ready.withdraw_message(4)
    order.put_back(1)

    assert order.ready.first() == (-4, 1)
    assert order.drain() == [1]


def test_finding(order: Order) -> None:
    """A fresh message is found wherever it stands; one that is not there is not."""
    order.push(1, 3, 4, 5, 7)
    order.push(2, priority=0)

    assert [sequence for sequence in range(9) if order.ready.find(sequence)] == [1, 2, 3, 4, 5, 7]
    assert [sequence for sequence in range(9) if sequence in order.ready] == [1, 2, 3, 4, 5, 7]


def test_removing(order: Order) -> None:
    """A message can be taken out by its sequence; its record comes along if it is in memory."""
    order.push(1, 2, 3, 4, 5, 6)
    found = [order.ready.remove(sequence) for sequence in (1, 3, 2, 4, 6)]

    assert [one is not None for one in found[:3]] == [True] * 3
    assert order.drain() == [5]


def test_removing_below_an_empty_priority(order: Order) -> None:
    """A priority that has become empty is not in the way of the next."""
    order.push(1, 2, 3)
    order.push(4, priority=9)
    order.ready.remove(4)

    assert order.ready.remove(1) == order.store[1]
    assert not order.ready._withdrawn


def test_nothing_of_it_is_left(order: Order) -> None:
    """Cleared, an order is empty; used up, it keeps one lane."""
    order.push(1, 2, priority=1)
    order.push(3, 4, priority=2)
    order.drain()
    assert len(order.ready._lanes) == 1

    order.push(5)
    order.ready.clear()
    assert (order.drain(), order.ready.first(), order.ready.oldest_fresh()) == ([], None, None)


@pytest.mark.parametrize("seed", range(20))
def test_against_a_plain_list(order: Order, seed: int) -> None:
    """Whatever is pushed, put back, withdrawn and removed, the order is that of a sorted list."""
    choice = random.Random(seed)
    plain: dict[int, tuple[int, int]] = {}
    expected: list[int] = []
    returned: dict[int, Message] = {}
    for sequence in range(1, 400):
        action = choice.random()
        priority = choice.choice([4, 4, 4, 9, 0])
        if action < 0.55:
            order.push(sequence, priority=priority)
            plain[sequence] = (-priority, sequence)
        elif action < 0.7:
            place = sequence + 1000 if choice.random() < 0.5 else -sequence
            returned[sequence] = order.put_back(sequence, priority, place)
            plain[sequence] = (-priority, place)
        elif plain and action < 0.85:
            gone = choice.choice(list(plain))
            if gone in returned:
                returned[gone].state = State.SETTLED
                order.ready.withdraw_message(-plain[gone][0])
            elif choice.random() < 0.5:
                order.ready.withdraw(gone)
            else:
                order.ready.remove(gone)
            del plain[gone]
        elif plain:
            entry = order.ready.pop()
            found = entry.sequence if isinstance(entry, Message) else entry[3]  # type: ignore[index]
            assert found == min(plain, key=lambda one: plain[one])
            del plain[found]
        expected = sorted(plain, key=lambda one: plain[one])
        assert order.ready.count == len(plain)
        assert order.ready.first() == (plain[expected[0]] if expected else None)
        fresh = [one for one in plain if one not in returned]
        assert order.ready.oldest_fresh() == min(fresh, default=None)
    assert order.drain() == expected
