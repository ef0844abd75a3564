"""What idle connections cost: the memory of each, and the throughput that others keep beside them.

The load runs beside them and without them, in turns on one broker; the best rounds count. Their memory is that of the first.
Processor time for a message hardly moves with what else the machine does, and says the same more steadily.
"""

import argparse
import resource
import socket
from statistics import median

from brokers import Penstock, Served, load
from harness import bar, describe_machine, directory, parser, progress, table

CONNECTIONS = 10_000
BYTES_MAX = 25_000
THROUGHPUT_MIN = 0.9
MESSAGES = 200_000
ROUNDS = 3


def connected(port: int, count: int, beats_ms: int) -> list[socket.socket]:
    """Open so many connections that log in, and then say nothing."""
    login = f"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,{beats_ms}\n\n\0".encode()
    connections = []
    for at in range(count):
        if at % 100 == 0:
            progress(f"{at} idle connections")
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(login)
        answer = b""
        while not answer.endswith(b"\0"):
            piece = connection.recv(4096)
            if not piece:
                raise SystemExit(f"after {at} connections the broker said {answer!r}")
            answer += piece
        connections.append(connection)
    return connections


def measured(broker: Served, name: str, messages: int) -> tuple[float, float]:
    """Return messages a second, and processor time for a message."""
    found = load(broker, name, messages, "--window", "500", "--name", name)
    return found["received_per_second"], found["cpu_us"]


def compare(broker: Served, options: argparse.Namespace) -> None:
    """Measure with and without idle connections in turns, and print it."""
    alone, beside, each = [], [], 0.0
    for at in range(options.rounds):
        memory = broker.memory
        idle = connected(broker.port, options.connections, options.heart_beat)
        each = each or (broker.memory - memory) / options.connections  # later ones use what the first have left
        beside.append(measured(broker, f"beside{at}", options.messages))
        for connection in idle:
            connection.close()
        alone.append(measured(broker, f"alone{at}", options.messages))

    kept = max(rate for rate, _ in beside) / max(rate for rate, _ in alone)
    times = median(cpu for _, cpu in beside) / median(cpu for _, cpu in alone)
    rows = [
        ["memory of one, bytes", round(each), bar(each, BYTES_MAX, at_least=False)],
        ["messages/s without them", max(rate for rate, _ in alone), ""],
        ["messages/s beside them", max(rate for rate, _ in beside), ""],
        ["of the throughput without them", f"{kept:.0%}", bar(kept, THROUGHPUT_MIN)],
        ["of the processor time for a message", f"{times:.0%}", ""],
    ]
    table(f"{options.connections:,} idle connections", ("", "", ""), rows)


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--connections", type=int, default=CONNECTIONS)
    made.add_argument("--messages", type=int, default=MESSAGES, help="of each round")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="with them, and as many without")
    made.add_argument("--heart-beat", type=int, default=0, metavar="MS", help="ask for heart-beats so often")
    options = made.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    describe_machine()
    with directory(options.data) as path, Penstock(path) as broker:
        compare(broker, options)


if __name__ == "__main__":
    main()
