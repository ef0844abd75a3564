"""Settlements: what a client says of the messages in its hands, one by one or as a batch with posts."""

from penstock.engine.port import Outcome, Publish, Settle, check_operations, settle
from penstock.model.errors import PenstockError
from penstock.model.stages import Level
from penstock.protocols.native.messages import (
    Batch,
    Fail,
    Finish,
    Keepalive,
    NoticeOf,
    Ok,
    Operation,
    Post,
    Reject,
    Release,
)
from penstock.protocols.native.peer import Peer, checked_u64
from penstock.protocols.native.publishing import operation_of

LEVELS = {level.value: level for level in Level}
_OUTCOMES = {Finish: Outcome.FINISH, Fail: Outcome.FAIL, Release: Outcome.RELEASE, Reject: Outcome.REJECT}


def finish(peer: Peer, request: Finish, now: float) -> None:
    """Settle a message with success."""
    message = peer.message(request, request.sequence)
    peer.held.remove(message)
    late = message.cursor.finish(message, now)
    if request.response is not None or request.label is not None:
        _tell_finished(peer, request, late=late)


def settle_otherwise(peer: Peer, request: Fail | Release | Reject, now: float) -> None:
    """Settle a message without success, or give it back."""
    message = peer.message(request, request.sequence)
    peer.held.remove(message)
    settle(message, _OUTCOMES[type(request)], _reason(peer, request), now)
    peer.answers.confirm(request.label)


def keepalive(peer: Peer, request: Keepalive, now: float) -> None:
    """Start the lease of a message anew, or all that the peer holds."""
    if request.sequence is None:
        count = peer.engine.keep_alive_all(peer.client, now)
    else:
        message = peer.message(request, request.sequence)
        message.cursor.keep_alive(message, now)
        count = 1
    peer.answers.confirm(request.label, count=count)


def batch(peer: Peer, request: Batch, now: float) -> None:
    """Publish and settle, all or nothing."""
    check_operations(peer.limits, len(request.requests))
    operations: list[Publish | Settle] = []
    for number, one in enumerate(request.requests):
        try:
            operations.append(_operation(peer, one, now))
        except PenstockError as error:
            key = f"requests[{number}]" + (f".{error.key}" if error.key else "")
            raise type(error)(f"{key}: {error.message}; the batch changed nothing", key=key) from None
    if any(isinstance(operation, Publish) for operation in operations):
        peer.port.check_room()
    sequences = peer.engine.transact(operations, peer.client, now)
    for one, operation, sequence in zip(request.requests, operations, sequences, strict=True):
        if isinstance(operation, Settle):
            peer.held.remove(operation.message)
        else:
            peer.bytes += len(operation.body)
        if isinstance(one, Finish) and one.response is not None:
            _tell_finished(peer, one, late=False)
        elif one.label is not None and not (isinstance(one, Post) and one.notify):
            peer.answers.synced.append(peer.answers.writer.ok(one.label, sequence))
    peer.answers.confirm(request.label, Level.SYNC, len(operations))


def _operation(peer: Peer, request: Operation, now: float) -> Publish | Settle:
    checked_u64(request.label or 0, "label")
    if isinstance(request, Post):
        return operation_of(peer, request, now)
    message = peer.message(request, request.sequence)
    return Settle(message, _OUTCOMES[type(request)], _reason(peer, request))


def _reason(peer: Peer, request: Finish | Fail | Release | Reject) -> str:
    reason = request.reason if isinstance(request, Fail | Reject) else ""
    return reason[: peer.limits.reason_characters_max]


def _tell_finished(peer: Peer, request: Finish, *, late: bool) -> None:
    answers, label, response = peer.answers, request.label, request.response
    if late or label is None:
        told = Ok(label=label, late=late) if response is None else NoticeOf(label=label, notice=response, late=late)
        answers.promise(Level.READY if response is None else LEVELS[response], told)
    elif response is None:
        answers.out.append(answers.writer.ok(label, None))
    else:
        answers.notify(LEVELS[response], label, response)
