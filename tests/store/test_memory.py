"""The store in memory keeps nothing, and says so."""

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
    assert (store.recalls, store.durable) == (False, False)
