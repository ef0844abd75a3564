"""Listening addresses: what an option may say."""

import re
import socket

import pytest

from penstock.model.errors import BadRequest, Unavailable
from penstock.server.listening import Address, bound_socket, parsed_address


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080), True),
        ("127.9.9.9:0", Address("127.9.9.9", 0), True),
        ("localhost:1", Address("localhost", 1), True),
        ("tls:localhost:65535", Address("localhost", 65535, tls=True), True),
        ("[::1]:8080", Address("::1", 8080), True),
        ("tls:[::]:8080", Address("::", 8080, tls=True), False),
        ("0.0.0.0:8080", Address("0.0.0.0", 8080), False),
        ("mill.example:8080", Address("mill.example", 8080), False),
    ],
)
def test_an_address_is_read_and_known_for_what_it_is(text: str, address: Address, is_loopback: bool) -> None:
    """Whether others get there, and back to its text."""
    found = parsed_address(text, "--listen")
    assert found == address
    assert found.is_loopback is is_loopback
    assert str(found) == text.removeprefix("tls:")


@pytest.mark.parametrize("text", ["", "8080", ":8080", "localhost", "localhost:", "a:b", "a:-1", "a:65536", "tls:8080"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    """By a sentence that names the option and shows one."""
    with pytest.raises(BadRequest, match=re.escape(f"--listen is {text!r}; it must be HOST:PORT")):
        parsed_address(text, "--listen")


def test_a_port_that_is_taken_is_told_so() -> None:
    """With a guess why."""
    with bound_socket(Address("127.0.0.1", 0), "--listen") as taken:
        taken.listen()
        address = Address(*taken.getsockname())
        with pytest.raises(Unavailable, match=rf"cannot listen on {address} \(--listen\): .*is another program there"):
            bound_socket(address, "--listen")


def test_an_address_of_others_is_told_so() -> None:
    """Nobody can listen on what is reserved for documentation."""
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1:0") as refused:
        bound_socket(Address("192.0.2.1", 0), "--listen")
    assert "another program" not in str(refused.value)


def test_a_peer_whose_machine_is_gone_is_found_out() -> None:
    """By TCP itself, within two minutes: nothing else asks a peer that holds messages and has nothing to say."""
    with bound_socket(Address("127.0.0.1", 0), "--listen") as listener:
        listener.listen()
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            if hasattr(socket, "TCP_KEEPIDLE"):
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                idle, interval, count = (connection.getsockopt(socket.IPPROTO_TCP, option) for option in options)
                assert idle + interval * count <= 120
