"""Connecting: versions, logins, limits before and after, heart-beats, and what a wrong frame is answered by."""

from collections.abc import Callable
from math import inf

import pytest

from penstock.model.access import Access, Action
from penstock.model.errors import PermissionDenied
from tests.protocols.stomp.peers import World, frame


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (("accept-version:1.0,1.1,1.2",), "1.2"),
        (("accept-version:1.1,1.0",), "1.1"),
        (("accept-version:1.3, 1.1",), "1.1"),
        (("accept-version:1.0",), "1.0"),
        ((), "1.0"),
    ],
)
async def test_the_highest_version_of_both_is_spoken(world: World, offered: tuple[str, ...], spoken: str) -> None:
    """CONNECTED names the version; a peer that offers none speaks 1.0."""
    for command in ("CONNECT", "STOMP"):
        peer = world.peer(connect=False)
        peer.tell(command, *offered)
        answer = peer.take()
        assert (answer.command, answer.headers["version"]) == ("CONNECTED", spoken)
        assert answer.headers["server"].startswith("Penstock/")
        assert len(answer.headers["session"]) == 32


async def test_a_version_that_nobody_speaks_is_refused_by_a_list(world: World) -> None:
    """The ERROR names the versions that there are."""
    peer = world.peer(connect=False)
    peer.tell("CONNECT", "accept-version:2.0")
    assert peer.error().headers["version"] == "1.0,1.1,1.2"


@pytest.mark.parametrize("host", ["/", "", "localhost", "broker.example"])
async def test_any_host_is_taken(world: World, host: str) -> None:
    """There is one virtual host, whatever a program calls it."""
    peer = world.peer(connect=False)
    peer.tell("CONNECT", "accept-version:1.2", f"host:{host}")
    assert peer.take().command == "CONNECTED"


@pytest.mark.parametrize(
    ("asked", "expected", "sent"),
    [
        ("0,0", 0, 0),
        ("1000,0", 1000, 0),
        ("0,500", 0, 500),
        ("10,20", 200, 200),
        ("4000, 3000", 4000, 3000),
    ],
)
async def test_heart_beats_are_agreed_on(world: World, asked: str, expected: int, sent: int) -> None:
    """CONNECTED says what the broker sends and what it wants, never below the shortest interval."""
    peer = world.peer(connect=False)
    peer.tell("CONNECT", "accept-version:1.2", f"heart-beat:{asked}")
    assert peer.take().headers["heart-beat"] == f"{sent},{expected}"


async def test_heart_beats_are_sent_whatever_else_is_sent(world: World) -> None:
    """A beat goes out each half interval although messages go out all the time: peers count bytes, or beats alone."""
    peer = world.peer("1.2", "heart-beat:0,1000")
    await peer.take_from("/topic/t", ack="auto")
    for _ in range(80):
        await peer.publish("/topic/t", "x")
        await world.wait(0.125)
    assert 19 <= peer.beats <= 20


async def test_a_silent_peer_is_given_up_and_a_talking_one_is_not(world: World) -> None:
    """A peer has twice the interval that was agreed on; a line end is enough to be heard."""
    silent, beating = (world.peer("1.2", "heart-beat:2000,0") for _ in range(2))
    for _ in range(3):
        await world.wait(1.0)
        beating.session.receive(b"\n")
    assert silent.is_open, "it was given up before the grace was over"
    for _ in range(4):
        await world.wait(1.0)
        beating.session.receive(b"\n")
    assert silent.error().headers["message"] == "HeartBeat"
    assert beating.is_open


@pytest.mark.parametrize(("asked", "seconds"), [("0,0", inf), ("0,1000", 0.5), ("3000,0", 3.0), ("3000,1000", 0.5)])
async def test_a_session_wants_its_turn_when_something_may_be_due(world: World, asked: str, seconds: float) -> None:
    """For its next heart-beat, or in time to see that the peer is silent; otherwise never."""
    peer = world.peer("1.2", f"heart-beat:{asked}")
    await world.quiet()
    assert peer.turns_at - world.clock.seconds == seconds


