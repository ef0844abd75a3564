"""The door itself: who may come in, what is told of health, and nonsense of all kinds."""

import asyncio
import logging
import random
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.model.access import Action
from penstock.protocols.grpc import streams
from penstock.server.grpc import gathering, service
from penstock.server.grpc.door import LIBRARY_LOG
from penstock.server.users import User, UserFile, hashed
from penstock.store.memory import Memory
from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub
from tests.broker.stores import FailingStore
from tests.served import FREE_PORTS, Served
from tests.server.conftest import Serve
from tests.server.grpc.asking import PATIENCE, Working, complete, enqueue, poll, publish_batch, refused, status
from tests.server.grpc.conftest import Connect
from tests.server.inside import doors_of
from tests.server.raw import Certificate, Raw

SERVICE = "penstock.v1.Broker"


def login(user: str, secret: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a login."""
    return (("authorization", "Basic " + b64encode(f"{user}:{secret}".encode()).decode()),)


MILL, WEAVER = login("mill", "secret"), login("weaver", "secret")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve users: mill, who may do everything, and weaver, who may publish to one queue."""
    place = tmp_path_factory.mktemp("guarded")
    users = UserFile(place / "users.toml")
    users.add(User("mill", hashed("secret"), {action: ["*"] for action in Action}))
    users.add(User("weaver", hashed("secret"), {Action.PUBLISH: ["orders"], Action.CONSUME: ["wool"]}))
    options = (*FREE_PORTS, "--store", "memory", "--users", str(place / "users.toml"))
    with Served(place, *options, expected="a login as .* was refused") as served:
        yield served


async def test_strangers_may_do_nothing(guarded: Served, connect: Connect) -> None:
    """Whatever they say of themselves; what else they say is not even read."""
    stub = connect(guarded)
    unauthenticated = (grpc.StatusCode.UNAUTHENTICATED, "PermissionDenied", "login")
    request = pb.EnqueueRequest(message=pb.NewMessage(queue="orders", body=bytes(10 * 2**20)))
    for metadata in (
        (),
        login("mill", "wrong"),
        login("nobody", "secret"),
        login("", ""),
        (("authorization", "Basic ?"),),
        (("authorization", "Bearer abc"),),
        (("authorization", "Basic " + b64encode(b"mill").decode()),),
    ):
        assert await refused(stub.Enqueue(request, metadata=metadata)) == unauthenticated
        assert await refused(stub.Subscribe(metadata=metadata).read()) == unauthenticated


async def test_users_may_do_what_they_are_permitted(guarded: Served, connect: Connect) -> None:
    """In calls and in streams, and again while the login is still known."""
    stub = connect(guarded)
    request = pb.EnqueueRequest(message=pb.NewMessage(queue="orders"))
    for _ in range(3):
        assert (await stub.Enqueue(request, metadata=WEAVER)).receipt.sequence
    denied = (grpc.StatusCode.PERMISSION_DENIED, "PermissionDenied", "channel")
    other = pb.EnqueueRequest(message=pb.NewMessage(queue="orders", tags=["eu"]))
    assert (await stub.Enqueue(other, metadata=WEAVER)).receipt.sequence
    for call in (
        stub.Enqueue(pb.EnqueueRequest(message=pb.NewMessage(topic="news")), metadata=WEAVER),
        stub.Poll(pb.PollRequest(queue="orders"), metadata=WEAVER),
        stub.GetStatus(pb.GetStatusRequest(queue="orders"), metadata=WEAVER),
        stub.DeleteQueue(pb.DeleteQueueRequest(queue="orders"), metadata=WEAVER),
        stub.CreateQueue(pb.CreateQueueRequest(queue="wool"), metadata=WEAVER),
        stub.Subscribe(
            iter([pb.SubscribeRequest(subscription=pb.Subscription(queue="orders"))]), metadata=WEAVER
        ).read(),
    ):
        assert await refused(call) == denied
    [answer] = [
        one async for one in stub.EnqueueStream(iter([pb.EnqueueStreamRequest(queue="orders")]), metadata=WEAVER)
    ]
    assert list(answer.sequences) == []


async def test_a_message_belongs_to_the_user_who_polled_it(guarded: Served, connect: Connect) -> None:
    """Nobody else can settle it, whatever lease is shown."""
    stub = connect(guarded)
    await stub.Enqueue(pb.EnqueueRequest(message=pb.NewMessage(queue="wool")), metadata=MILL)
    lease = (await stub.Poll(pb.PollRequest(queue="wool"), metadata=WEAVER)).lease
    request = pb.CompletePollRequest(lease=lease)
    assert (await refused(stub.CompletePoll(request, metadata=MILL)))[1] == "NotAssigned"
    assert (await stub.CompletePoll(request, metadata=WEAVER)).completed


async def test_tls(serve: Serve, certificate: Certificate) -> None:
    """With the certificate of the other doors."""
    served = serve("--grpc-listen", "tls:127.0.0.1:0", *certificate.options)
    credentials = grpc.ssl_channel_credentials(certificate.certificate.read_bytes())
    async with aio.secure_channel(served.grpc, credentials) as channel:
        assert await enqueue(BrokerAsyncStub(channel), "secret")
    async with aio.insecure_channel(served.grpc) as channel:
        assert (await refused(enqueue(BrokerAsyncStub(channel), "secret")))[0] is grpc.StatusCode.UNAVAILABLE


# Health.


async def health_of(address: str, service: str) -> int:
    """Return what is told of a service."""
    async with aio.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE)).status


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_a_sound_broker_serves(guarded: Served, service: str) -> None:
    """Whoever asks need not log in."""
    assert await health_of(guarded.grpc, service) == health_pb2.HealthCheckResponse.SERVING
    assert (await refused(health_of(guarded.grpc, "nonsense")))[0] is grpc.StatusCode.NOT_FOUND


