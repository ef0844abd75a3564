"""What a store promises, whatever it is made of, as classes whose tests run against a store of somebody's own.

    class TestMine(DurableRecallingStore):
        @pytest.fixture
        def factory(self, tmp_path: Path) -> Factory:
            return lambda: Mine(tmp_path / "mine.db")

A factory returns a store on a place that is new in each test; called again, it returns another on the same place, as
after a restart. What no test can bring about from outside, such as a write that fails, remains to be tested beside.
"""

import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.model.errors import StoreInUse
from penstock.model.records import Attribute, Kind, Record
from penstock.store.port import Recovered, Store

Factory = Callable[[], Store]
PATIENCE_SECONDS = 10.0


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


def messages(first: int, last: int, body: bytes = b"body") -> list[Record]:
    """Return messages from `first` to `last`, both included."""
    return [message(position, body) for position in range(first, last + 1)]


def finish(sequence: int) -> Record:
    """Return the end of a message."""
    return (int(Kind.FINISH), 1, 2.0, sequence, 3, 1, None, b"")


@contextmanager
def opened(factory: Factory) -> Iterator[Store]:
    """Give a store that was opened, its records read, and told that nothing is live."""
    store = factory()
    list(store.open().batches)
    store.adopt([])
    try:
        yield store
    finally:
        store.close()


def recovered(factory: Factory) -> tuple[Store, Recovered]:
    """Open a place again; a server may take a moment to see that whoever had it was killed."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        store = factory()
        try:
            return store, store.open()
        except StoreInUse:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextmanager
def reopened(factory: Factory) -> Iterator[tuple[Store, list[int], list[Record]]]:
    """Open a place again; give the store with the positions and records that it gives back."""
    store, found = recovered(factory)
    try:
        batches = list(found.batches)
        positions = [position for batch in batches for position in batch.positions]
        yield store, positions, [record for batch in batches for record in batch.records]
    finally:
        store.close()


def killed(work: Callable[[], None]) -> None:
    """Do work in a process that ends by SIGKILL, as if the power had gone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads about: the child uses none of them
        child = os.fork()
    if not child:
        try:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:  # noqa: BLE001  # whatever it is must not go on to run the parent's tests
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "the traceback stands on stderr"


class AnyStore:
    """What holds for each store, also for one that keeps nothing."""

    def test_a_new_store_is_empty(self, factory: Factory) -> None:
        """The first open of a place finds no index and no records, and there is room."""
        store, found = recovered(factory)
        assert (found.index, found.index_position, list(found.batches)) == (None, 0, [])
        assert store.has_room()
        store.close()

    def test_every_call_of_the_port_is_answered(self, factory: Factory) -> None:
        """Any store can be driven through a whole life by a broker that does not know which it is."""
        with opened(factory) as store:
            store.write(1, [message(1)], [])
            store.sync()
            store.seal()
            store.expect([1])
            store.write(2, [finish(1)], [1])
            store.sync()
            store.save(3, b"index")
            assert store.collect(3) >= 0
            assert all(stretch.first <= stretch.last for stretch in store.stretches())
            assert store.make_room()

    def test_closing_twice_is_no_error(self, factory: Factory) -> None:
        """`close` may be called again."""
        with opened(factory) as store:
            store.close()

    def test_what_a_store_says_of_itself_is_tested(self, factory: Factory) -> None:
        """A store that calls itself durable, or says that it recalls, is held to that."""
        store = factory()
        assert isinstance(self, DurableStore) is store.durable
        assert isinstance(self, RecallingStore) is store.recalls
        assert isinstance(self, DurableRecallingStore) is (store.durable and store.recalls)


