"""The embedded broker shown to a person, step by step: `python -m penstock.demo`, or `make demo`.

Everything printed is read back from a broker that runs while you watch; nothing here is told from memory.
"""

import argparse
import asyncio
import sys
import tempfile
import textwrap
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from penstock import Broker, PenstockError, __version__
from penstock.model.message import Message
from penstock.runtime.subscription import Subscription

#: How long a step waits for a message that must come; far more than it takes.
PATIENCE_SECONDS = 5.0
#: How many messages the measurement passes through, of what size, and how many publishers wait at once.
MEASURED_MESSAGES = 20_000
MEASURED_BYTES = 100
IN_FLIGHT = 500


class DemoFailed(Exception):
    """The broker did something else than this demonstration says."""


def headline(number: int, text: str) -> None:
    """Begin a step."""
    print(f"\n{number}. {text}")


def tell(text: str) -> None:
    """Say in a sentence what happens."""
    print(textwrap.fill(text, width=100, initial_indent="   ", subsequent_indent="   "))


def show(call: str, result: str = "") -> None:
    """Show a call as one would write it, and what came back."""
    print(f"     > {call}" + (f"\n       {result}" if result else ""))


def expect(condition: object, what: str) -> None:
    """Stop with a sentence where the broker did not do what was announced."""
    if not condition:
        raise DemoFailed(what)


async def take(broker: Broker, queue: str, body: bytes) -> Message:
    """Poll the queue for the message that must come now."""
    message = await broker.poll(queue, tags=["eu"], wait=PATIENCE_SECONDS)
    if message is None or message.body != body:
        raise DemoFailed(f"poll({queue!r}) gave {message!r}, not the message {body!r}")
    return message


async def show_queue(broker: Broker) -> None:
    """Publish three orders to a queue and work on the most urgent first."""
    headline(1, "A queue: every message is worked on by one client at a time.")
    await broker.create_queue("orders", tags=["eu"], retry_limit=2)
    show('create_queue("orders", tags=["eu"], retry_limit=2)')
    for body, priority in [(b"flour", 4), (b"bran", 4), (b"bread, hot", 9)]:
        await broker.enqueue("orders", body, tags=["eu"], priority=priority)
        show(f'enqueue("orders", {body!r}, tags=["eu"], priority={priority})')
    tell("Each enqueue returned when its message was on disk. The highest priority goes first, then the oldest:")
    for expected in [b"bread, hot", b"flour"]:
        message = await take(broker, "orders", expected)
        show('poll("orders", tags=["eu"])', f"{message.body!r}  priority {message.priority}, attempt {message.attempt}")
        await broker.complete(message)
        show("complete(message)")
    tell("A completed message is gone for good; that too is on disk before complete() returns.")


async def show_failures(broker: Broker) -> None:
    """Fail the third order until it is dead-lettered."""
    headline(2, "A failure: the message is tried again, and then put aside.")
    for attempt in [1, 2]:
        message = await take(broker, "orders", b"bran")
        expect(message.attempt == attempt, f"attempt {message.attempt} came instead of {attempt}")
        show('poll("orders", tags=["eu"])', f"{message.body!r}  attempt {message.attempt}")
        await broker.fail(message, reason="the oven is cold")
        show('fail(message, reason="the oven is cold")')
    tell("retry_limit is 2, so after the second failure it went to the dead letter queue, with its story in headers:")
    dead = await take(broker, "DLQ.orders", b"bran")
    show('poll("DLQ.orders", tags=["eu"])', repr(dead.body))
    for name, value in dead.headers.items():
        print(f"         {name}: {value}")
    await broker.complete(dead)


async def read_news(broker: Broker, archive: Subscription, count: int) -> list[bytes]:
    """Take and complete that many messages of the subscription; return their bodies."""
    bodies: list[bytes] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(bodies) < count:
            message = await anext(archive)
            bodies.append(message.body)
            await broker.complete(message)
    return bodies


async def show_topic(broker: Broker) -> None:
    """Publish to a topic while its durable subscriber is there, and while it is away."""
    headline(3, "A topic: every subscriber gets every message, a durable one also those it missed.")
    async with broker.subscribe(topic="news.*", durable="archive") as archive:
        show('subscribe(topic="news.*", durable="archive")')
        await broker.publish("news.eu", b"the river rises")
        read = await read_news(broker, archive, 1)
        show('publish("news.eu", b"the river rises")', f"archive reads {read!r}, and goes away")
    for body in [b"the gate opens", b"the wheel turns"]:
        await broker.publish("news.eu", body)
        show(f'publish("news.eu", {body!r})', "nobody listens")
    async with broker.subscribe(topic="news.*", durable="archive") as archive:
        missed = await read_news(broker, archive, 2)
    expect(missed == [b"the gate opens", b"the wheel turns"], f"the durable subscriber missed something: {missed!r}")
    show('subscribe(topic="news.*", durable="archive")', f"archive is back, and reads {missed!r}")