async def test_version_1_0_has_no_heart_beats(world: World) -> None:
    """A client of 1.0 is neither beaten to nor given up, nor told of any."""
    peer = world.peer(connect=False)
    peer.tell("CONNECT", "heart-beat:1000,1000")
    assert "heart-beat" not in peer.take().headers
    for _ in range(10):
        await world.wait(1.0)
    assert (peer.beats, peer.is_open) == (0, True)


@pytest.mark.parametrize("text", ["1", "a,b", "1,2,3", "-1,0", "1.5,0", "²,0", "1234567890,0", ""])
async def test_a_heart_beat_that_makes_no_sense_is_refused(world: World, text: str) -> None:
    """Numbers that cannot be kept are not agreed on."""
    peer = world.peer(connect=False)
    peer.tell("CONNECT", "accept-version:1.2", f"heart-beat:{text}")
    assert "heart-beat" in peer.error().body.decode()


async def test_a_login_that_does_not_come_ends_the_connection(world: World) -> None:
    """A half-open login is closed in time, though it may trickle bytes all the while."""
    peer = world.peer(connect=False)
    for _ in range(10):
        peer.session.receive(b"\n")
        assert peer.is_open
        await world.wait(1.0)
    assert "10 seconds" in peer.error().body.decode()


async def test_a_stranger_may_stop_reading(world: World) -> None:
    """There is nothing to hold back yet."""
    peer = world.peer(connect=False)
    peer.session.hold_back()
    peer.session.go_on()
    peer.tell("CONNECT", "accept-version:1.2")
    assert peer.take().command == "CONNECTED"


async def test_a_refused_login_is_told_and_closed(world: World) -> None:
    """Whoever may not come in learns so, and nothing of what it sent ahead is done."""
    world.access = lambda user: PermissionDenied(f"there is no user {user!r}", key="login")
    peer = world.peer(connect=False)
    peer.session.receive(
        frame("CONNECT", "accept-version:1.2", "login:eve", "passcode:x")
        + frame("SEND", "destination:/queue/a", body=b"x")
    )
    await world.quiet()
    assert peer.error().headers["message"] == "PermissionDenied"
    assert not world.runtime.engine.channels.queues


async def test_what_is_sent_ahead_of_the_answer_is_done_after_it(world: World) -> None:
    """A program that does not wait for CONNECTED is served in order, also when looking at its secret takes time."""
    later = []
    world.login = lambda user, secret, then: later.append(then)  # type: ignore[method-assign]
    peer = world.peer(connect=False)
    peer.session.receive(frame("CONNECT", "accept-version:1.2") + frame("SEND", "destination:/queue/a", "receipt:1"))
    peer.tell("SEND", "destination:/queue/a", "receipt:2")
    assert peer.frames == []
    later[0](Access.to_all("guest"))
    assert [one.headers.get("receipt-id") for one in peer.frames] == [None, "1", "2"]
    assert world.length("a") == 2


async def test_a_login_may_be_looked_at_for_long(world: World) -> None:
    """When many log in at once each waits for its turn; the peer has done its part. One that has gone is not let in."""
    later = []
    world.login = lambda user, secret, then: later.append(then)  # type: ignore[method-assign]
    patient, gone = world.peer(connect=False), world.peer(connect=False)
    for peer in (patient, gone):
        peer.tell("CONNECT", "accept-version:1.2")
    await world.wait(60.0)
    await gone.vanish()
    for then in later:
        then(Access.to_all("guest"))
    assert patient.take().command == "CONNECTED"
    assert len(list(world.runtime.engine.clients)) == 1


@pytest.mark.parametrize(("version", "user"), [("1.0", "ann"), ("1.2", " ann")])
async def test_spaces_in_a_login_go_by_version(world: World, version: str, user: str) -> None:
    """1.0 writes them behind its colons, and later versions mean them."""
    users = []

    def login(user: str | None, secret: str | None, then: Callable[[Access], None]) -> None:
        users.append(user)
        then(Access.to_all(user or ""))

    world.login = login  # type: ignore[method-assign]
    world.peer(version, "login: ann")
    assert users == [user]