class DurableStore(AnyStore):
    """What is promised by a store that keeps what it is given."""

    def test_what_was_synced_comes_back(self, factory: Factory) -> None:
        """Records come back in order, each with its position, and equal in every field."""
        records = [message(1), finish(1), message(3, b""), message(4, bytes(range(256)))]
        with opened(factory) as store:
            store.write(1, records[:3], [])
            store.write(4, records[3:], [])
            store.sync()
        with reopened(factory) as (_, positions, found):
            assert positions == [1, 2, 3, 4]
            assert found == records

    def test_what_was_synced_survives_a_kill(self, factory: Factory) -> None:
        """All of it, whole; of what came after it some whole batches may be there, in order and without holes."""

        def work() -> None:
            store = factory()
            list(store.open().batches)
            store.write(1, messages(1, 20), [])
            store.sync()
            store.write(21, messages(21, 40), [])
            store.write(41, messages(41, 60), [])

        killed(work)
        with reopened(factory) as (_, positions, found):
            assert positions in [list(range(1, end + 1)) for end in (20, 40, 60)]
            assert found == messages(1, len(positions))

    def test_an_index_that_was_saved_survives_a_kill(self, factory: Factory) -> None:
        """With the records that it covers, and in front of what is written afterwards."""

        def work() -> None:
            store = factory()
            list(store.open().batches)
            store.write(1, messages(1, 20), [])
            store.sync()
            store.save(21, b"index")

        killed(work)
        store, found = recovered(factory)
        assert (found.index, found.index_position, list(found.batches)) == (b"index", 21, [])
        store.adopt([range(1, 21)])
        store.write(21, [message(21)], [])
        store.sync()
        store.close()
        with reopened(factory) as (_, positions, _):
            assert positions == [21]

    def test_positions_may_jump(self, factory: Factory) -> None:
        """After an unclean stop counting goes on further up, and the gap survives."""
        with opened(factory) as store:
            store.write(1, [message(1)], [])
            store.write(70_000, messages(70_000, 70_001), [])
            store.sync()
        with reopened(factory) as (_, positions, found):
            assert positions == [1, 70_000, 70_001]
            assert found == [message(1), *messages(70_000, 70_001)]

    def test_the_newest_index_comes_back_with_the_records_after_it(self, factory: Factory) -> None:
        """`open` gives the last index that was saved and the records at and after its position only."""
        with opened(factory) as store:
            store.write(1, messages(1, 2), [])
            store.sync()
            store.save(2, b"first")
            store.write(3, [message(3)], [])
            store.sync()
            store.save(3, b"second" * 1000)
        store, found = recovered(factory)
        assert (found.index, found.index_position) == (b"second" * 1000, 3)
        assert [(list(batch.positions), batch.records) for batch in found.batches] == [([3], [message(3)])]
        store.close()

    def test_an_index_may_cut_a_batch(self, factory: Factory) -> None:
        """When an index covers the first part of a batch, the rest of it comes back."""
        with opened(factory) as store:
            store.write(1, messages(1, 7), [])
            store.sync()
            store.save(4, b"index")
        with reopened(factory) as (_, positions, found):
            assert positions == [4, 5, 6, 7]
            assert found == messages(4, 7)

    def test_an_index_may_be_saved_again_at_its_position(self, factory: Factory) -> None:
        """The later of two indexes of one position counts."""
        with opened(factory) as store:
            store.write(1, [message(1)], [])
            store.sync()
            for number in range(4):
                store.save(2, b"%d" % number)
        store = factory()
        assert store.open().index == b"3"
        store.close()

    def test_an_index_may_be_saved_beside_a_batch(self, factory: Factory) -> None:
        """By another thread, between a write and its sync, as the broker does."""
        with opened(factory) as store:
            store.write(1, [message(1)], [])
            store.sync()
            store.write(2, [message(2)], [])
            saving = threading.Thread(target=store.save, args=(2, b"index"))
            saving.start()
            saving.join()
            store.sync()
        with reopened(factory) as (_, positions, found):
            assert (positions, found) == ([2], [message(2)])

    def test_a_place_has_one_store_at_a_time(self, factory: Factory) -> None:
        """A second store on the same place is refused while the first is open, and welcome after."""
        with opened(factory), pytest.raises(StoreInUse):
            factory().open()
        with opened(factory):
            pass


class RecallingStore(AnyStore):
    """What is promised by a store that gives messages back one by one."""

    def test_messages_are_recalled_in_any_order_and_before_they_are_synced(self, factory: Factory) -> None:
        """`recall` gives published records by sequence, however they are asked for, also those just written."""
        with opened(factory) as store:
            for first in range(1, 2000, 20):
                store.write(first, messages(first, first + 19, b"x" * 50), [])
            asked = [1, 2000, 1999, 7, 7, 1000, *range(300, 700)]
            assert store.recall(asked) == [message(position, b"x" * 50) for position in asked]
            store.sync()
            assert store.recall([]) == []

    def test_messages_are_recalled_while_others_are_written(self, factory: Factory) -> None:
        """By another thread than the one that writes and syncs."""
        problems: list[object] = []
        over = threading.Event()

        def recall(store: Store) -> None:
            while not over.is_set() and not problems:
                try:
                    if store.recall([3, 20, 1]) != [message(3), message(20), message(1)]:
                        problems.append("another message came back")
                except Exception as error:  # noqa: BLE001  # the thread has to end, and the test to say why
                    problems.append(error)

        with opened(factory) as store:
            store.write(1, messages(1, 20), [])
            store.sync()
            reading = threading.Thread(target=recall, args=(store,))
            reading.start()
            for first in range(21, 2000, 20):
                store.write(first, messages(first, first + 19), [])
                store.sync()
            over.set()
            reading.join()
        assert not problems


