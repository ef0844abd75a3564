"""Request and reply over STOMP: temporary queues, made by SUBSCRIBE or by a `reply-to`, private and short-lived."""

import re
from pathlib import Path

from penstock.protocols.stomp.temporary import remove_leftovers
from penstock.store.journal.journal import Journal
from tests.protocols.stomp.peers import Peer, World, frame
from tests.stomp_wire import Frame


async def asked(world: World, *, subscribed: bool, name: str = "answers") -> tuple[Peer, Peer, Frame]:
    """Return who asks, who answers, and the question."""
    asker, answerer = world.peer(), world.peer()
    await answerer.take_from("/queue/questions", ack="auto")
    if subscribed:
        await asker.take_from(f"/temp-queue/{name}", ident="mine", ack="auto")
    await asker.publish("/queue/questions", "?", headers=[f"reply-to:/temp-queue/{name}"])
    return asker, answerer, answerer.take()


def temporary(world: World) -> list[str]:
    """Return the names of the temporary queues that there are."""
    return [key.name for key in world.runtime.engine.channels.queues if key.name.startswith("temp.")]


async def test_who_has_subscribed_gets_its_answers_there(world: World) -> None:
    """Under its own id; the one who answers sees a name that nobody could guess."""
    asker, answerer, question = await asked(world, subscribed=True)
    assert re.fullmatch(r"/queue/temp\.[0-9a-f]{32}\.answers", question.headers["reply-to"])
    await answerer.publish(question.headers["reply-to"], "!")
    answer = asker.take()
    assert (answer.body, answer.headers["subscription"]) == (b"!", "mine")
    assert answer.headers["destination"] == "/temp-queue/answers"


async def test_who_only_names_it_is_subscribed_by_that(world: World) -> None:
    """As programs of RabbitMQ expect: the subscription is called like the destination, and acknowledges by itself."""
    asker, answerer, question = await asked(world, subscribed=False)
    await answerer.publish(question.headers["reply-to"], "!", "!!")
    answers = asker.messages()
    assert [one.body for one in answers] == [b"!", b"!!"]
    assert {one.headers["subscription"] for one in answers} == {"/temp-queue/answers"}
    assert {one.headers["destination"] for one in answers} == {"/temp-queue/answers"}
    assert not any("ack" in one.headers for one in answers)
    assert world.length(temporary(world)[0]) == 0
    await asker.publish("/queue/questions", "again", headers=["reply-to:/temp-queue/answers"])
    assert answerer.take().headers["reply-to"] == question.headers["reply-to"]


async def test_the_id_of_a_named_one_may_have_been_taken(world: World) -> None:
    """A program that subscribed under that very id, even to something else, keeps its subscription."""
    asker = world.peer()
    for ident, destination in (("/temp-queue/a", "/temp-queue/a"), ("/temp-queue/b", "/queue/b")):
        await asker.take_from(destination, ident=ident, ack="auto")
        await asker.publish("/queue/questions", "?", headers=[f"reply-to:{ident}"])
        await asker.publish(destination, "x")
        assert asker.take().headers["subscription"] == ident
        await asker.say("UNSUBSCRIBE", f"id:{ident}")
        await asker.publish(destination, "y")
        assert (asker.frames, asker.is_open) == ([], True)
    assert len(temporary(world)) == 2


async def test_a_connection_may_send_to_its_own(world: World) -> None:
    """By the name that it knows it by."""
    peer = world.peer()
    await peer.take_from("/temp-queue/a", ack="auto")
    await peer.publish("/temp-queue/a", "x")
    assert peer.bodies() == ["x"]


async def test_two_connections_have_two_of_one_name(world: World) -> None:
    """Each knows its own, and nobody sees the other's answers."""
    first = await asked(world, subscribed=True)
    await first[1].say("DISCONNECT")
    second = await asked(world, subscribed=False)
    for _, _, question in (first, second):
        await second[1].publish(question.headers["reply-to"], question.headers["reply-to"])
    for asker, _, question in (first, second):
        assert asker.bodies() == [question.headers["reply-to"]]


async def test_nobody_else_may_take_from_it(world: World) -> None:
    """Whoever knows the name may answer, not listen; neither subscribe nor browse."""
    _, _, question = await asked(world, subscribed=True)
    for lines in ((), ("browser:true",)):
        thief = world.peer()
        await thief.take_from(question.headers["reply-to"], *lines)
        assert "another connection" in thief.error().body.decode()


async def test_its_owner_may_use_the_name_that_others_see(world: World) -> None:
    """It is the same queue."""
    asker, answerer, question = await asked(world, subscribed=False)
    await asker.say("UNSUBSCRIBE", "id:/temp-queue/answers")
    await asker.take_from(question.headers["reply-to"], ack="auto")
    await answerer.publish(question.headers["reply-to"], "!")
    assert asker.bodies() == ["!"]


