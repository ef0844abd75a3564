"""A soak of heart-beats: clients that give a connection up when it is silent, in the middle of traffic and without any."""

import itertools
import queue
import threading
import time
from typing import Any

import stomp

from tests.served import PATIENCE, Served

#: Seconds between the messages of one client: traffic all the time, and a processor left for others.
PAUSE = 0.02


class Beating(stomp.ConnectionListener):
    """A client of stomp.py that counts what went wrong."""

    def __init__(self, broker: Served, kind: Any, name: str, interval: int) -> None:
        self.destination = f"/queue/{name}"
        self.messages: queue.Queue[str] = queue.Queue()
        self.faults: list[str] = []
        self._is_over = threading.Event()
        address, options = (broker.native, {"ws_path": "/stomp"}) if kind is stomp.WSConnection else (broker.stomp, {})
        self.connection = kind([address], heartbeats=(interval, interval), **options)
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)
        self.connection.subscribe(self.destination, id="1", ack="auto")

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame.body)

    def on_error(self, frame: Any) -> None:
        self.faults.append(frame.body)

    def on_heartbeat_timeout(self) -> None:
        self.faults.append("the client heard no heart-beat in time")

    def on_disconnected(self) -> None:
        if not self._is_over.is_set():
            self.faults.append("the connection was lost")

    def talk(self, until: float) -> None:
        """Send and receive all the time."""
        for number in itertools.count():
            if self.faults or time.monotonic() > until:
                return
            self.connection.send(self.destination, str(number))
            if self.messages.get(timeout=PATIENCE) != str(number):
                self.faults.append(f"the message {number} did not come in its turn")
            self._is_over.wait(PAUSE)

    def end(self) -> None:
        """Send one last message, and go."""
        self.connection.send(self.destination, "last")
        while self.messages.get(timeout=PATIENCE) != "last":
            pass
        self._is_over.set()
        self.connection.disconnect()


def beat(broker: Served, seconds: float, interval: int) -> list[str]:
    """Let clients of each kind beat for so long, one of two in the middle of traffic; returns what went wrong.

    stomp.py gives a connection up after one and a half intervals, which are in milliseconds.
    """
    kinds = (stomp.Connection11, stomp.Connection12, stomp.WSConnection)
    clients = [Beating(broker, kind, f"{kind.__name__}.{how}", interval) for kind in kinds for how in ("busy", "idle")]
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=client.talk, args=(until,)) for client in clients[::2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faults = [f"{client.destination}: {fault}" for client in clients for fault in client.faults]
    for client in clients:
        if not client.faults:
            client.end()
    return faults
