"""Every limit of the server, with its default and its reason; those of messages and channels stand in `model.limits`."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class ServerLimits:
    """Limits that an operator may set."""

    #: Connections at all doors together; fewer if the system allows fewer open files.
    connections_max: int = 50_000
    #: Seconds in which a stranger has to say which protocol it speaks, and to finish its TLS handshake.
    first_bytes_seconds: float = 10.0
    #: Seconds in which a peer that does not read has to take at least something of what waits for it.
    stalled_seconds: float = 60.0
    #: Bytes that may wait for a peer that does not read while it goes on sending; then nothing is read from it either.
    unread_bytes_max: int = 8 * 2**20
    #: Request line and headers of an HTTP request; cookies of other programs on the same host count too.
    http_head_bytes_max: int = 64 * 2**10
    #: Bodies of HTTP requests are settings and filters, not messages.
    http_body_bytes_max: int = 2**20
    #: Seconds in which a request has to be there whole, and after which a connection without one is closed.
    http_request_seconds: float = 30.0
    http_idle_seconds: float = 75.0
    #: A message on a WebSocket, fragments together and unpacked: bodies may be JSON arrays of numbers there.
    websocket_message_bytes_max: int = 68 * 2**20
    #: Before a login nobody has anything long to say.
    websocket_stranger_bytes_max: int = 64 * 2**10
    #: Connections at the door of gRPC, which its library counts by itself.
    grpc_connections_max: int = 10_000
    #: Calls at a time, streams among them: of one connection, and of all together.
    grpc_streams_max: int = 1_000
    grpc_calls_max: int = 10_000
    #: Of these, calls of health and reflection, which need no login.
    grpc_stranger_calls_max: int = 1_000
    #: What a call says beside its messages: a login, and what libraries add.
    grpc_metadata_bytes_max: int = 16 * 2**10
    #: Seconds after which a connection without a call is closed; clients open another by themselves.
    grpc_idle_seconds: float = 300.0
    #: Seconds after which a peer of which nothing was heard is asked whether it is there, and how often it may ask.
    grpc_alive_seconds: float = 60.0
    grpc_ping_seconds_min: float = 10.0
    #: Seconds in which a peer has to answer the end: of a WebSocket, and of a connection.
    closing_seconds: float = 5.0
    #: Secrets looked at in one moment, and those that may wait for it: each costs 20 ms of a core and 19 MiB.
    logins_at_once_max: int = 2
    logins_waiting_max: int = 2_000
    #: Seconds for which a secret that was right is not looked at again.
    login_kept_seconds: float = 60.0
