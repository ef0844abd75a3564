"""The approach: finds the host that serves among those that a client was given, and notices when it does so no longer.

Of several brokers on one store one serves. The others refuse, or are gone, or hang: then they take a connection and say
nothing. So the hosts are tried a moment apart, and the first that says hello is the one.
"""

import asyncio
import random
from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from ssl import SSLContext
from typing import TypeAlias

from penstock.client.errors import error_of
from penstock.client.link import Link
from penstock.model.errors import Unavailable
from penstock.protocols.native.bincode import written
from penstock.protocols.native.messages import Answer, Hello, Ping, Refusal

#: In these a host has to say hello before the next is tried as well.
MOMENT_SECONDS = 0.25
#: How often a host is asked whether it is there if there are others, and how often it may leave that unanswered. Hosts
#: are counted out, not timed: a loop that was blocked has not heard what was said meanwhile.
PING_SECONDS, PINGS_MAX = 0.35, 4
_PING = written(Ping())

#: Between attempts to connect: the first wait, the longest, and how they grow. A broker that has come back is found by
#: the time that it was away and half as long again.
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, BACKOFF_FACTOR = 0.05, 5.0, 1.5

Host = tuple[str, int]
Found: TypeAlias = tuple[Host, Link]
Note: TypeAlias = Callable[[Exception], object]


async def approach(hosts: Sequence[Host], tls: SSLContext | None, note: Note, patience_seconds: float) -> Found:
    """Return the first host that says hello and a connection to it, however long that takes.

    `note` is told what the others have said or done instead. One that says nothing is asked anew after the patience.
    """
    attempts = {
        asyncio.ensure_future(_insist(host, place * MOMENT_SECONDS, tls, note, patience_seconds))
        for place, host in enumerate(hosts)
    }
    wanted = 0
    try:
        await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
        wanted = 1
    finally:
        for attempt in attempts:
            attempt.cancel()
        ended = await asyncio.gather(*attempts, return_exceptions=True)
        found = [one for one in ended if not isinstance(one, BaseException)]
        for _, link in found[wanted:]:
            link.close()
    if not found:
        raise next(one for one in ended if isinstance(one, Exception))
    return found[0]


async def _insist(
    host: Host, wait_seconds: float, tls: SSLContext | None, note: Note, patience_seconds: float
) -> Found:
    """Try one host again and again until it says hello."""
    await asyncio.sleep(wait_seconds)
    waits = backoff()
    while True:
        try:
            async with asyncio.timeout(patience_seconds):
                return await _greeted(host, tls)
        except (OSError, Unavailable) as error:
            note(error)
        await asyncio.sleep(next(waits))


def backoff() -> Iterator[float]:
    """Return the seconds to wait before each further attempt; not the same for all clients, that not all come at once."""
    longest = BACKOFF_SECONDS
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311  # nobody gains by guessing it
        longest = min(BACKOFF_SECONDS_MAX, BACKOFF_FACTOR * longest)


async def _greeted(host: Host, tls: SSLContext | None) -> Found:
    """Return a host, and a connection over which it has said hello."""
    loop = asyncio.get_running_loop()
    greeting = _Greeting(loop.create_future())
    _, link = await loop.create_connection(lambda: Link(greeting.take, greeting.lost), *host, ssl=tls)
    try:
        await greeting.hello
    except BaseException:
        link.close()
        raise
    return host, link


class _Greeting:
    """What is said first on a connection."""

    def __init__(self, hello: "Future[Answer]") -> None:
        self.hello = hello

    def take(self, answer: Answer) -> None:
        if self.hello.done():
            return
        if isinstance(answer, Hello):
            self.hello.set_result(answer)
        elif isinstance(answer, Refusal):
            self.hello.set_exception(error_of(answer))

    def lost(self, link: Link) -> None:  # noqa: ARG002  # there is one only
        if not self.hello.done():
            self.hello.set_exception(Unavailable("the connection was lost", key="connection"))


async def attend(current: Callable[[], Link | None]) -> None:
    """Ask the host of the current connection again and again, and give it up when it does not answer."""
    asked, unanswered = None, 0
    while True:
        await asyncio.sleep(PING_SECONDS)
        link = current()
        if link is None:
            continue
        unanswered = unanswered + 1 if link is asked and not link.was_heard() else 0
        if unanswered >= PINGS_MAX:
            link.abort()
        asked = link
        link.send(_PING)
