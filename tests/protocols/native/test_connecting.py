"""Hello, login and resume: who a peer is, and what it finds when it comes back."""

from pathlib import Path

import pytest

from penstock.model.access import Access, Action
from penstock.model.errors import PenstockError, PermissionDenied
from penstock.protocols.native import publishing
from penstock.store.journal.journal import Journal
from tests.broker.stores import HeldStore
from tests.protocols.native.peers import CARRIERS, Native, World

DENIED = PermissionDenied("there is no such user, or the secret is wrong", key="login")


def only_known(user: str) -> Access | PenstockError:
    """Let in whoever has a name, as a broker with users does."""
    return Access.to_all(user) if user in {"alice", "bob"} else DENIED


# Hello and login.


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_hello_comes_first_and_names_the_client(world: World, carrier: str) -> None:
    """128 random bits, in hexadecimal; each connection has its own."""
    ids = {world.native(carrier).id for _ in range(3)}
    assert len(ids) == 3
    assert all(len(bytes.fromhex(ident)) == 16 for ident in ids)


async def test_hello_waits_for_nothing(world: World) -> None:
    """On a WebSocket nobody has to speak first."""
    peer = Native(world, "text")
    await world.quiet()
    assert peer.take()["type"] == "hello"


async def test_where_users_are_nothing_is_done_before_login(world: World) -> None:
    """A stranger may say `ping` and `login`; all else is refused, and the connection stays open."""
    world.access = only_known
    peer = world.native()
    assert not peer.session.is_known
    assert await peer.ask("ping", label=1) == {"type": "pong", "label": 1}
    assert await peer.refused("post", queue="a", message="x") == ("PermissionDenied", "login")
    assert await peer.refused("login", user="mallory", secret="x") == ("PermissionDenied", "login")
    assert await peer.ask("login", user="alice", secret="x", label=2) == {"type": "ok", "label": 2}
    assert (await peer.ask("post", queue="a", message="x", label=3))["type"] == "ok"


async def test_a_websocket_may_have_logged_in_by_its_request(world: World) -> None:
    """Then it is known from the beginning."""
    world.access = only_known
    peer = world.native("text", access=Access.to_all("alice"))
    assert (await peer.ask("post", queue="a", message="x", label=3))["type"] == "ok"


async def test_a_login_that_does_not_come_ends_the_connection(world: World) -> None:
    """A stranger that says nothing useful is sent away in time."""
    world.access = only_known
    peer = world.native()
    await world.wait(9)
    assert peer.is_open
    await world.wait(1)
    assert peer.last_words()["key"] == "login"


async def test_a_login_that_waits_to_be_looked_at_is_waited_for(world: World) -> None:
    """The peer has done its part; but after a refusal its time may be over."""
    asked: list[object] = []
    world.login = lambda user, secret, then: asked.append(then) if user else then(DENIED)  # type: ignore[method-assign]
    patient, refused = world.native(), world.native()
    for peer in (patient, refused):
        await world.wait(1)
        peer.tell("login", user="alice", secret="s", label=1)
    await world.wait(20)
    asked[0](Access.to_all("alice"))
    asked[1](DENIED)
    await world.quiet()
    assert (patient.only()["type"], patient.is_open) == ("ok", True)
    assert refused.last_words()["key"] == "login"


async def test_who_needs_no_login_may_stay_silent(world: World) -> None:
    """There is nothing to wait for."""
    peer = world.native()
    for _ in range(3):
        await world.wait(10)
    assert peer.is_open


async def test_what_is_sent_ahead_of_the_answer_to_login_is_done_after_it(world: World) -> None:
    """In its order, though looking at a secret takes its time."""
    asked: list[object] = []
    world.login = lambda user, secret, then: asked.append((user, secret, then)) if user else then(DENIED)  # type: ignore[method-assign]
    peer = world.native()
    peer.session.receive(
        b'{"type":"login","user":"alice","secret":"s","label":1}\n{"type":"ping","label":2}\n{"type":"ping","la'
    )
    peer.session.receive(b'bel":3}\n')
    await world.quiet()
    assert peer.answers == []
    ((user, secret, then),) = asked
    assert (user, secret) == ("alice", "s")
    then(Access.to_all("alice"))
    assert [(answer["type"], answer["label"]) for answer in peer.take_all()] == [("ok", 1), ("pong", 2), ("pong", 3)]


