"""One connection: what another thread sends on it while the event loop is blocked or busy."""

import asyncio
import os
import socket
import threading

import pytest

from penstock.client import link as module
from penstock.client.link import Link
from penstock.protocols.native.streams import PREFACE

REQUEST = b"\x10\0\0\0\0"
FRAME = b"\0\0\0\x05" + REQUEST


async def linked() -> tuple[Link, socket.socket]:
    """Return a link, and its other end."""
    listener = socket.create_server(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(
        lambda: Link(lambda answer: None, lambda link: None), *listener.getsockname()
    )
    other, _ = listener.accept()
    listener.close()
    other.settimeout(10)
    assert other.recv(100) == PREFACE
    return link, other


def received(other: socket.socket, size: int) -> bytes:
    """Return so many bytes."""
    data = b""
    while len(data) < size:
        data += other.recv(size - len(data))
    return data


async def end(link: Link, other: socket.socket) -> None:
    """Close both ends."""
    link.close()
    other.close()
    while link._descriptor is not None:  # noqa: ASYNC110  # the link tells nobody
        await asyncio.sleep(0)


async def test_another_thread_sends_while_the_loop_is_blocked() -> None:
    """It has gone out before the loop comes round."""
    link, other = await linked()
    thread = threading.Thread(target=link.send_from_thread, args=(REQUEST,))
    thread.start()
    thread.join()
    assert received(other, len(FRAME)) == FRAME
    await end(link, other)


@pytest.mark.parametrize("sent", range(len(FRAME)))
async def test_what_does_not_fit_goes_before_all_else(monkeypatch: pytest.MonkeyPatch, sent: int) -> None:
    """A frame that went out in part is not torn by what the loop sends next."""
    link, other = await linked()
    really = os.write
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: really(descriptor, data[:sent]))
    link.send(b"first")
    link.send_from_thread(REQUEST)
    link.send_from_thread(REQUEST)  # not before the first is whole
    link.send(b"second")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    frames = FRAME + b"\0\0\0\x05first\0\0\0\x06second"
    assert received(other, len(frames)) == frames
    await end(link, other)


async def test_a_full_socket_takes_nothing_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is renewed the next time."""
    link, other = await linked()

    def full(descriptor: int, data: bytes) -> int:
        raise BlockingIOError

    monkeypatch.setattr(module.os, "write", full)
    link.send_from_thread(REQUEST)
    link.send(b"next")
    await asyncio.sleep(0)
    assert received(other, 8) == b"\0\0\0\x04next"
    await end(link, other)


async def test_a_broker_whose_machine_is_gone_is_found_out() -> None:
    """By TCP itself, within a minute or so: a client that waits for messages has nothing to say."""
    link, other = await linked()
    own = link._transport.get_extra_info("socket")
    assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    if hasattr(socket, "TCP_KEEPIDLE"):
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, interval, count = (own.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert idle + interval * count <= 60
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert 0 < own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000
    await end(link, other)