def of_http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


async def test_strangers_who_read_nothing_hold_up_nobody(serve: Serve, connect: Connect) -> None:
    """Neither users, however many there are who ask about health, nor the end of the broker."""
    served = serve("--limit", "grpc_stranger_calls_max=1")
    texts = [b":method", b"POST", b":scheme", b"http", b":path", b"/grpc.health.v1.Health/Watch", b":authority", b"x"]
    texts += [b"te", b"trailers", b"content-type", b"application/grpc"]
    fields = [bytes([len(text)]) + text for text in texts]
    head = b"".join(b"\0" + name + value for name, value in zip(fields[::2], fields[1::2], strict=True))
    host, _, port = served.grpc.rpartition(":")
    with Raw((host, int(port))) as peer:
        no_window = struct.pack(">HI", 4, 0)
        peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + of_http2(4, 0, 0, no_window) + of_http2(4, 1, 0, b""))
        peer.send(of_http2(1, 4, 1, head) + of_http2(0, 1, 1, bytes(5)))
        await asyncio.to_thread(peer.until, b"application/grpc")
        assert (await refused(health_of(served.grpc, SERVICE)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await enqueue(connect(served), "orders")
        await asyncio.to_thread(served.stop)


async def test_a_store_that_has_failed_is_told_to_all() -> None:
    """By health, to whoever is connected, and to whoever comes; nothing is confirmed any more."""
    async with doors_of(FailingStore(6, permanent=True), grpc_listen=["127.0.0.1:0"]) as doors:
        async with aio.insecure_channel(doors["grpc"]) as channel:
            stub = BrokerAsyncStub(channel)
            work = await Working(stub, pb.Subscription(queue="other")).begin()
            watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
            unavailable = (grpc.StatusCode.UNAVAILABLE, "Unavailable", "store")
            assert await refused(published_on_and_on(stub)) == unavailable
            assert await refused(work.call.read()) == unavailable
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            for call in (enqueue(stub, "q"), poll(stub, "q"), stub.CreateQueue(pb.CreateQueueRequest(queue="r"))):
                assert await refused(call) == unavailable
        assert await health_of(doors["grpc"], SERVICE) == health_pb2.HealthCheckResponse.NOT_SERVING


async def published_on_and_on(stub: BrokerAsyncStub) -> None:
    """Publish in a stream until it ends."""
    stream = stub.EnqueueStream(timeout=PATIENCE)
    while True:
        await stream.write(pb.EnqueueStreamRequest(queue="q", messages=[pb.NewMessage(body=b"x")]))
        await stream.read()


# Nonsense.


async def test_a_mistake_of_the_broker_is_not_shown_to_peers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stands in the log."""

    def mistaken(*_: object) -> None:
        raise ValueError("the secret text of a mistake")

    monkeypatch.setattr(gathering, "enqueue", mistaken)
    monkeypatch.setattr(streams, "enqueue_batch", mistaken)
    async with doors_of(Memory(), grpc_listen=["127.0.0.1:0"]) as doors, aio.insecure_channel(doors["grpc"]) as channel:
        stub = BrokerAsyncStub(channel)
        for call in (enqueue(stub, "q"), publish_batch(stub, pb.EnqueueStreamRequest())):
            caplog.clear()
            with pytest.raises(aio.AioRpcError) as raised:
                await call
            assert raised.value.code() is grpc.StatusCode.INTERNAL
            assert "secret" not in str(raised.value.details())
            assert "the secret text of a mistake" in caplog.text


async def test_a_peer_that_has_gone_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the library says of it."""

    async def gone(_: object) -> None:
        raise aio.UsageError("the peer has gone")

    monkeypatch.setattr(service.Conversation, "run", gone)
    async with doors_of(Memory(), grpc_listen=["127.0.0.1:0"]) as doors, aio.insecure_channel(doors["grpc"]) as channel:
        await BrokerAsyncStub(channel).Subscribe().read()
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == []
    LIBRARY_LOG.error("it could not be told how its call has ended", exc_info=aio.InternalError("gone"))
    assert caplog.records == []
    LIBRARY_LOG.error("something else", exc_info=ValueError())
    assert [record.message for record in caplog.records] == ["something else"]


async def test_requests_that_are_none_are_refused(served: Served) -> None:
    """Bytes that are no message, no bytes at all, methods that are not there; and others notice nothing."""
    async with aio.insecure_channel(served.grpc) as channel:
        invalid = (grpc.StatusCode.INVALID_ARGUMENT, "BadRequest", "request")
        for method in ("Enqueue", "Poll", "CompletePoll", "GetStatus"):
            assert await refused(channel.unary_unary(f"/{SERVICE}/{method}")(b"\xff\xff")) == invalid
        assert await refused(channel.stream_unary(f"/{SERVICE}/Poll")(iter([]))) == invalid
        for method in ("EnqueueStream", "Subscribe"):
            assert await refused(channel.stream_stream(f"/{SERVICE}/{method}")(iter([b"\xff\xff"])).read()) == invalid
        for method in (f"/{SERVICE}/Nonsense", "/nonsense", f"/{SERVICE}"):
            assert (await refused(channel.unary_unary(method)(b"")))[0] is grpc.StatusCode.UNIMPLEMENTED
        assert await enqueue(BrokerAsyncStub(channel), "sound")


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS = b"\0\0\0\4\0\0\0\0\0", b"\0\0\5\1\4\0\0\0\1"


async def test_a_peer_that_answers_no_ping_is_left_when_its_time_is_over(serve: Serve) -> None:
    """What it holds is given to others then, and not after a minute of the library's own."""
    served = serve("--limit", "grpc_alive_seconds=1", "--limit", "stalled_seconds=1")
    host, _, port = served.grpc.rpartition(":")
    with Raw((host, int(port))) as peer:
        await asyncio.to_thread(peer.send(PREFACE + SETTINGS).rest)


async def test_nobody_notices_nonsense(served: Served, connect: Connect) -> None:
    """Bytes that are no HTTP/2, frames that are damaged, cut off, or announce more than comes."""
    stub, choice = connect(served), random.Random(7)
    host, _, port = served.grpc.rpartition(":")
    work = await Working(stub, pb.Subscription(queue="nonsense")).begin()
    for at in range(60):
        data = [
            choice.randbytes(200),
            b"GET / HTTP/1.1\r\n\r\n",
            PREFACE + choice.randbytes(choice.choice([3, 9, 500])),
            PREFACE + SETTINGS + HEADERS + choice.randbytes(5),
            PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\1" + bytes(1000),
        ][at % 5]
        with Raw((host, int(port))) as peer:
            peer.send(data)
            if at % 2:
                peer.socket.shutdown(1)
    sequence = await enqueue(stub, "nonsense")
    assert [message.sequence for message in await work.take(1)] == [sequence]
    assert served.said() == []


async def test_a_call_says_no_more_beside_its_messages_than_the_limit(serve: Serve, connect: Connect) -> None:
    """The connection goes on."""
    stub, request = connect(serve("--limit", "grpc_metadata_bytes_max=1KiB")), pb.GetStatusRequest(queue="beside")
    await enqueue(stub, "beside")
    metadata = (("authorization", "Basic " + "x" * 1024),)
    assert (await refused(stub.GetStatus(request, metadata=metadata)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await stub.GetStatus(request)).queue.ready == 1


async def test_there_are_as_many_calls_and_connections_as_the_limits_say(serve: Serve, connect: Connect) -> None:
    """One more is refused, and those that are there go on."""
    served = serve("--limit", "grpc_calls_max=2", "--limit", "grpc_connections_max=1")
    stub, other = connect(served), connect(served)
    works = [await Working(stub, pb.Subscription(queue="few")).begin() for _ in range(2)]
    assert (await refused(enqueue(stub, "few")))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await refused(enqueue(other, "few")))[0] is grpc.StatusCode.UNAVAILABLE
    works[0].call.cancel()
    while True:
        try:
            sequence = await enqueue(stub, "few")
        except aio.AioRpcError:  # the end of the first stream is not known to the broker yet
            continue
        break
    assert [message.sequence for message in await works[1].take(1)] == [sequence]


# Starting.


def run(code: str, *options: str, place: Path) -> "subprocess.CompletedProcess[str]":
    """Run `penstock serve` until it ends by itself, after some code."""
    command = [sys.executable, "-c", f"{code}\nfrom penstock.cli import app; app()", "serve", *options]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_without_its_library_it_is_left_out_unless_it_was_asked_for(tmp_path: Path) -> None:
    """Then one sentence says what to install."""
    without = "import sys; sys.modules['grpc'] = None"
    done = run(without, "--grpc-listen", "127.0.0.1:0", "--store", "memory", place=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'penstock: --grpc-listen needs more parts: pip install "penstock[grpc]"\n'
    ended = f"{without}\nimport penstock.server.succession as s\ns.Succession.run = lambda *_: s.asyncio.sleep(0)"
    done = run(ended, "--store", "memory", "--log-level", "info", place=tmp_path)
    assert done.returncode == 0
    assert "INFO penstock.grpc: gRPC is not spoken" in done.stderr


def test_others_are_let_in_only_where_they_have_to_log_in(tmp_path: Path) -> None:
    """As at every door."""
    done = run("", "--grpc-listen", "0.0.0.0:0", place=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("penstock: --grpc-listen 0.0.0.0:0 can be reached from other machines")


def test_an_address_in_use_is_told(served: Served, tmp_path: Path) -> None:
    """With the code of failure, and nothing of what the library says of it."""
    others = ("--listen", "127.0.0.1:0", "--stomp-listen", "none", "--data", "data")
    done = run("", "--grpc-listen", served.grpc, *others, place=tmp_path)
    assert done.returncode == 1
    fault = f"cannot listen on {served.grpc} (--grpc-listen): Address already in use; is another program there?"
    assert done.stderr == f"penstock: {fault}\n"


async def test_leases_outlast_a_broker_that_was_killed(serve: Serve, connect: Connect) -> None:
    """They count from zero again; what was polled can be completed, and by nobody but who has it."""
    served = serve(*FREE_PORTS)
    stub = connect(served)
    await enqueue(stub, "kept")
    answer = await poll(stub, "kept", sync=pb.CONFIRM_SYNC)
    await asyncio.to_thread(served.revive)
    stub = connect(served)
    assert (await status(stub, "kept")).assigned == 1
    stale = pb.Lease()
    stale.CopyFrom(answer.lease)
    stale.attempt += 1
    assert (await refused(stub.CompletePoll(pb.CompletePollRequest(lease=stale))))[1] == "NotAssigned"
    assert await complete(stub, answer.lease) == (True, False)
