"""What a client does when connections, brokers and patience are lost."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

import penstock
from penstock import BadRequest, NotAssigned, PermissionDenied, QueueFull, Unavailable
from penstock.client.address import target_of
from tests.client.conftest import url_of
from tests.client.relay import Relay
from tests.native_wire import open_wire
from tests.served import FREE_PORTS, PATIENCE, Served


@pytest.mark.slow
async def test_a_broker_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    """What is held stays held, what waits is sent when it is back, and subscriptions go on."""
    with Served(tmp_path, *FREE_PORTS) as served:
        async with penstock.connect(url_of(served)) as broker:
            await broker.enqueue("a", b"held")
            held = await broker.poll("a", sync="sync")
            await broker.create_queue("b")
            subscription = broker.subscribe("b")
            waiting = asyncio.ensure_future(broker.poll("a", wait=60))
            await asyncio.sleep(0)
            await asyncio.to_thread(served.revive)
            await broker.enqueue("b", b"after")
            assert (await anext(subscription)).body == b"after"
            assert await broker.complete(held) is False
            await broker.enqueue("a", b"waited for")
            message = await waiting
            assert (message.body, message.attempt) == (b"waited for", 1)
            assert (await broker.status("a")).assigned == 1


@pytest.mark.slow
async def test_posts_while_the_broker_is_away_are_stored_when_it_is_back(tmp_path: Path) -> None:
    """Each once, if it has a `dedup_id`, though its confirmation may have been lost."""
    with Served(tmp_path, *FREE_PORTS) as served:
        async with penstock.connect(url_of(served)) as broker:
            restarting = asyncio.ensure_future(asyncio.to_thread(served.revive))
            posts = []
            number = 0
            while not restarting.done():
                posts.append(asyncio.ensure_future(broker.enqueue("a", b"%d" % number, dedup_id=str(number))))
                number += 1
                await asyncio.sleep(0.005)
            await restarting
            receipts = await asyncio.gather(*posts)
            assert len({receipt.sequence for receipt in receipts}) == number
            bodies = [message.body for message in await broker.poll_many("a", number + 10)]
            assert sorted(bodies, key=int) == [b"%d" % index for index in range(number)]


@pytest.mark.slow
async def test_the_next_host_is_tried(served: Served, tmp_path: Path) -> None:
    """When the broker that one has is lost, and when it is not there at the beginning."""
    with Served(tmp_path, *FREE_PORTS, "--store", "memory") as first:
        url = url_of(first, served)
        async with penstock.connect(url) as broker:
            await broker.enqueue("hosts", b"there")
            await asyncio.to_thread(first.kill)
            await broker.enqueue("hosts", b"here")
        async with penstock.connect(url) as broker:
            assert (await broker.pop("hosts")).body == b"here"


@pytest.mark.slow
async def test_what_was_on_its_way_when_the_connection_was_lost_comes_again(
    served: Served, client: penstock.Client
) -> None:
    """When its lease has run out, though leases of what did come are renewed as before."""
    await client.create_queue("stray", heartbeat_timeout=1.0)
    async with Relay(served.native) as relay, penstock.connect(relay.url, keepalive=0.2) as broker:
        await client.enqueue("stray", b"held")
        held = await broker.poll("stray")
        subscription = broker.subscribe("stray")
        await broker.status("stray")
        relay.loses = True
        await client.enqueue("stray", b"lost")
        while (await client.status("stray")).assigned < 2:
            pass
        relay.cut()
        async with asyncio.timeout(PATIENCE):
            message = await anext(subscription)
        assert (message.body, message.attempt) == (b"lost", 2)
        assert await broker.complete(held) is False
        await broker.complete(message)


@pytest.mark.slow
async def test_leases_are_renewed_while_a_handler_blocks_the_loop(client: penstock.Client) -> None:
    """A thread sends what the event loop cannot; the message is still one's own, and was never anybody else's."""
    await client.enqueue("long", b"x")
    message = await client.poll("long", work_timeout=0.5)
    time.sleep(2.0)  # noqa: ASYNC251  # this is the handler that should not
    assert await client.complete(message) is False
    assert (await client.status("long")).totals["retried"] == 0


async def test_without_holding_anything_nothing_is_renewed(served: Served, client: penstock.Client) -> None:
    """A lease of somebody else runs out as it should."""
    with open_wire(served, "lines") as other:
        other.ask("post", queue="short", message="x", label=1)
        other.ask("fetch", queue="short", work_timeout=0.2)
        message = await client.poll("short", wait=5)
        assert message.attempt == 2


async def test_closing_gives_back_what_is_held_at_once(served: Served) -> None:
    """Uncounted, and though the client would have been kept."""
    async with penstock.connect(url_of(served)) as broker:
        await broker.enqueue("given", b"x")
        await broker.poll("given")
    async with penstock.connect(url_of(served)) as broker:
        message = await broker.poll("given", wait=5)
        assert (message.attempt, message.redelivered) == (1, True)


async def test_a_poll_that_is_cancelled_loses_no_message(client: penstock.Client) -> None:
    """What comes for somebody who waits no longer waits again."""
    await client.create_queue("cancelled")
    waiting = asyncio.ensure_future(client.poll("cancelled", wait=60))
    await asyncio.sleep(0)
    await client.status("cancelled")
    waiting.cancel()
    await client.enqueue("cancelled", b"x")
    message = await client.poll("cancelled", wait=5)
    assert (message.body, message.attempt) == (b"x", 1)


async def test_notices_that_were_told_are_forgotten(client: penstock.Client) -> None:
    """Whatever was asked for, nothing is remembered of a message of which nothing more is told."""
    await client.create_queue("told")
    for stages in (["ready"], ["write", "sync"], ["sync", "assign"], ["retry"], ["drop"], ["ready", "finish"]):
        await client.enqueue("told", b"x", notify=stages, confirm="ready")
        await client.complete(await client.poll("told"))
    await client.status("told")
    notices = client.notices()
    told = [(await anext(notices))[1] for _ in range(7)]
    assert sorted(told) == sorted(["ready", "write", "sync", "sync", "assign", "ready", "finish"])
    assert not client._wanted


async def test_notices_of_a_post_that_was_refused_are_forgotten(client: penstock.Client) -> None:
    """Nothing will be told of what was never published."""
    await client.create_queue("full", max_length=1)
    await client.enqueue("full", b"x")
    with pytest.raises(QueueFull):
        await client.enqueue("full", b"x", notify=["finish"])
    assert not client._wanted


async def test_a_fast_pop_is_told_as_its_finish(client: penstock.Client) -> None:
    """It comes in place of `ready`, and ends the waiting for that."""
    await client.create_queue("fast")
    popping = asyncio.ensure_future(client.pop("fast", wait=30))
    await asyncio.sleep(0)
    await client.status("fast")
    await client.enqueue("fast", b"x", notify=["ready"], confirm="ready", label=3)
    assert (await popping).body == b"x"
    assert await anext(client.notices()) == (3, "finish")


async def test_who_is_resumed_by_another_is_told(served: Served, client: penstock.Client) -> None:
    """It does not fight for its name."""
    with open_wire(served, "lines") as other:
        await client.create_queue("fought")
        waiting = asyncio.ensure_future(client.poll("fought", wait=60))
        subscription = client.subscribe("fought")
        await asyncio.sleep(0)
        other.ask("resume", id=client._session._id)
        for call in (waiting, anext(subscription), client.enqueue("fought", b"x")):
            with pytest.raises(NotAssigned):
                await call


async def test_giving_back_what_was_lost_to_others_costs_a_client_nothing(
    served: Served, client: penstock.Client
) -> None:
    """What a subscription did not take out in time is somebody else's when it is closed; everything else goes on."""
    await client.create_queue("lost", heartbeat_timeout=0.2)
    async with penstock.connect(url_of(served), keepalive=60) as slow:
        subscription = slow.subscribe("lost")
        await slow.status("lost")
        await client.enqueue("lost", b"x")
        message = await client.poll("lost", wait=5, work_timeout=60)
        assert message.attempt > 1
        subscription.close()
        assert (await slow.status("lost")).assigned == 1


