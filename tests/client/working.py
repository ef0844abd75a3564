"""A program with a worker that tells when it works, and ends its message when it has been told to stop."""

import asyncio
import sys

import penstock
from penstock.client.worker import Workers


def say(word: str) -> None:
    """Tell the test."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(url: str) -> None:
    """Work until SIGTERM."""
    async with penstock.connect(url) as broker:
        await broker.enqueue_many("terminated", [b"x"] * 5)
        workers = Workers(broker)

        @workers.on("terminated")
        async def handle(message: penstock.Message) -> None:
            say("working")
            await workers._is_stopped.wait()
            say("done")

        await workers.run()


asyncio.run(main(sys.argv[1]))