async def test_little_can_be_sent_ahead_of_the_answer(world: World) -> None:
    """A stranger cannot fill the memory while its secret is looked at."""
    world.login = lambda user, secret, then: None  # type: ignore[method-assign]
    peer = world.peer(connect=False)
    peer.tell("CONNECT", "accept-version:1.2")
    for _ in range(5):
        peer.session.receive(b"x" * 2**14)
    assert peer.error().headers["message"] == "TooLarge"


async def test_permissions_hold_for_each_channel(world: World) -> None:
    """Who may publish on one channel and consume from another is refused the reverse, by name and by pattern."""
    world.access = lambda user: Access(user, {Action.PUBLISH: ["in.*"], Action.CONSUME: ["out.*"]})
    allowed = world.peer()
    await allowed.publish("/queue/in.a", "x")
    await allowed.publish("/topic/in.a", "x")
    await allowed.take_from("/queue/out.a")
    await allowed.take_from("/topic/out.*", ident="2")
    await allowed.take_from("/temp-queue/answers", ident="3")
    await allowed.publish("/queue/in.a", "x", headers=["reply-to:/temp-queue/more-answers"])
    assert allowed.is_open
    for refused in (
        ("SEND", "destination:/queue/out.a"),
        ("SEND", "destination:/topic/out.a"),
        ("SEND", "destination:/amq/queue/out.a"),
        ("SUBSCRIBE", "id:1", "destination:/queue/in.a"),
        ("SUBSCRIBE", "id:1", "destination:/topic/in.a"),
        ("SUBSCRIBE", "id:1", "destination:/topic/#"),
        ("SUBSCRIBE", "id:1", "destination:/queue/in.a", "browser:true"),
    ):
        peer = world.peer()
        await peer.say(*refused, "receipt:r")
        error = peer.error()
        assert (error.headers["message"], error.headers["receipt-id"]) == ("PermissionDenied", "r"), refused


async def test_who_may_answer_may_do_so_wherever_it_was_asked_to(world: World) -> None:
    """The name in `reply-to` cannot be guessed: having it is the permission."""
    asker = world.peer()
    await asker.publish("/queue/in.a", "?", headers=["reply-to:/temp-queue/answers"])
    world.access = lambda user: Access(user, {Action.CONSUME: ["in.*"]})
    answerer = world.peer()
    await answerer.take_from("/queue/in.a", ack="auto")
    await answerer.publish(answerer.take().headers["reply-to"], "!")
    assert (answerer.is_open, asker.bodies()) == (True, ["!"])


