"""Dead letters: where they go, what they tell, and how they come back to life."""

import pytest

from penstock.engine.dead_letters import Letter, Redriven
from penstock.model.errors import NoObject
from penstock.model.limits import Limits
from penstock.model.names import QueueKey, checked_name
from tests.engine.rig import Rig, key


@pytest.fixture
def rig() -> Rig:
    """Return an engine whose queue q{eu} buries at the first failure."""
    rig = Rig(now=1_700_000_000.0)
    rig.queue("q", "eu", retry_limit=1)
    return rig


def bury(rig: Rig, body: bytes = b"m", **said: object) -> None:
    rig.publish(body, tags=["eu"], **said)  # type: ignore[arg-type]
    rig.fail(rig.taken(tags=["eu"]))


class TestBurying:
    """What a dead letter is."""

    def test_it_tells_its_story(self, rig: Rig) -> None:
        """A dead letter keeps body, priority and headers, and has six more."""
        bury(rig, b"body", priority=7, headers={"a": "b"})
        letter = rig.taken("DLQ.q", ["eu"])

        assert (letter.body, letter.priority, letter.attempt) == (b"body", 7, 1)
        assert letter.headers == {
            "a": "b",
            "original-queue": "q",
            "original-tags": "eu",
            "death-reason": "broken",
            "death-count": "1",
            "first-death-at": "2023-11-14T22:13:20.000+00:00",
            "last-death-at": "2023-11-14T22:13:20.000+00:00",
        }

    def test_a_second_death_counts_on(self, rig: Rig) -> None:
        """Buried again, it keeps its first death and counts up."""
        bury(rig)
        rig.engine.dead_letters.redrive(rig.queue("DLQ.q", "eu"), rig.now, limit=9)
        rig.now += 60.0
        rig.fail(rig.taken(tags=["eu"]), reason="again")
        headers = rig.taken("DLQ.q", ["eu"]).headers

        assert (headers["death-count"], headers["death-reason"]) == ("2", "again")
        assert (headers["first-death-at"][:19], headers["last-death-at"][:19]) == (
            "2023-11-14T22:13:20",
            "2023-11-14T22:14:20",
        )

    @pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
    def test_those_of_a_long_name_can_be_named(self, rig: Rig, name: str) -> None:
        """A name that the prefix would make too long is cut, between two characters."""
        grave = rig.queue(name).settings.dead_letter
        assert grave is not None
        assert checked_name(grave, "queue") == grave
        assert ("DLQ." + name).startswith(grave)

    @pytest.mark.parametrize("count", ["x", "-1", "٣", "9" * 5000])
    def test_a_count_that_a_client_made_up(self, rig: Rig, count: str) -> None:
        """A death count that is none counts as none."""
        bury(rig, headers={"death-count": count})

        assert rig.taken("DLQ.q", ["eu"]).headers["death-count"] == "1"

    def test_a_dead_letter_queue_never_gives_up(self, rig: Rig) -> None:
        """Queues of dead letters have no retry limit and no grave of their own."""
        bury(rig)
        for _ in range(20):
            rig.fail(rig.taken("DLQ.q", ["eu"]))

        assert rig.taken("DLQ.q", ["eu"]).attempt == 21
        assert len(rig.engine.channels.queues) == 2

    def test_the_grave_can_be_chosen(self, rig: Rig) -> None:
        """With `dead_letter` they go to that queue with the same tags; with none they are dropped."""
        rig.engine.alter(key("q", "eu"), rig.now, {"dead_letter": "graves"})
        bury(rig)
        rig.engine.alter(key("q", "eu"), rig.now, {"dead_letter": None})
        bury(rig)

        assert rig.queue("graves", "eu").length == 1
        assert rig.queue("q", "eu").totals.dropped == 2
        assert rig.queue("q", "eu").totals.dead_lettered == 1

    def test_it_is_buried_whatever_the_limits(self) -> None:
        """A grave is made though there are channels enough, and without auto_create."""
        rig = Rig(limits=Limits(channels_max=1))
        rig.publish()
        rig.engine.channels.auto_create = False
        rig.reject(rig.taken())

        assert rig.taken("DLQ.q").body == b"m"

    def test_the_publisher_gets_drop(self, rig: Rig) -> None:
        """The publisher is told of each counted failure but the last as `retry`, and then of the `drop`."""
        rig.engine.alter(key("q", "eu"), rig.now, {"retry_limit": 3})
        rig.publish(tags=["eu"], notify=["retry", "drop", "finish"], label=1)
        for _ in range(3):
            rig.fail(rig.taken(tags=["eu"]))

        assert rig.stages(1) == ["retry", "retry", "drop"]

    def test_it_is_one_record_beside_the_other(self, rig: Rig) -> None:
        """The log has the dead letter's publish and the drop that names it."""
        bury(rig)
        rig.flush()
        drop = next(record for record in rig.log.values() if record[0] == 6)

        assert rig.log[drop[6][13]][7] == b"m"  # type: ignore[index]


