"""Transactions: all of it or nothing, for each reason to refuse."""

import pytest

from penstock.engine.transactions import Outcome, Publish, Settle
from penstock.model.errors import BadRequest, NoObject, NotAssigned, PenstockError, QueueFull, TooLarge
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.model.names import QueueKey
from tests.engine.oracle import state_of
from tests.engine.rig import Rig, key


@pytest.fixture
def rig() -> Rig:
    """Return an engine with two messages in `q`."""
    rig = Rig(limits=Limits(channels_max=3, transaction_operations_max=4, transaction_bytes_max=10))
    rig.publish(b"1")
    rig.publish(b"2")
    return rig


def publish(body: bytes = b"m", channel: QueueKey | str = key()) -> Publish:  # noqa: B008  # a constant
    return Publish(channel, body, 4, None)


def transact(rig: Rig, *operations: Publish | Settle) -> list[int | None]:
    return rig.engine.transact(list(operations), rig.client, rig.now)


def refused(rig: Rig, error: type[PenstockError], *operations: Publish | Settle) -> None:
    """Check that a transaction is refused and changes nothing."""
    before, position = state_of(rig.engine, rig.now), rig.engine.effects.position
    with pytest.raises(error):
        transact(rig, *operations)
    assert (state_of(rig.engine, rig.now), rig.engine.effects.position) == (before, position)


class TestAll:
    """Transactions that happen."""

    def test_publishes_and_settlements(self, rig: Rig) -> None:
        """Everything happens, to queues and topics, and each publish has its sequence at its place."""
        listener = rig.listen()
        first, second = rig.taken(), rig.taken()
        sequences = transact(
            rig, publish(b"3"), Settle(first), publish(b"t", "t"), Settle(second, Outcome.REJECT, "bad")
        )

        assert sequences[1] is None
        assert sequences[3] is None
        assert rig.taken().sequence == sequences[0]
        assert rig.bodies(listener) == [b"t"]
        assert rig.taken("DLQ.q").headers["death-reason"] == "bad"

    @pytest.mark.parametrize("order", [1, -1])
    def test_what_is_finished_makes_room(self, rig: Rig, order: int) -> None:
        """In a full queue a message may be published with the settlement of another, in either order."""
        rig.engine.alter(key(), rig.now, {"max_length": 2})
        operations: list[Publish | Settle] = [publish(), Settle(rig.taken())]
        operations = operations[::order]
        transact(rig, *operations)

        assert rig.queue().length == 2

    def test_what_was_found_to_fit_is_published(self, rig: Rig) -> None:
        """A dead letter that an earlier publish makes takes neither the room of a later one nor its new queue."""
        rig.engine.alter(key(), rig.now, {"max_length": 2, "overflow": "dead-letter-oldest", "dead_letter": "full"})
        rig.queue("full", max_length=1)
        transact(rig, publish(), publish(channel=key("full")))

        assert (rig.queue().length, rig.queue("full").length) == (2, 2)

        rig.engine.alter(key(), rig.now, {"dead_letter": "graves"})
        transact(rig, publish(), publish(channel=key("third")))

        assert (rig.queue("graves").length, rig.queue("third").length) == (1, 1)

    def test_publishers_are_told_and_known(self, rig: Rig) -> None:
        """Stages are told as for any message, and the client counts as publisher."""
        transact(rig, Publish(key(), b"m", 4, rig.attributes(notify=["ready", "sync", "finish"], label=1)))
        persist = rig.flush().persist
        rig.drain()

        assert (rig.stages(1), [notice.label for notice in persist]) == (["ready", "finish"], [1])
        assert rig.client.number in rig.queue().publishers

    def test_a_duplicate_is_no_second_message(self, rig: Rig) -> None:
        """Within a transaction the dedup window holds, too."""
        said = rig.attributes(dedup_id="d")
        first, second = transact(rig, Publish(key(), b"x", 4, said), Publish(key(), b"y", 4, dict(said or {})))

        assert first == second

    def test_the_oldest_give_way(self, rig: Rig) -> None:
        """Where the oldest are dropped, a transaction drops them, too, but none of its own."""
        rig.engine.alter(key(), rig.now, {"max_length": 2, "overflow": "drop-oldest"})
        transact(rig, publish(b"3"), publish(b"4"))

        assert rig.drain() == [b"3", b"4"]