async def test_what_is_sent_ahead_has_a_limit(world: World) -> None:
    """A stranger fills no memory."""
    world.login = lambda user, secret, then: None if user else then(DENIED)  # type: ignore[method-assign]
    peer = world.native()
    peer.tell("login", user="alice", secret="s")
    for _ in range(700):
        peer.tell("ping", padding="x" * 90)
        if not peer.is_open:
            break
    assert peer.last_words()["code"] == "TooLarge"


async def test_a_stranger_may_say_nothing_long(world: World) -> None:
    """64 KiB are enough for a login."""
    world.access = only_known
    peer = world.native()
    peer.session.receive(b"x" * 2**16)
    assert peer.is_open
    peer.session.receive(b"x")
    assert peer.last_words()["code"] == "TooLarge"


async def test_an_answer_of_the_door_to_somebody_who_has_gone_is_nothing(world: World) -> None:
    """The connection was lost while the secret was looked at."""
    asked: list[object] = []
    world.login = lambda user, secret, then: asked.append(then) if user else then(DENIED)  # type: ignore[method-assign]
    peer = world.native()
    peer.tell("login", user="alice", secret="s")
    await peer.vanish()
    (then,) = asked
    then(Access.to_all("alice"))
    assert list(world.runtime.engine.clients) == []


async def test_login_comes_before_what_counts_on_it(world: World) -> None:
    """Whoever has posted something cannot become somebody else."""
    peer = world.native()
    await peer.post("a", "x")
    assert await peer.refused("login", user="guest", secret="") == ("BadRequest", "login")


@pytest.mark.parametrize(
    ("request_name", "fields", "action"),
    [
        ("post", {"queue": "a", "message": "x"}, Action.PUBLISH),
        ("post", {"queue": "a", "message": "x", "priority": 1, "key": "k"}, Action.PUBLISH),
        ("post", {"topic": "a", "message": "x"}, Action.PUBLISH),
        ("batch", {"requests": [{"type": "post", "queue": "a", "message": "x"}]}, Action.PUBLISH),
        ("pop", {"queue": "a"}, Action.CONSUME),
        ("fetch", {"queue": "a"}, Action.CONSUME),
        ("subscribe", {"queue": "a"}, Action.CONSUME),
        ("subscribe", {"topic": "a"}, Action.CONSUME),
        ("subscribe", {"topic": "a.#"}, Action.CONSUME),
        ("unsubscribe", {"topic": "a", "durable": "d"}, Action.CONSUME),
        ("create", {"queue": "a"}, Action.ADMINISTER),
        ("create", {"topic": "a"}, Action.ADMINISTER),
        ("alter", {"queue": "a"}, Action.ADMINISTER),
        ("delete", {"queue": "a"}, Action.ADMINISTER),
        ("purge", {"queue": "a"}, Action.ADMINISTER),
        ("status", {"queue": "a"}, Action.ADMINISTER),
        ("status", {"topic": "a"}, Action.ADMINISTER),
    ],
)
async def test_a_request_needs_its_permission(
    world: World, request_name: str, fields: dict[str, object], action: Action
) -> None:
    """Whoever may do all else on this channel is refused; whoever may do this alone is not."""
    world.set_queue("a")
    world.set_topic("a")
    others = {one: ["a*"] for one in Action if one is not action}
    world.access = lambda user: Access(user, others)
    assert (await world.native().refused(request_name, **fields))[0] == "PermissionDenied"
    world.access = lambda user: Access(user, {action: ["a*"]})
    answer = await world.native().ask(request_name, label=1, **fields)
    assert answer.get("code") in {None, "NoObject"}, answer