class TestRedriving:
    """Back to where they came from."""

    def grave(self, rig: Rig) -> list[bytes]:
        """Return what is in the grave."""
        return rig.drain("DLQ.q", tags=["eu"])

    def redrive(self, rig: Rig, **how: object) -> tuple[int, int]:
        """Redrive what is in the grave."""
        how.setdefault("limit", 99)
        return rig.engine.dead_letters.redrive(rig.queue("DLQ.q", "eu"), rig.now, **how)  # type: ignore[arg-type]

    def test_home(self, rig: Rig) -> None:
        """A redriven message waits again where it came from, with its headers and a new attempt."""
        bury(rig, b"1", headers={"a": "b"})
        bury(rig, b"2")

        assert self.redrive(rig) == (2, 0)
        message = rig.taken(tags=["eu"])
        assert (message.body, message.attempt, message.headers["a"]) == (b"1", 1, "b")
        assert self.grave(rig) == []
        assert rig.queue("DLQ.q", "eu").totals.dead_lettered == 0

    def test_those_wanted_up_to_a_limit(self, rig: Rig) -> None:
        """A filter passes over what it does not want, and no more than the limit are moved."""
        for number in range(5):
            bury(rig, b"%d" % number, headers={"n": str(number)})
        wanted = rig.selector(lambda headers: headers["n"] != "0")

        assert self.redrive(rig, limit=2, wanted=wanted) == (2, 1)
        assert self.grave(rig) == [b"0", b"3", b"4"]

    def test_a_dry_run_moves_nothing(self, rig: Rig) -> None:
        """A dry run tells what would be moved."""
        bury(rig)
        before = rig.engine.effects.position

        assert self.redrive(rig, dry_run=True) == (1, 0)
        assert rig.engine.effects.position == before

    def test_to_another_queue(self, rig: Rig) -> None:
        """With a target they go there, though their origin is unknown."""
        rig.publish(b"stray", name="DLQ.q", tags=["eu"])
        bury(rig)
        assert self.redrive(rig, dry_run=True) == (1, 1)

        assert self.redrive(rig, target=key("other")) == (2, 0)
        assert rig.drain("other") == [b"stray", b"m"]

    def test_no_room(self, rig: Rig) -> None:
        """For whom there is no room stays buried."""
        bury(rig, b"1")
        bury(rig, b"2")
        rig.engine.alter(key("q", "eu"), rig.now, {"max_length": 1})

        assert self.redrive(rig) == (1, 1)
        assert self.grave(rig) == [b"2"]

    def test_no_home_any_more(self, rig: Rig) -> None:
        """Without auto_create those whose queue was deleted stay, and an unknown target is an error at once."""
        bury(rig)
        rig.engine.delete(key("q", "eu"), rig.now)
        rig.engine.channels.auto_create = False

        assert self.redrive(rig) == (0, 1)
        with pytest.raises(NoObject):
            self.redrive(rig, target=key("none"))
        assert self.grave(rig) == [b"m"]

    def test_assigned_and_returned_ones(self, rig: Rig) -> None:
        """What somebody works on stays; what came back goes."""
        bury(rig, b"1")
        bury(rig, b"2")
        returned, held = rig.taken("DLQ.q", ["eu"]), rig.taken("DLQ.q", ["eu"])
        rig.release(returned)

        assert self.redrive(rig) == (1, 0)
        rig.finish(held)
        assert rig.drain(tags=["eu"]) == [b"1"]


class TestRedrivingSome:
    """How chosen dead letters come back, with what they had in life."""

    def redrive(self, rig: Rig, *letters: Letter, where: QueueKey | None = None) -> Redriven:
        """Redrive letters of the grave."""
        grave = rig.queue("DLQ.q", "eu")
        return rig.engine.dead_letters.redrive_these(grave, list(letters), where or key("q", "eu"), rig.now)

    def letters(self, rig: Rig, *bodies: bytes) -> list[Letter]:
        """Bury messages; returns their dead letters."""
        for body in bodies:
            bury(rig, body, priority=7)
        return [Letter(sequence) for sequence in rig.queue("DLQ.q", "eu").waiting_sequences()]

    def test_once(self, rig: Rig) -> None:
        """Those named go home, with their priority; asked again, none of them goes twice."""
        one, two, three = self.letters(rig, b"1", b"2", b"3")

        assert self.redrive(rig, three, one) == Redriven(2, 0, 0)
        assert self.redrive(rig, one, two, three) == Redriven(1, 2, 0)
        found = [rig.taken(tags=["eu"]) for _ in range(3)]
        assert [(message.body, message.priority) for message in found] == [(b"3", 7), (b"1", 7), (b"2", 7)]
        assert rig.drain("DLQ.q", tags=["eu"]) == []

    def test_key_and_group(self, rig: Rig) -> None:
        """They have them again; a newer message of the key is not replaced, and the letter stays."""
        one, two = self.letters(rig, b"1", b"2")
        assert self.redrive(rig, one._replace(key="k", group="g")) == Redriven(1, 0, 0)
        assert self.redrive(rig, one._replace(key="k"), two._replace(key="k")) == Redriven(0, 1, 1)
        message = rig.taken(tags=["eu"])
        assert (message.body, message.group) == (b"1", "g")
        assert self.redrive(rig, two._replace(key="k")) == Redriven(1, 0, 0), "the other one waits no more"

    def test_no_room(self, rig: Rig) -> None:
        """Whom their queue has no room for stay; what somebody works on is gone."""
        one, two, three = self.letters(rig, b"1", b"2", b"3")
        rig.taken("DLQ.q", ["eu"])
        rig.engine.alter(key("q", "eu"), rig.now, {"max_length": 1})

        assert self.redrive(rig, one, two, three) == Redriven(1, 1, 1)
        assert rig.drain("DLQ.q", tags=["eu"]) == [b"3"]

    def test_nowhere_to_go(self, rig: Rig) -> None:
        """Without auto_create an unknown target is an error, and nothing is moved."""
        letters = self.letters(rig, b"1")
        rig.engine.channels.auto_create = False

        with pytest.raises(NoObject):
            self.redrive(rig, *letters, where=key("none"))
        assert rig.drain("DLQ.q", tags=["eu"]) == [b"1"]
