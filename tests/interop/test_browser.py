"""A page in a real browser speaks to the broker: from an allowed origin alone, in both protocols that pages can speak."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import told_by
from tests.served import FREE_PORTS, PATIENCE, Served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

#: Says what it is told to over a WebSocket, and puts all that it hears into `pre#told`.
PAGE = """<!doctype html><meta charset="utf-8"><title>a shop</title><pre id="told"></pre><script type="module">
const heard = {native: [], stomp: [], http: "refused"};
const talk = (path, protocols, opening, answer) => new Promise(done => {
  const socket = new WebSocket("ws://BROKER" + path, protocols);
  socket.onclose = done;
  socket.onopen = () => opening.forEach(one => socket.send(one));
  socket.onmessage = event => {
    const reply = answer(event.data);
    reply === null ? socket.close() : reply.forEach(one => socket.send(one));
  };
});
await talk("/connect/", [], [], text => {
  const told = JSON.parse(text);
  if (told.type === "ok") return [];
  if (told.type === "hello") return [
    JSON.stringify({type: "post", queue: "orders", message: "brötchen", headers: {a: "ü"}, label: 1}),
    JSON.stringify({type: "fetch", queue: "orders", block_timeout: 30, label: 2})];
  heard.native.push(told.type, told.body, told.headers && told.headers.a);
  return null;
});
await talk("/stomp", ["v12.stomp"], ["CONNECT\\naccept-version:1.2\\nhost:mill\\n\\n\\0"], text => {
  const [command] = text.split("\\n");
  if (command === "CONNECTED") return [
    "SUBSCRIBE\\nid:1\\ndestination:/queue/cakes\\n\\n\\0",
    "SEND\\ndestination:/queue/cakes\\n\\nbrötchen\\0"];
  heard.stomp.push(command, text.split("\\n\\n")[1].replace("\\0", ""));
  return null;
});
try { heard.http = (await (await fetch("http://BROKER/api/v1/overview")).json()).queues.number > 0; } catch (_) {}
document.querySelector("#told").textContent = JSON.stringify(heard);
await fetch("/through");
</script><img src="/picture">"""


@contextmanager
def shop(content: dict[str, str]) -> Iterator[str]:
    """Serve a page at an origin of its own; yields the origin.

    The page is not loaded before its picture is, which comes when the page has said that it is through.
    """
    is_through = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/through":
                is_through.set()
            if self.path == "/picture":
                is_through.wait(PATIENCE)
            body = content["page"].encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_of_an_allowed_origin_comes_in_and_others_do_not(tmp_path: Path) -> None:
    """It publishes and consumes by the native protocol and by STOMP, and reads the API; a stranger's page hears nothing."""
    content: dict[str, str] = {}
    with (
        shop(content) as ours,
        shop(content) as strange,
        Served(tmp_path, *FREE_PORTS, "--allow-origin", ours) as served,
    ):
        content["page"] = PAGE.replace("BROKER", "{}:{}".format(*served.native))
        assert told_by(ours, tmp_path) == {
            "native": ["message", "brötchen", "ü"],
            "stomp": ["MESSAGE", "brötchen"],
            "http": True,
        }
        assert told_by(strange, tmp_path) == {"native": [], "stomp": [], "http": "refused"}
