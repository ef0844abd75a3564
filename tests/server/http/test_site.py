"""Who may ask: pages of others and names that others give may not, and users log in where there are any."""

import base64

import pytest

from penstock.model.access import Action
from penstock.server.users import User, UserFile, hashed
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.raw import Raw, Response


def asked(served: Served, path: str, *headers: str, version: str = "1.0", method: str = "GET") -> Response:
    """Return the answer to a request with these headers."""
    lines = [f"{method} {path} HTTP/{version}", *headers, "", ""]
    with Raw(served.native) as peer:
        return peer.send("\r\n".join(lines).encode()).response()


def basic(user: str, secret: str) -> str:
    """Return the header by which HTTP logs in."""
    return "Authorization: Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 200),
        (("Host: localhost",), 200),
        (("Host: LocalHost:8080",), 200),
        (("Host: 127.0.0.1:8080",), 200),
        (("Host: [::1]:8080",), 200),
        (("Host: 192.168.1.7",), 200),
        (("Host: evil.example",), 403),
        (("Host: localhost.evil.example:8080",), 403),
        (("Host: [nonsense",), 403),
        (("Host: localhost:8080", "Origin: http://localhost:8080"), 200),
        (("Host: localhost", "Origin: http://localhost:80"), 200),
        (("Host: localhost:8080", "Origin: http://localhost:3000"), 403),
        (("Host: localhost:8080", "Origin: https://evil.example"), 403),
        (("Host: evil.example", "Origin: http://evil.example"), 403),
        (("Host: localhost", "Origin: null"), 403),
        (("Host: localhost", "Origin: http://[nonsense"), 403),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/overview", "/stomp", "/connect/"])
def test_pages_of_others_do_not_come_in(served: Served, headers: tuple[str, ...], status: int, path: str) -> None:
    """Neither by their own name nor by a name of this machine that is theirs; WebSockets are no exception."""
    response = asked(served, path, *headers)
    if path == "/api/v1/overview":
        assert response.status == status
    else:
        assert response.status == (403 if status == 403 else 426)


def test_an_origin_can_be_let_in(serve: Serve) -> None:
    """It and the host of its name, and nobody else."""
    served = serve("--allow-origin", "https://Mill.example", "--allow-origin", "http://other.example:8080")
    path = "/api/v1/overview"
    assert asked(served, path, "Host: localhost", "Origin: https://mill.example").status == 200
    assert asked(served, path, "Host: mill.example").status == 200
    assert asked(served, path, "Host: other.example:8080").status == 200
    assert asked(served, path, "Host: other.example").status == 403
    assert asked(served, path, "Host: localhost", "Origin: http://mill.example").status == 403
    assert asked(served, path, "Host: evil.example").status == 403


@pytest.mark.parametrize(("path", "status"), [("/api/v1/overview", 200), ("/status/nowhere", 404)])
def test_a_page_that_was_let_in_may_read_the_answer(serve: Serve, path: str, status: int) -> None:
    """Its browser is told so, with errors too; without a page nothing is said of it."""
    served = serve("--allow-origin", "https://mill.example")
    response = asked(served, path, "Host: localhost", "Origin: https://mill.example")
    assert (response.status, response.headers["access-control-allow-origin"]) == (status, "https://mill.example")
    assert response.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in asked(served, path, "Host: localhost").headers


def test_browsers_that_ask_beforehand_are_answered(serve: Serve) -> None:
    """For pages that were let in, and without a login, since browsers send none then."""
    served = serve("--allow-origin", "https://mill.example")
    asks = ("Host: localhost", "Access-Control-Request-Method: DELETE")
    let_in = asked(served, "/api/v1/overview", *asks, "Origin: https://mill.example", method="OPTIONS")
    other = asked(served, "/api/v1/overview", *asks, "Origin: https://evil.example", method="OPTIONS")
    assert (let_in.status, other.status) == (204, 403)
    assert "Authorization" in let_in.headers["access-control-allow-headers"]
    assert "DELETE" in let_in.headers["access-control-allow-methods"]


def test_all_origins_can_be_let_in(serve: Serve) -> None:
    """For those who know what they do."""
    served = serve("--allow-origin", "*")
    assert asked(served, "/api/v1/overview", "Host: evil.example", "Origin: null").status == 200


@pytest.fixture
def with_users(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Return a broker that knows the user mill, who may look at orders alone."""
    path = tmp_path_factory.mktemp("users") / "users.toml"
    UserFile(path).add(User("mill", hashed("grüße: s3cret"), {Action.ADMINISTER: ["orders*"]}))
    return serve("--users", str(path), expected="a login as '(mill|nobody)' was refused")


def test_users_log_in_and_see_what_they_may(with_users: Served) -> None:
    """Strangers are asked who they are; the wrong secret and no user are answered alike."""
    stranger = asked(with_users, "/api/v1/queues")
    assert stranger.status == 401
    assert stranger.headers["www-authenticate"].startswith("Basic ")
    wrong = [asked(with_users, "/api/v1/queues", basic(*login)) for login in (("mill", "x"), ("nobody", "x"))]
    assert [response.status for response in wrong] == [401, 401]
    assert wrong[0].body == wrong[1].body
    login = basic("mill", "grüße: s3cret")
    assert asked(with_users, "/api/v1/queues", login).body == b'{"queues":[]}\n'
    assert asked(with_users, "/status/orders.eu", login).status == 404
    assert asked(with_users, "/status/other", login).status == 403
    for header in ("Authorization: Bearer x", "Authorization: Basic !", "Authorization: Basic bWlsbA=="):
        assert asked(with_users, "/api/v1/queues", header).status == 400


def test_watchers_need_no_login_and_users_no_honest_host(with_users: Served) -> None:
    """Whether all is well is told to anybody; where users log in, a name of the machine gives nothing away."""
    assert asked(with_users, "/healthz").status == 200
    assert asked(with_users, "/readyz", "Host: mill.example").status == 200
    assert asked(with_users, "/api/v1/queues", "Host: mill.example").status == 401