@pytest.mark.parametrize("request_name", ["create", "alter"])
async def test_dead_letters_go_only_where_one_may_publish(world: World, request_name: str) -> None:
    """Else whoever rejects messages of its own queue would publish to that of somebody else."""
    world.set_queue("a")
    world.access = lambda user: Access(user, {Action.ADMINISTER: ["a*"], Action.PUBLISH: ["mine"]})
    peer = world.native()
    refused = await peer.refused(request_name, queue="a", settings={"dead_letter": "orders"})
    assert refused == ("PermissionDenied", "channel")
    for name in ("mine", "DLQ.a", None):
        await peer.ask_synced(request_name, queue="a", settings={"dead_letter": name})


async def test_who_asked_over_stomp_is_answered_and_nobody_else_listens(world: World) -> None:
    """By the `reply-to`, whatever else one may do, and as long as the asker is there."""
    asker = world.peer()
    await asker.publish("/queue/a", "?", headers=["reply-to:/temp-queue/answers"])
    world.access = lambda user: Access(user, {Action.CONSUME: ["*"]})
    peer = world.native()
    question = await peer.ask("fetch", queue="a", label=1)
    where = question["headers"]["reply-to"].removeprefix("/queue/")
    assert await peer.refused("fetch", queue=where) == ("PermissionDenied", "queue")
    for fields in ({}, {"priority": 9, "headers": {"a": "b"}}):
        assert (await peer.ask("post", queue=where, message="!", label=2, **fields))["type"] == "ok"
    assert asker.bodies() == ["!", "!"]

    asker.session.lost()
    assert await peer.refused("post", queue=where, message="!") == ("NoObject", "queue")
    assert where not in world.runtime.engine.channels.by_name


# Resume.


async def keeper(world: World, **fields: object) -> tuple[Native, int]:
    """Return somebody who has asked to be kept, and the sequence of a message that it holds."""
    peer = world.native()
    assert (await peer.ask_synced("resume", resume_timeout=60))["id"] == peer.id
    await peer.post("a", "x")
    message = await peer.ask_for_message("fetch", queue="a", **fields)
    return peer, message["sequence"]


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_client_that_comes_back_in_time_has_what_it_held(world: World, carrier: str) -> None:
    """Nobody else got it meanwhile; it is finished over the new connection."""
    peer, sequence = await keeper(world)
    await peer.vanish()
    await world.wait(59)
    other, again = world.native(), world.native(carrier)
    assert (await other.ask("fetch", queue="a"))["type"] == "nomessage"
    assert await again.ask("resume", id=peer.id, label=2) == {"type": "hello", "id": peer.id, "label": 2}
    assert (await again.ask("finish", sequence=sequence, label=3))["type"] == "ok"
    assert world.length("a") == 0


async def test_a_client_that_does_not_come_back_in_time_has_lost_it(world: World) -> None:
    """After `resume_timeout` what it held counts as failed, and its id is unknown."""
    peer, sequence = await keeper(world)
    await peer.vanish()
    await world.wait(61)
    other = world.native()
    message = await other.ask("fetch", queue="a")
    assert (message["sequence"], message["attempt"]) == (sequence, 2)
    assert await other.refused("finish", sequence=sequence + 1000) == ("NoObject", "sequence")
    assert await world.native().refused("resume", id=peer.id) == ("NoObject", "id")


async def test_without_resume_timeout_a_disconnect_fails_what_was_held_at_once(world: World) -> None:
    """As W has it."""
    peer, other = world.native(), world.native()
    await peer.post("a", "x")
    await peer.say("fetch", queue="a")
    await peer.vanish()
    message = await other.ask("fetch", queue="a")
    assert (message["attempt"], message["redelivered"]) == (2, True)
    assert await other.refused("resume", id=peer.id) == ("BadRequest", "id")
    assert await world.native().refused("resume", id=peer.id) == ("NoObject", "id")


async def test_notices_that_were_missed_come_after_hello(world: World) -> None:
    """What happened to its messages while it was away is told when it is back."""
    peer = world.native()
    await peer.ask("resume", resume_timeout=60)
    await peer.post("a", "x", label=7, notify=["assign", "finish"])
    await peer.vanish()
    other = world.native()
    message = await other.ask("fetch", queue="a")
    await other.say("finish", sequence=message["sequence"])
    again = world.native()
    await again.say("resume", id=peer.id)
    hello, *notices = again.take_all()
    assert hello["type"] == "hello"
    assert [(notice["label"], notice["notice"]) for notice in notices] == [(7, "assign"), (7, "finish")]
    await again.vanish()
    third = world.native()
    assert (await third.ask("resume", id=peer.id))["type"] == "hello", "each is told once"