async def test_a_login_that_is_refused_is_an_error_at_once(served: Served) -> None:
    """There is no sense in trying again."""
    host, port = served.native
    with pytest.raises(PermissionDenied):
        await penstock.connect(f"penstock://bob:secret@{host}:{port}").start()


@pytest.mark.slow
async def test_a_broker_that_is_not_there_is_an_error_in_time(tmp_path: Path) -> None:
    """After `connect_timeout`."""
    with Served(tmp_path, *FREE_PORTS, "--store", "memory") as served:
        url = url_of(served)
    with pytest.raises(Unavailable, match="no broker answers"):
        await penstock.connect(url, connect_timeout=0.3).start()


async def test_closing_leaves_nothing_behind(served: Served) -> None:
    """No thread, no task, and no connection."""
    before = len(asyncio.all_tasks())
    async with penstock.connect(url_of(served)) as broker:
        await broker.enqueue("left", b"x")
        assert "penstock-keeper" in {thread.name for thread in threading.enumerate()}
        link = broker._session._link
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    assert "penstock-keeper" not in {thread.name for thread in threading.enumerate()}
    assert link._transport.is_closing()


async def test_a_closed_client_says_so(served: Served) -> None:
    """Whatever is asked of it."""
    broker = penstock.connect(url_of(served))
    with pytest.raises(Unavailable):
        await broker.enqueue("a", b"x")
    async with broker:
        subscription = broker.subscribe("a")
    for call in (broker.enqueue("a", b"x"), broker.poll("a"), broker.queues(), anext(subscription)):
        with pytest.raises(Unavailable):
            await call
    await broker.close()


@pytest.mark.parametrize(
    ("url", "hosts", "login"),
    [
        ("penstock://host", [("host", 8080)], (None, "")),
        ("penstock://a:1,b,[::1]:2,[::1]/", [("a", 1), ("b", 8080), ("::1", 2), ("::1", 8080)], (None, "")),
        ("penstock://us%40er:p%3Aw@host:1", [("host", 1)], ("us@er", "p:w")),
        ("penstocks://user@host", [("host", 8080)], ("user", "")),
        ("http://127.0.0.1:8080", [("127.0.0.1", 8080)], (None, "")),
        ("https://host:1/", [("host", 1)], (None, "")),
    ],
)
def test_urls(url: str, hosts: list[tuple[str, int]], login: tuple[str | None, str]) -> None:
    """Hosts with ports, and a login."""
    target = target_of(url)
    assert (list(target.hosts), (target.user, target.secret)) == (hosts, login)
    assert (target.tls is not None) == url.startswith(("penstocks", "https"))


@pytest.mark.parametrize("url", ["", "host:1", "ftp://host", "penstock://", "penstock://a:b", "penstock://a:0", 5])
def test_urls_that_name_nothing(url: str) -> None:
    """A mistake is told before anything is opened."""
    with pytest.raises(BadRequest):
        target_of(url)