class TestNothing:
    """Transactions that are refused."""

    def test_too_many_operations(self, rig: Rig) -> None:
        """There is a limit to the operations."""
        refused(rig, TooLarge, *[publish(b"")] * 5)

    def test_too_many_bytes(self, rig: Rig) -> None:
        """There is a limit to the bodies together."""
        refused(rig, TooLarge, publish(b"123456"), publish(b"12345"))

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_a_lapsed_message(self, rig: Rig, outcome: Outcome) -> None:
        """A message whose lease has ended refuses the whole, though a late finish alone would succeed."""
        message = rig.taken()
        rig.wait(300.0)

        refused(rig, NotAssigned, publish(), Settle(message, outcome))

    def test_a_settled_message(self, rig: Rig) -> None:
        """A message that is settled is unknown."""
        message = rig.taken()
        rig.finish(message)

        refused(rig, NoObject, publish(), Settle(message))

    def test_a_message_twice(self, rig: Rig) -> None:
        """A message can be settled once."""
        message = rig.taken()

        refused(rig, NotAssigned, Settle(message), publish(), Settle(message, Outcome.FAIL))

    def test_a_missing_channel(self, rig: Rig) -> None:
        """Without auto_create a missing queue or topic refuses the whole."""
        rig.engine.channels.auto_create = False

        refused(rig, NoObject, publish(), publish(channel=key("none")))
        refused(rig, NoObject, publish(), publish(channel="none"))

    @pytest.mark.parametrize(
        ("channel", "error"),
        [("t.*", BadRequest), (key(f"temp.{'0' * 32}.answers"), NoObject)],
        ids=["pattern", "gone"],
    )
    def test_a_channel_that_is_not_made(self, rig: Rig, channel: QueueKey | str, error: type[PenstockError]) -> None:
        """A topic that would be a pattern, and the temporary queue of a connection that has gone."""
        refused(rig, error, publish(), publish(channel=channel))

    def test_too_many_channels(self, rig: Rig) -> None:
        """If not all new channels may be made, none is."""
        refused(rig, TooLarge, publish(channel=key("a")), publish(channel="b"), publish(channel=key("c")))

        transact(rig, publish(channel=key("a")), publish(channel=key("a")), publish(channel="b"))
        assert len(rig.engine.channels.queues) == 2

    @pytest.mark.parametrize("settings", [{"max_length": 3}, {"max_bytes": 3}])
    def test_a_full_queue(self, rig: Rig, settings: dict[str, int]) -> None:
        """A queue that cannot take all of it refuses the whole."""
        rig.engine.alter(key(), rig.now, settings)

        refused(rig, QueueFull, publish(channel="t"), publish(), publish())
        transact(rig, publish())

    @pytest.mark.parametrize("settings", [{"max_length": 2}, {"max_bytes": 2}])
    def test_full_of_what_is_assigned(self, rig: Rig, settings: dict[str, int]) -> None:
        """Where the oldest give way, assigned messages do not."""
        rig.engine.alter(key(), rig.now, {**settings, "overflow": "drop-oldest"})
        rig.taken()

        refused(rig, QueueFull, publish(), publish())

    def test_a_grave_that_is_full(self, rig: Rig) -> None:
        """A dead letter of the same transaction does not stand in the way of its publishes."""
        rig.queue("DLQ.q", max_length=1)
        messages: list[Message] = [rig.taken()]
        transact(rig, Settle(messages[0], Outcome.REJECT), publish(b"x", key("DLQ.q")))

        assert rig.queue("DLQ.q").length == 2
