"""What every store promises, whatever it is made of: a store is added to `STORES`, and all of this holds for it.

A factory takes a directory of its own and returns a store on it; called again, it returns another on the same directory,
as after a restart. Promises about what is kept are asked of durable stores only.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.errors import StoreInUse
from penstock.model.records import Attribute, Kind, Record
from penstock.store.journal import Journal
from penstock.store.memory import Memory
from penstock.store.port import Store

Factory = Callable[[], Store]

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: Memory(),
    "journal": lambda path: Journal(path / "data", segment_bytes=64 * 1024),
}
DURABLE = [name for name in STORES if name != "memory"]


@pytest.fixture(params=list(STORES))
def any_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Factory:
    """Make a store of each kind."""
    return lambda: STORES[request.param](tmp_path)


@pytest.fixture(params=DURABLE)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> Factory:
    """Make a store of each kind that keeps what it is given."""
    return lambda: STORES[request.param](tmp_path)


def message(position: int, body: bytes = b"body") -> Record:
    """Return a published message with attributes of each type that there is."""
    attributes = {
        Attribute.HEADERS: {"traceparent": "00-ä", "": ""},
        Attribute.KEY: "key",
        Attribute.DUE: 12.5,
        Attribute.LATE: True,
        Attribute.ID: b"\x00\xff",
        Attribute.TAGS: ["a", "b"],
        Attribute.LABEL: 2**64 - 1,
    }
    plain = {int(key): value for key, value in attributes.items()}
    return (int(Kind.PUBLISH), 2**32 - 1, 1e9 + 0.25, position, 2**32 - 1, 2**64 - 1, plain, body + b"%d" % position)


def finish(position: int, sequence: int) -> Record:
    """Return the end of a message."""
    return (int(Kind.FINISH), 1, 2.0, sequence, 3, 1, None, b"")


def opened(factory: Factory) -> Store:
    """Return a store that was opened, its records read, and told that nothing is live."""
    store = factory()
    recovered = store.open()
    list(recovered.batches)
    store.adopt([])
    return store


def reopened(store: Store, factory: Factory) -> tuple[Store, list[int], list[Record]]:
    """Close a store and open another on the same place; return it with the positions and records that it gave back."""
    store.close()
    again = factory()
    batches = list(again.open().batches)
    positions = [position for batch in batches for position in batch.positions]
    return again, positions, [record for batch in batches for record in batch.records]


def test_a_new_store_is_empty(any_factory: Factory) -> None:
    """The first open of a place finds no index and no records, and there is room."""
    store = any_factory()
    recovered = store.open()
    assert (recovered.index, recovered.index_position, list(recovered.batches)) == (None, 0, [])
    assert store.has_room()
    store.close()


def test_every_call_of_the_port_is_answered(any_factory: Factory) -> None:
    """Any store can be driven through a whole life by a broker that does not know which it is."""
    store = opened(any_factory)
    store.write(1, [message(1)], [])
    store.sync()
    store.seal()
    store.expect([1])
    store.write(2, [finish(2, 1)], [1])
    store.sync()
    store.save(3, b"index")
    assert store.collect(3) >= 0
    assert all(stretch.first <= stretch.last for stretch in store.stretches())
    assert store.make_room()
    store.close()


def test_what_was_synced_comes_back(factory: Factory) -> None:
    """Records come back in order, each with its position, and equal in every field."""
    store = opened(factory)
    records = [message(1), finish(2, 1), message(3, b""), message(4, bytes(range(256)))]
    store.write(1, records[:3], [])
    store.write(4, records[3:], [])
    store.sync()
    again, positions, found = reopened(store, factory)
    assert positions == [1, 2, 3, 4]
    assert found == records
    again.close()


def test_positions_may_jump(factory: Factory) -> None:
    """After an unclean stop counting goes on further up, and the gap survives."""
    store = opened(factory)
    store.write(1, [message(1)], [])
    store.write(70_000, [message(70_000), message(70_001)], [])
    store.sync()
    again, positions, _ = reopened(store, factory)
    assert positions == [1, 70_000, 70_001]
    again.adopt([[1, 70_000, 70_001]])
    assert again.recall([70_001, 1]) == [message(70_001), message(1)]
    again.close()


def test_the_newest_index_comes_back_with_the_records_after_it(factory: Factory) -> None:
    """`open` gives the last index that was saved and the records at and after its position only."""
    store = opened(factory)
    store.write(1, [message(1), message(2)], [])
    store.sync()
    store.save(2, b"first")
    store.write(3, [message(3)], [])
    store.sync()
    store.save(3, b"second" * 1000)
    store.close()
    again = factory()
    recovered = again.open()
    assert (recovered.index, recovered.index_position) == (b"second" * 1000, 3)
    assert [(list(batch.positions), batch.records) for batch in recovered.batches] == [([3], [message(3)])]
    again.close()


def test_an_index_may_cut_a_batch(factory: Factory) -> None:
    """When an index covers the first part of a batch, the rest of it comes back."""
    store = opened(factory)
    store.write(1, [message(position) for position in range(1, 8)], [])
    store.sync()
    store.save(4, b"index")
    again, positions, found = reopened(store, factory)
    assert positions == [4, 5, 6, 7]
    assert found == [message(position) for position in positions]
    again.close()


def test_an_index_may_be_saved_again_at_its_position(factory: Factory) -> None:
    """The later of two indexes of one position counts."""
    store = opened(factory)
    store.write(1, [message(1)], [])
    store.sync()
    for number in range(4):
        store.save(2, b"%d" % number)
    store.close()
    again = factory()
    assert again.open().index == b"3"
    again.close()


def test_messages_are_recalled_in_any_order_and_before_they_are_synced(any_factory: Factory) -> None:
    """`recall` gives published records by sequence, however they are asked for, also those just written."""
    store = opened(any_factory)
    assert store.recalls
    for first in range(1, 2000, 20):
        store.write(first, [message(position, b"x" * 50) for position in range(first, first + 20)], [])
    asked = [1, 2000, 1999, 7, 7, 1000, *range(300, 700)]
    assert store.recall(asked) == [message(position, b"x" * 50) for position in asked]
    store.sync()
    assert store.recall([]) == []
    store.close()


def test_messages_are_recalled_after_a_restart(factory: Factory) -> None:
    """What is live can be recalled after a restart, from before and after the index."""
    store = opened(factory)
    for first in range(1, 1000, 10):
        store.write(first, [message(position, b"y" * 200) for position in range(first, first + 10)], [])
        store.sync()
        if first == 501:
            store.save(501, b"")
    store.close()
    again = factory()
    list(again.open().batches)
    again.adopt([range(1, 500), range(500, 1001)])
    assert again.recall([999, 3, 500, 501]) == [message(position, b"y" * 200) for position in (999, 3, 500, 501)]
    again.close()


def test_collecting_keeps_what_is_live_and_frees_the_rest(factory: Factory) -> None:
    """After all but a few messages are gone, the place shrinks, and those few can still be recalled."""
    store = opened(factory)
    position = 1
    for _ in range(100):
        store.write(position, [message(one, b"z" * 200) for one in range(position, position + 20)], [])
        position += 20
    live = list(range(7, position, 400))
    gone = [one for one in range(1, position) if one not in set(live)]
    store.write(position, [finish(position, 1)], gone)
    store.sync()
    before = sum(stretch.bytes for stretch in store.stretches())
    for extra in (1, 2):
        store.save(position + extra, b"index")
    freed = store.collect(position + 1)
    assert freed > before / 2
    assert sum(stretch.bytes for stretch in store.stretches()) == before - freed
    assert sum(stretch.live_messages for stretch in store.stretches()) == len(live)
    assert store.recall(live) == [message(one, b"z" * 200) for one in live]
    store.close()
    again = factory()
    list(again.open().batches)
    again.adopt([live])
    assert again.recall(live) == [message(one, b"z" * 200) for one in live]
    again.close()


def test_nothing_after_the_floor_or_the_index_is_collected(factory: Factory) -> None:
    """History is kept as long as retention or a restart may need it, settled or not."""
    store = opened(factory)
    for position in range(1, 2001, 20):
        store.write(position, [message(one, b"z" * 200) for one in range(position, position + 20)], [])
    store.write(2001, [finish(2001, 1)], range(1, 2001))
    store.sync()
    assert store.collect(2001) == 0
    for _ in range(2):
        store.save(2002, b"index")
    assert store.collect(1) == 0
    assert [one for batch in store.read(1, 2001) for one in batch.positions] == list(range(1, 2002))
    assert store.collect(2001) > 0
    store.close()


def test_the_log_can_be_read_by_position(factory: Factory) -> None:
    """`read` gives the records from first to last, both included, also across batches and stretches."""
    store = opened(factory)
    for first in range(1, 3000, 30):
        store.write(first, [message(position, b"r" * 80) for position in range(first, first + 30)], [])
    store.sync()
    batches = list(store.read(95, 2011))
    assert [position for batch in batches for position in batch.positions] == list(range(95, 2012))
    assert batches[0].records[0] == message(95, b"r" * 80)
    assert list(store.read(5000, 6000)) == []
    stretches = store.stretches()
    assert [one.first for one in stretches[1:]] == [one.last + 1 for one in stretches[:-1]]
    assert (stretches[0].first, stretches[-1].last) == (1, 3000)
    store.close()


def test_a_place_has_one_store_at_a_time(factory: Factory) -> None:
    """A second store on the same place is refused while the first is open, and welcome after."""
    store = opened(factory)
    with pytest.raises(StoreInUse):
        factory().open()
    store.close()
    opened(factory).close()


def test_closing_twice_is_no_error(any_factory: Factory) -> None:
    """`close` may be called again."""
    store = opened(any_factory)
    store.close()
    store.close()
