"""The store in memory keeps messages for as long as they are needed, and nothing over a restart; it says so."""

from penstock.store.memory import Memory


def test_nothing_survives() -> None:
    """What was written and saved is not there after another open; the engine is told beforehand."""
    store = Memory()
    store.open()
    store.write(1, [(1, 1, 1.0, 1, 1, 4, None, b"body")], [])
    store.sync()
    store.save(2, b"state")
    store.close()
    recovered = store.open()
    assert (recovered.index, list(recovered.batches)) == (None, [])
    assert (store.recalls, store.durable) == (True, False)


def test_messages_that_are_gone_leave_memory() -> None:
    """Only what is still needed is kept."""
    store = Memory()
    store.open()
    record = (1, 1, 1.0, 1, 1, 4, None, b"body")
    store.write(1, [record, record], [])
    store.write(3, [(3, 1, 1.0, 1, 1, 1, None, b"")], [1])
    assert store.recall([2]) == [record]
    assert list(store._records) == [2]