async def test_nobody_removes_the_durable_subscriber_of_a_channel_that_he_may_not_consume(world: World) -> None:
    """Knowing the name of a durable subscriber is not enough to end it."""
    owner = world.peer()
    await owner.take_from("/topic/t", "durable:true", ident="mine")
    await owner.vanish()
    world.access = lambda user: Access(user, {Action.CONSUME: ["other"]})
    for lines in (("destination:/topic/t",), ()):
        thief = world.peer()
        await thief.say("UNSUBSCRIBE", "id:mine", "durable:true", *lines)
        assert thief.error().headers["message"] == "PermissionDenied"
    assert ("mine", "t") in world.runtime.engine.subscriptions.durables


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (("HELLO",), "HELLO"),
        (("SEND",), "destination"),
        (("SUBSCRIBE", "destination:/queue/a"), "id"),
        (("SUBSCRIBE", "id:1"), "destination"),
        (("SUBSCRIBE", "id:1", "destination:/exchange/a/b"), "/exchange/a/b"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "ack:never"), "ack"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "prefetch-count:-3"), "prefetch-count"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "activemq.prefetchSize:0"), "prefetchSize"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "selector:a ="), "selector"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "exclusive:yes"), "exclusive"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "work-timeout:soon"), "work-timeout"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "work-timeout:nan"), "work-timeout"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "match:some"), "match"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "from-seq:1"), "from-seq"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "activemq.subscriptionName:n"), "durable"),
        (("SUBSCRIBE", "id:1", "destination:/topic/a", "tags:b"), "tags"),
        (("SUBSCRIBE", "id:1", "destination:/topic/a", "browser:true"), "browsed"),
        (("SUBSCRIBE", "id:1", "destination:/topic/a.#.b"), "#"),
        (("SUBSCRIBE", "id:1", "destination:/topic/a", "match:any"), "tags"),
        (("SUBSCRIBE", "id:1", "destination:/topic/a", "x-stream-offset:last"), "first, next and offset"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "include-seq:"), "include-seq"),
        (("SUBSCRIBE", "id:1", "destination:/amq/queue/missing"), "missing"),
        (("SUBSCRIBE", "id:1", "destination:/queue/a", "include-seq:content-length"), "include-seq"),
        (("SUBSCRIBE", "id:1", "destination:/temp-queue/" + "x" * 230), "255"),
        (("SEND", "destination:/amq/queue/missing"), "missing"),
        (("SEND", "destination:/temp-queue/unknown"), "unknown"),
        (("SEND", "destination:queue/a"), "queue/a"),
        (("SEND", "destination:/queue/"), "destination"),
        (("SEND", "destination:/queue/" + "x" * 256), "256"),
        (("SEND", "destination:/topic/a.*"), "pattern"),
        (("SEND", "destination:/topic/a", "tags:b"), "tags"),
        (("SEND", "destination:/queue/a", "tags:a\\nb"), "control"),
        (("SEND", "destination:/queue/a", "priority:high"), "priority"),
        (("SEND", "destination:/queue/a", "priority:4294967296"), "priority"),
        (("SEND", "destination:/queue/a", "priority:²"), "priority"),
        (("SEND", "destination:/queue/a", "expires:soon"), "expires"),
        (("SEND", "destination:/queue/a", "expires:" + "9" * 19), "expires"),
        (("SEND", "destination:/queue/a", "x-delay:-1"), "x-delay"),
        (("SEND", "destination:/queue/a", "AMQ_SCHEDULED_CRON:* * * * *"), "AMQ_SCHEDULED_CRON"),
        (("SEND", "destination:/queue/a", "persistent:maybe"), "persistent"),
        (("SEND", "destination:/queue/a", "transaction:none"), "none"),
        (("SEND", "destination:/queue/a", "reply-to:/temp-queue/" + "x" * 230), "255"),
        (("SEND", "destination:/queue/a", *(f"h{number}:x" for number in range(257))), "256"),
        (("SEND", "destination:/queue/a", "h:" + "x" * 65_600), "65536"),
        (("SEND", "destination:/queue/\udcff"), "UTF-8"),
        (("SEND", "destination:/queue/a", "colour:\udcff"), "UTF-8"),
        (("SEND", "destination:/queue/a", ":red"), "no name"),
        (("ACK", "id:1-1"), "1-1"),
        (("ACK",), "which message"),
        (("NACK", "id:1-1"), "1-1"),
        (("NACK", "id:1-1", "requeue:no"), "requeue"),
        (("UNSUBSCRIBE", "id:9"), "9"),
        (("UNSUBSCRIBE", "id:9", "durable:true"), "9"),
        (("BEGIN",), "transaction"),
        (("COMMIT", "transaction:t"), "t"),
        (("ABORT", "transaction:t"), "t"),
    ],
)
async def test_a_wrong_frame_is_answered_and_the_connection_closed(
    world: World, said: tuple[str, ...], word: str
) -> None:
    """An ERROR names the frame's receipt and what is wrong with it; nobody else notices."""
    other, peer = world.peer(), world.peer()
    await peer.say(*said, "receipt:r\\c1")
    error = peer.error()
    assert error.headers["receipt-id"] == "r:1"
    assert error.headers["content-type"] == "text/plain"
    assert "version" not in error.headers
    assert error.headers["content-length"] == str(len(error.body))
    assert word in error.body.decode()
    await other.take_from("/queue/b", ack="auto")
    await other.publish("/queue/b", "still here")
    assert other.bodies() == ["still here"]