async def test_it_goes_with_its_connection_and_late_answers_are_dropped(world: World) -> None:
    """Without an error for who answers, also in a transaction; nothing is made by the answer."""
    for leave in ("vanish", "disconnect"):
        asker, answerer, question = await asked(world, subscribed=True)
        reply_to = question.headers["reply-to"]
        await answerer.publish(reply_to, "in time", headers=["persistent:false"])
        await answerer.say("BEGIN", "transaction:t")
        await answerer.publish(reply_to, "in a transaction", headers=["transaction:t"])
        await answerer.publish("/queue/log", "answered", headers=["transaction:t"])
        if leave == "vanish":
            await asker.vanish()
        else:
            await asker.say("DISCONNECT")
        assert temporary(world) == []
        await answerer.say("SEND", f"destination:{reply_to}", "receipt:r", body=b"late")
        await answerer.say("COMMIT", "transaction:t", "receipt:c")
        assert [one.headers["receipt-id"] for one in answerer.frames] == ["r", "c"]
        assert temporary(world) == []
        await answerer.say("DISCONNECT")
    assert world.length("log") == 2


async def test_an_answer_in_a_transaction_arrives(world: World) -> None:
    """With the acknowledgement of the question, or neither."""
    asker, answerer, question = await asked(world, subscribed=False)
    await answerer.say("BEGIN", "transaction:t")
    await answerer.publish(question.headers["reply-to"], "!", headers=["transaction:t"])
    await answerer.say("COMMIT", "transaction:t")
    assert asker.bodies() == ["!"]


async def test_what_was_not_worked_on_when_it_goes_is_gone(world: World) -> None:
    """Nobody would look for dead letters of it."""
    asker, answerer, question = await asked(world, subscribed=False)
    await asker.say("UNSUBSCRIBE", "id:/temp-queue/answers")
    await asker.take_from("/temp-queue/answers", ident="2")
    await answerer.publish(question.headers["reply-to"], "1", "2")
    await asker.say("NACK", f"id:{asker.take().headers['ack']}", "requeue:false")
    await asker.vanish()
    assert not any("temp." in key.name for key in world.runtime.engine.channels.queues)


async def test_a_temporary_queue_that_was_deleted_is_made_again(world: World) -> None:
    """An operator may purge what he likes; the next question brings it back."""
    asker, answerer, _ = await asked(world, subscribed=False)
    engine = world.runtime.engine
    key = next(key for key in engine.channels.queues if key.name.startswith("temp."))
    engine.delete(key, world.runtime.now())
    await asker.publish("/queue/questions", "?", headers=["reply-to:/temp-queue/answers"])
    await answerer.publish(answerer.take().headers["reply-to"], "!")
    assert asker.bodies() == ["!"]
    engine.delete(next(key for key in engine.channels.queues if key.name.startswith("temp.")), world.runtime.now())
    await asker.say("DISCONNECT", "receipt:r")
    assert asker.take().headers["receipt-id"] == "r"


async def test_other_replies_are_left_as_they_are(world: World) -> None:
    """`reply-to` may name any queue or topic, or something of another world."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    for reply_to in ("/queue/b", "/topic/b", "/temp-queue/", "mailto:somebody"):
        await peer.publish("/queue/a", "x", headers=[f"reply-to:{reply_to.replace(':', chr(92) + 'c')}"])
        assert peer.take().headers["reply-to"] == reply_to
    assert temporary(world) == []


async def test_answers_may_go_to_a_topic(world: World) -> None:
    """A question may be published on a topic as well, with a temporary queue for the answers."""
    asker, answerer = world.peer(), world.peer()
    await answerer.take_from("/topic/questions", ack="auto")
    await asker.publish("/topic/questions", "?", headers=["reply-to:/temp-queue/a"])
    await answerer.publish(answerer.take().headers["reply-to"], "!")
    assert asker.bodies() == ["!"]


async def test_a_connection_may_have_so_many(world: World) -> None:
    """1,000, since each question may name another one and they go with the connection only."""
    peer = world.peer()
    for number in range(1000):
        peer.tell("SEND", "destination:/queue/q", f"reply-to:/temp-queue/{number}")
    await world.quiet()
    assert peer.is_open
    await peer.publish("/queue/q", "x", headers=["reply-to:/temp-queue/one-too-many"])
    assert peer.error().headers["message"] == "TooLarge"


async def test_after_a_crash_of_the_broker_they_are_removed_at_start(tmp_path: Path) -> None:
    """Their connections are gone, and nobody else could ever use them."""
    world = World(Journal(tmp_path))
    await world.start()
    peer = world.peer()
    peer.session.receive(frame("SUBSCRIBE", "id:1", "destination:/temp-queue/a"))
    await peer.receipt_of("SEND", "destination:/temp-queue/a", body=b"x")
    await world.runtime.stop()  # the session never learns of it, as in a crash

    world = World(Journal(tmp_path))
    await world.start()
    assert len(temporary(world)) == 1
    assert remove_leftovers(world.runtime.engine, world.runtime.now()) == 1
    assert temporary(world) == []
    await world.stop()
