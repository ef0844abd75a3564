"""The approach: finds the host that serves among those that a client was given, and notices when it does so no longer.

Of several brokers on one store one serves. The others refuse, or are gone, or hang: then they take a connection and say
nothing. So the hosts are tried a moment apart, and the first that says hello is the one.
"""

import asyncio
from asyncio import Future, Task
from collections.abc import Callable, Sequence
from ssl import SSLContext

from penstock.client.errors import error_of
from penstock.client.link import Link
from penstock.model.errors import Unavailable
from penstock.protocols.native.bincode import written
from penstock.protocols.native.messages import Answer, Hello, Ping, Refusal

#: In these a host has to say hello before the next is tried as well.
MOMENT_SECONDS = 0.25
#: How often a host is asked whether it is there if there are others, and how often it may leave that unanswered. Hosts
#: are counted out, not timed: a loop that was blocked has not heard what was said meanwhile.
PING_SECONDS, PINGS_MAX = 0.4, 4
_PING = written(Ping())

Host = tuple[str, int]


async def approach(hosts: Sequence[Host], tls: SSLContext | None, patience_seconds: float) -> tuple[Host, Link]:
    """Return the first host that says hello, and a connection; raises what the last one has said or done instead.

    Once all are tried, the patience is for those that have said nothing yet: somebody else may serve by now.
    """
    waiting = list(hosts)
    attempts: set[Task[tuple[Host, Link]]] = set()
    error: BaseException | None = None
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(asyncio.ensure_future(_greeted(waiting.pop(0), tls)))
            seconds = MOMENT_SECONDS if waiting else patience_seconds
            done, attempts = await asyncio.wait(attempts, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            found = [task.result() for task in done if task.exception() is None]
            for _, link in found[1:]:
                link.close()
            if found:
                return found[0]
            error = next((task.exception() for task in done), error)
            if not done and not waiting:
                break
    finally:
        for task in attempts:
            task.cancel()
    raise error or Unavailable("no host has said hello in time", key="url")


async def _greeted(host: Host, tls: SSLContext | None) -> tuple[Host, Link]:
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