async def show_restart(data: str) -> None:
    """Close the broker with a message in it, open it anew, and take the message."""
    headline(4, "A restart: what was confirmed is still there.")
    async with Broker.open(data) as broker:
        await broker.enqueue("orders", b"cake", tags=["eu"])
        show('enqueue("orders", b"cake", tags=["eu"])')
    tell("The broker is closed. Another one opens the same directory:")
    async with Broker.open(data) as broker:
        message = await take(broker, "orders", b"cake")
        published = datetime.fromtimestamp(message.published_at, UTC)
        show('poll("orders", tags=["eu"])', f"{message.body!r}  published at {published:%H:%M:%S} UTC")
        await broker.complete(message)


async def publish_all(broker: Broker, remaining: deque[bytes], delays: list[float]) -> None:
    """Enqueue what remains, one after the other, each awaited until it is on disk."""
    while remaining:
        started = perf_counter()
        await broker.enqueue("measured", remaining.popleft())
        delays.append(perf_counter() - started)


async def consume_all(broker: Broker, count: int) -> None:
    """Take that many messages and complete each, many completions under way at once."""
    under_way: set[asyncio.Task[object]] = set()
    async with broker.subscribe("measured", credit=2 * IN_FLIGHT) as messages:
        for _ in range(count):
            task = asyncio.ensure_future(broker.complete(await anext(messages)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)


async def measure(broker: Broker, count: int) -> str:
    """Pass messages through a queue as fast as this machine can, each one on disk twice; return a sentence."""
    await broker.create_queue("measured")
    remaining = deque([b"x" * MEASURED_BYTES] * count)
    delays: list[float] = []
    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(consume_all(broker, count))
        for _ in range(IN_FLIGHT):
            group.create_task(publish_all(broker, remaining, delays))
    seconds = perf_counter() - started
    delays.sort()
    return (
        f"{count:,} messages of {MEASURED_BYTES} bytes in {seconds:.2f} s: {count / seconds:,.0f} a second, "
        f"{IN_FLIGHT} publishers at once; a confirmation took {delays[count // 2] * 1e3:.1f} ms (median), "
        f"{delays[count * 99 // 100] * 1e3:.1f} ms (99 of 100)."
    )


async def demonstrate(data: str, count: int) -> None:
    """Go through all steps with a broker in the directory."""
    print(f"Penstock {__version__}, embedded: a broker inside this process, without a server.")
    print(f"Its journal is in {data}.")
    async with Broker.open(data) as broker:
        await show_queue(broker)
        await show_failures(broker)
        await show_topic(broker)
    await show_restart(data)
    headline(5, "How fast: every message published, confirmed on disk, delivered, and completed on disk.")
    async with Broker.open(data) as broker:
        tell(await measure(broker, count))
    print("\nThat was the embedded broker; the network doors come next. README.md shows how to use it in your program.")


async def only_measure(data: str, count: int) -> None:
    """Measure, and say nothing else."""
    async with Broker.open(data) as broker:
        print(await measure(broker, count))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m penstock.demo", description="See the embedded broker at work.")
    parser.add_argument("--data", metavar="DIR", type=Path, help="keep the journal there, not in a passing directory")
    parser.add_argument("--measure", action="store_true", help="only measure how many messages a second pass through")
    parser.add_argument("--messages", metavar="N", type=int, default=MEASURED_MESSAGES, help="how many to measure with")
    options = parser.parse_args(argv)
    if options.messages < 1:
        parser.error("--messages must be at least 1")
    return options


def quick_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the faster event loop where it is installed (`penstock[fast]`), else None for asyncio's own."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 0 when the broker did what it says."""
    options = arguments(argv)
    play = only_measure if options.measure else demonstrate
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-") as passing,
            asyncio.Runner(loop_factory=quick_loop()) as runner,
        ):
            runner.run(play(str(options.data or passing), options.messages))
    except ExceptionGroup as group:
        print(f"\nThe measurement ended early: {group.exceptions[0]}", file=sys.stderr)
        return 1
    except (DemoFailed, PenstockError, TimeoutError) as error:
        print(f"\nThe demonstration ended early: {str(error) or 'a message did not come in time'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