async def test_frames_after_a_wrong_one_are_not_done(world: World) -> None:
    """What was sent before the wrong frame is done, and what was sent after it is not."""
    peer = world.peer()
    peer.session.receive(
        frame("SEND", "destination:/queue/a", body=b"1")
        + frame("NONSENSE")
        + frame("SEND", "destination:/queue/a", body=b"2")
        + b"no frame at all\n\n"
    )
    peer.tell("CONNECT", "accept-version:1.2")
    peer.tell("SEND", "destination:/queue/a", body=b"3")
    await world.quiet()
    assert peer.error()
    peer.turn()
    assert (peer.frames, peer.turns_at) == ([], inf)
    assert world.length("a") == 1


async def test_there_is_no_nack_in_version_1_0(world: World) -> None:
    """It came with 1.1."""
    peer = world.peer("1.0")
    await peer.say("NACK", "message-id:0-1")
    assert "NACK" in peer.error().body.decode()


async def test_a_connection_logs_in_once(world: World) -> None:
    """A second CONNECT is refused; it cannot change who somebody is."""
    peer = world.peer()
    await peer.say("CONNECT", "accept-version:1.2")
    assert "already" in peer.error().body.decode()


async def test_escapes_go_by_version(world: World) -> None:
    """From 1.1 on headers carry any text; 1.0 takes them as they stand, and gets what cannot break its frames."""
    new, old = world.peer("1.2"), world.peer("1.0")
    await new.take_from("/topic/t", ack="auto")
    await old.take_from("/topic/t", ack="auto")
    await new.say("SEND", "destination:/topic/t", "a\\cb:1\\n2\\\\n\\c3", "content-length\\c0:x", body=b"escaped")
    await old.say("SEND", "destination:/topic/t", "plain:1\\n2\\x", body=b"raw")
    escaped, raw = new.messages()
    assert (escaped.headers["a:b"], raw.headers["plain"]) == ("1\n2\\n:3", "1\\n2\\x")
    escaped, raw = old.messages()
    assert (escaped.body, raw.body, raw.headers["plain"]) == (b"escaped", b"raw", "1\\n2\\x")
    assert escaped.headers["a b"] == "1 2\\n:3"


async def test_version_1_0_may_have_spaces_behind_its_colons(world: World) -> None:
    """Programs of 1.0 write `destination: /queue/a`, as the examples of its specification do."""
    peer = world.peer("1.0")
    for _ in range(2):
        await peer.say("SEND", "destination: /queue/a", "priority: 7", "colour: red", body=b"x")
    await peer.take_from(" /queue/a", ack=" auto")
    first, second = peer.messages()
    assert first.headers["colour"] == second.headers["colour"] == "red"
    assert first.headers["priority"] == "7"


async def test_short_commands_are_understood(world: World) -> None:
    """SUB and UNSUB, which old programs send, do the same."""
    peer = world.peer()
    await peer.say("SUB", "id:1", "destination:/queue/a")
    await peer.publish("/queue/a", "x")
    await peer.say("UNSUB", "id:1")
    await peer.publish("/queue/a", "y")
    assert peer.bodies() == ["x"]


async def test_disconnect_is_the_last_word(world: World) -> None:
    """Its RECEIPT comes after all others, nothing is handed out any more, and then the connection is closed."""
    peer = world.peer()
    await peer.take_from("/queue/a", "prefetch-count:1")
    await peer.publish("/queue/a", "1", "2")
    taken = peer.take()
    peer.session.receive(
        frame("SEND", "destination:/queue/b", "receipt:s")
        + frame("ACK", f"id:{taken.headers['ack']}")
        + frame("DISCONNECT", "receipt:d")
        + frame("SEND", "destination:/queue/b", "receipt:late")
    )
    await world.quiet()
    assert [one.headers.get("receipt-id") for one in peer.frames] == ["s", "d"]
    assert not peer.is_open
    other = world.peer()
    await other.take_from("/queue/a")
    second = other.take()
    assert (second.body, second.attempt, second.redelivered) == (b"2", 1, False)
