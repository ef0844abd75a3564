"""Collecting while an index is being saved: what it names stays on the disk until a later one does not."""

from penstock.model.names import QueueKey
from tests.crash.simulated_disk import SimulatedDisk
from tests.simulation.driver import Driver, ManualTime

KEY = QueueKey("orders", frozenset())


def test_what_an_index_names_is_not_collected_before_the_next() -> None:
    """Messages that are settled after the state was taken, and before it is saved, are needed to start from it."""
    time = ManualTime()
    driver = Driver(SimulatedDisk(), time, 1)
    engine = driver.engine
    client = engine.clients.connect(driver.now(), b"client")
    for _ in range(40):
        engine.publish(KEY, b"x" * 1000, driver.now(), client, 4, None)
        driver.commit()
    queue = engine.channels.queues[KEY]
    messages = [queue.take(client, driver.now(), None) for _ in range(40)]
    driver.dump()
    driver.save()
    driver.dump()
    for message in messages:
        assert message is not None
        queue.finish(message, driver.now())
    driver.commit()
    driver.save()
    driver.collect()
    again = Driver(SimulatedDisk(driver.kill()), time, 2)
    assert again.engine.channels.queues[KEY].length == 0
    for _ in range(2):
        again.dump()
        again.save()
    again.collect()
    assert len([path for path in again.disk.files if path.endswith(".seg")]) <= 2
