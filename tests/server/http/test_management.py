"""What operators ask about queues and topics."""

import asyncio
import json
from pathlib import Path
from typing import Any

from penstock import Broker
from penstock.model.access import Access, Action
from penstock.server.http.management import LOOKS_PER_TURN, Management
from penstock.server.http.messages import Request
from penstock.server.users import User, UserFile, hashed
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.http.test_site import asked, basic
from tests.stomp_wire import Wire


def told(served: Served, path: str, *headers: str) -> Any:
    """Return what is answered in JSON."""
    response = asked(served, path, *headers)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    return json.loads(response.body)


async def test_the_state_of_a_queue_is_told(serve: Serve) -> None:
    """By name and tags; who publishes, consumes, and what waits."""
    served = serve()
    wire = await Wire.open(served.stomp)
    for tags in ("", "eu", "eu,fast"):
        await wire.confirmed("SEND", {"destination": "/queue/orders", **({"tags": tags} if tags else {})}, b"12345")
    await wire.confirmed("SEND", {"destination": "/queue/a b/ü"}, b"")
    wire.send("SUBSCRIBE", {"id": "1", "destination": "/queue/orders", "tags": "eu", "ack": "client-individual"})
    await wire.message()

    plain = told(served, "/status/orders")
    assert (plain["queue"], plain["tags"], plain["ready"], plain["assigned"], plain["bytes"]) == ("orders", [], 1, 0, 5)
    assert (plain["publishers"], plain["consumers"], plain["settings"]["retry_limit"]) == (1, 0, 5)
    taken = told(served, "/status/orders?tags=eu")
    assert (taken["tags"], taken["ready"], taken["assigned"], taken["consumers"]) == (["eu"], 0, 1, 1)
    assert told(served, "/status/orders?tags=fast,eu,fast")["ready"] == 1
    assert told(served, "/status/a%20b/%C3%BC")["queue"] == "a b/ü"
    assert asked(served, "/status/orders?tags=fast").status == 404
    queues = told(served, "/api/v1/queues")["queues"]
    assert [(queue["queue"], queue["tags"]) for queue in queues] == [
        ("a b/ü", []), ("orders", []), ("orders", ["eu"]), ("orders", ["eu", "fast"])
    ]  # fmt: skip
    await wire.close()


async def test_topics_are_told_with_their_publishers_and_subscribers(serve: Serve) -> None:
    """Number, names, who is there, how many messages."""
    served = serve()
    subscriber, publisher = await Wire.open(served.stomp), await Wire.open(served.stomp)
    await subscriber.confirmed("SUBSCRIBE", {"id": "1", "destination": "/topic/news.eu", "ack": "client-individual"})
    for topic in ("news.eu", "news.us"):
        await publisher.confirmed("SEND", {"destination": f"/topic/{topic}"}, b"123")
    await subscriber.message()

    found = told(served, "/api/v1/topics")
    assert (found["number"], found["names"]) == (2, ["news.eu", "news.us"])
    heard, unheard = found["topics"]
    assert (heard["publishers"], len(heard["subscribers"]), heard["kept"]) == (1, 1, 1)
    assert (unheard["publishers"], unheard["subscribers"], unheard["kept"]) == (1, [], 0)
    overview = told(served, "/api/v1/overview")
    assert (overview["topics"]["number"], overview["topics"]["subscribers"], overview["connections"]) == (2, 1, 2)
    assert overview["store"] == {"durable": False, "failure": None}
    await subscriber.close()
    await publisher.close()


async def test_everybody_sees_what_they_administer(serve: Serve, tmp_path: Path) -> None:
    """And that there is nothing else."""
    file = UserFile(tmp_path / "users.toml")
    file.add(User("boss", hashed("1"), {action: ["*"] for action in Action}))
    file.add(User("clerk", hashed("2"), {Action.ADMINISTER: ["orders", "news.*"]}))
    served = serve("--users", str(file.path))
    wire = await Wire.open(served.stomp, login="boss", passcode="1")
    for destination in ("/queue/orders", "/queue/secret", "/topic/news.eu", "/topic/secret"):
        await wire.confirmed("SEND", {"destination": destination}, b"1")

    clerk = basic("clerk", "2")
    assert [queue["queue"] for queue in told(served, "/api/v1/queues", clerk)["queues"]] == ["orders"]
    assert told(served, "/api/v1/topics", clerk)["names"] == ["news.eu"]
    overview = told(served, "/api/v1/overview", clerk)
    assert (overview["queues"]["names"], overview["queues"]["ready"], overview["topics"]["number"]) == (
        ["orders"],
        1,
        1,
    )
    assert told(served, "/api/v1/overview", basic("boss", "1"))["queues"]["names"] == ["orders", "secret"]
    await wire.close()


async def test_others_have_their_turns_while_much_is_told() -> None:
    """However many queues and topics there are."""
    async with Broker.open("memory:") as broker:
        for number in range(LOOKS_PER_TURN * 10):
            await broker.create_queue(f"q{number}")
            await broker.publish(f"t{number}", b"")
        management = Management(broker._runtime, "1")
        for handler in (management.queues, management.topics, management.overview):
            telling = asyncio.create_task(handler(Request("GET", "/", {}, {}, b"", Access.to_all("guest"))))
            turns = 0
            while not telling.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns >= 10
            assert (await telling).status == 200