async def test_of_two_who_resume_at_once_the_later_wins_and_the_earlier_is_told(world: World) -> None:
    """The earlier connection ends with an error; what it held is the later one's."""
    peer, sequence = await keeper(world)
    second, third = world.native(), world.native()
    second.tell("resume", id=peer.id)
    third.tell("resume", id=peer.id)
    await world.quiet()
    for displaced in (peer, second):
        last = displaced.last_words()
        assert (last["code"], last["key"]) == ("NotAssigned", "id")
    assert third.only()["id"] == peer.id
    await peer.vanish()
    await second.vanish()
    assert (await third.ask("finish", sequence=sequence, label=1))["type"] == "ok"


async def test_who_is_still_connected_is_resumed_though_it_never_asked_to_be_kept(world: World) -> None:
    """A connection that is dead and does not know it yet loses nothing to the one that comes in its place."""
    earlier, later = world.native(), world.native()
    await earlier.post("a", "x")
    message = await earlier.ask("fetch", queue="a")
    assert (await later.ask("resume", id=earlier.id))["id"] == earlier.id
    assert (await later.ask("finish", sequence=message["sequence"], label=1))["type"] == "ok"
    await later.vanish()
    assert await world.native().refused("resume", id=earlier.id) == ("NoObject", "id")


async def test_what_the_earlier_was_never_sent_waits_again(held_world: World, store: HeldStore) -> None:
    """Its assignment waited for the disk when another came in its place: nobody knows of it."""
    earlier, later, third = (held_world.native() for _ in range(3))
    held_world.set_queue("a")
    await earlier.ask_synced("resume", resume_timeout=60)
    await earlier.say("fetch", queue="a", sync="sync", block_timeout=60)
    store.hold()
    await third.post("a", "x")
    await later.say("resume", id=earlier.id)
    store.let_go()
    await later.until(lambda: later.answers)
    message = await third.ask("fetch", queue="a")
    assert (message["body"], message["attempt"]) == ("x", 1)


async def test_subscriptions_are_made_anew(world: World) -> None:
    """Those of the lost connection bring nothing to the new one, which may give their labels again."""
    peer = world.native()
    await peer.ask("resume", resume_timeout=60)
    await peer.say("subscribe", queue="a", label=1)
    await peer.vanish()
    again = world.native()
    await again.say("resume", id=peer.id)
    await again.post("a", "x")
    assert again.only()["type"] == "hello"
    await again.say("subscribe", queue="a", label=1)
    assert [answer["type"] for answer in again.take_all()] == ["ok", "message"]


async def test_only_its_user_resumes_a_client(world: World) -> None:
    """An id that leaked is of no use to others."""
    world.access = only_known
    alice, bob = world.native(), world.native()
    for peer, user in ((alice, "alice"), (bob, "bob")):
        await peer.ask("login", user=user, secret="", label=1)
    await alice.ask("resume", resume_timeout=60)
    await alice.vanish()
    assert await bob.refused("resume", id=alice.id) == ("NoObject", "id")
    again = world.native()
    await again.ask("login", user="alice", secret="", label=1)
    assert (await again.ask("resume", id=alice.id))["id"] == alice.id


async def test_what_is_no_native_client_is_not_resumed(world: World) -> None:
    """A STOMP session tells its id too, and cannot come back."""
    stomp = world.peer()
    ident = next(client.id.hex() for client in world.runtime.engine.clients)
    assert await world.native().refused("resume", id=ident) == ("NoObject", "id")
    assert stomp.is_open


async def test_who_resumes_itself_goes_on_as_it_is(world: World) -> None:
    """However it writes its id, and whatever it has asked before."""
    world._ids = 0xAB - 1
    peer = world.native()
    await peer.post("a", "x")
    await peer.ask("fetch", queue="a")
    for ident in (peer.id, peer.id.upper()):
        assert await peer.ask("resume", id=ident, label=1) == {"type": "hello", "id": peer.id, "label": 1}
    assert (await peer.ask("keepalive", label=2))["count"] == 1