class DurableRecallingStore(DurableStore, RecallingStore):
    """What is promised by a store that keeps messages and gives them back one by one."""

    def test_messages_are_recalled_after_a_restart(self, factory: Factory) -> None:
        """What is live can be recalled after a restart, from before and after the index."""
        with opened(factory) as store:
            for first in range(1, 1000, 10):
                store.write(first, messages(first, first + 9, b"y" * 200), [])
                store.sync()
                if first == 501:
                    store.save(501, b"")
        with reopened(factory) as (store, _, _):
            store.adopt([range(1, 500), range(500, 1001)])
            assert store.recall([999, 3, 500, 501]) == [message(one, b"y" * 200) for one in (999, 3, 500, 501)]

    def test_what_the_index_does_not_cover_is_still_there_after_a_kill(self, factory: Factory) -> None:
        """Whoever starts from the newest index may ask for all that was live as of that index."""

        def work() -> None:
            store = factory()
            list(store.open().batches)
            store.adopt([])
            store.write(1, messages(1, 20), [])
            store.sync()
            store.write(21, [finish(7)], range(1, 20))
            store.sync()
            store.save(21, b"index")  # of the state before: it was taken while these were on their way
            store.collect(22)

        killed(work)
        with reopened(factory) as (store, positions, _):
            assert positions == [21]
            store.adopt([range(1, 21)])
            assert store.recall(range(1, 21)) == messages(1, 20)


class CollectingStore(DurableRecallingStore):
    """What is promised by a store that keeps history, tells of it, and gives room back."""

    def test_collecting_keeps_what_is_live_and_frees_the_rest(self, factory: Factory) -> None:
        """After all but a few messages are gone, the place shrinks, and those few can still be recalled."""
        with opened(factory) as store:
            position = 1
            for _ in range(100):
                store.write(position, messages(position, position + 19, b"z" * 200), [])
                position += 20
            live = list(range(7, position, 400))
            gone = [one for one in range(1, position) if one not in set(live)]
            store.write(position, [finish(1)], gone)
            store.sync()
            before = sum(stretch.bytes for stretch in store.stretches())
            for extra in (1, 2):
                store.save(position + extra, b"index")
            freed = store.collect(position + 1)
            assert freed > before / 2
            assert sum(stretch.bytes for stretch in store.stretches()) == before - freed
            assert sum(stretch.live_messages for stretch in store.stretches()) == len(live)
            assert store.recall(live) == [message(one, b"z" * 200) for one in live]
        with reopened(factory) as (store, _, _):
            store.adopt([live])
            assert store.recall(live) == [message(one, b"z" * 200) for one in live]

    def test_nothing_after_the_floor_or_the_index_is_collected(self, factory: Factory) -> None:
        """History is kept as long as retention or a restart may need it, settled or not."""
        with opened(factory) as store:
            for position in range(1, 2001, 20):
                store.write(position, messages(position, position + 19, b"z" * 200), [])
            store.write(2001, [finish(1)], range(1, 2001))
            store.sync()
            assert store.collect(2001) == 0
            for _ in range(2):
                store.save(2002, b"index")
            assert store.collect(1) == 0
            assert [one for batch in store.read(1, 2001) for one in batch.positions] == list(range(1, 2002))
            assert store.collect(2001) > 0

    def test_the_log_can_be_read_by_position(self, factory: Factory) -> None:
        """`read` gives the records from first to last, both included, also across batches and stretches."""
        with opened(factory) as store:
            for first in range(1, 3000, 30):
                store.write(first, messages(first, first + 29, b"r" * 80), [])
            store.sync()
            batches = list(store.read(95, 2011))
            assert [position for batch in batches for position in batch.positions] == list(range(95, 2012))
            assert batches[0].records[0] == message(95, b"r" * 80)
            assert list(store.read(5000, 6000)) == []
            stretches = store.stretches()
            assert [one.first for one in stretches[1:]] == [one.last + 1 for one in stretches[:-1]]
            assert (stretches[0].first, stretches[-1].last) == (1, 3000)