async def test_resume_comes_before_what_counts_on_it(world: World) -> None:
    """Whoever has posted something is somebody already; asking to be kept is possible at any time."""
    peer, other = world.native(), world.native()
    await other.ask("resume", resume_timeout=60)
    await peer.post("a", "x")
    assert await peer.refused("resume", id=other.id) == ("BadRequest", "id")
    assert (await peer.ask("resume", id=peer.id, resume_timeout=5))["id"] == peer.id


async def test_a_client_says_how_long_it_is_kept_and_may_change_its_mind(world: World) -> None:
    """With `resume_timeout` 0 it is not kept any more; without the field it stays as it was."""
    peer, _ = await keeper(world)
    await peer.ask("resume", label=1)
    await peer.ask("resume", resume_timeout=0)
    await peer.vanish()
    assert (await world.native().ask("fetch", queue="a"))["attempt"] == 2


async def test_hello_of_a_resume_waits_for_the_disk(held_world: World, store: HeldStore) -> None:
    """That a client is kept is promised when it is known after a crash too."""
    peer = held_world.native()
    await held_world.idle()
    store.hold()
    await peer.say("resume", resume_timeout=60)
    assert peer.answers == []
    store.let_go()
    await peer.until(lambda: peer.answers)
    assert peer.only()["id"] == peer.id


# Restarts.


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_client_that_is_kept_outlasts_a_restart(tmp_path: Path, is_orderly: bool) -> None:
    """Its messages are its own still, with leases that count from zero; those of all others wait again, uncounted."""
    first = World(Journal(tmp_path))
    await first.start()
    peer, sequence = await keeper(first, sync="sync", work_timeout=30)
    other = first.native()
    await other.ask_synced("post", queue="b", message="y")
    await other.ask_for_message("fetch", queue="b", sync="sync")
    await first.wait(20)
    if is_orderly:
        await first.stop()
    else:
        await first.crash()
    second = World(Journal(tmp_path))
    second._ids = first._ids  # no id is given twice
    await second.start()
    again, third = second.native(), second.native()
    assert (await again.ask_synced("resume", id=peer.id))["type"] == "hello"
    await second.wait(20)
    assert (await third.ask("fetch", queue="a"))["type"] == "nomessage"
    assert (await again.ask("finish", sequence=sequence, label=1)) == {"type": "ok", "label": 1}
    freed = await third.ask("fetch", queue="b")
    assert (freed["type"] == "message") == is_orderly, "after a crash its client could come back within the lease"
    await second.stop()


async def test_in_good_order_what_others_hold_waits_again_and_does_not_count(world: World) -> None:
    """The server stops: no failure of anybody."""
    peer, other = world.native(), world.native()
    await peer.post("a", "x")
    await peer.say("fetch", queue="a")
    peer.session.leave()
    message = await other.ask("fetch", queue="a")
    assert (message["attempt"], message["redelivered"]) == (1, True)


async def test_what_a_session_remembers_of_names_is_bounded(world: World) -> None:
    """A peer that uses thousands of queues once does not fill the memory, and goes on."""
    peer = world.native()
    for number in range(2500):
        peer.tell("post", queue=str(number), message="x")
        peer.tell("pop", queue=str(number))
    await world.quiet()
    assert len(peer.messages()) == 2500
    known, consuming = peer.session._peer, peer.session._consuming
    assert max(map(len, (known.targets, known.consumable, consuming._selections))) <= 1000


async def test_what_is_named_again_and_again_is_remembered_once(world: World) -> None:
    """A request may have room for millions of names; what is kept of it has room for those that there are."""
    peer = world.native()
    known = len(publishing._STAGES)
    for number in range(1, 50):
        peer.tell("post", queue="a", message="x", label=number, notify=["write", "retry"] * number)
        peer.tell("pop", queue="a", tags=["eu", "us"] * number)
    await world.quiet()
    assert len(peer.session._consuming._selections) == 1
    assert len(publishing._STAGES) <= known + 1
