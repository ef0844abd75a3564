"""Damaged frames by the thousand; `scripts/campaign-stomp-fuzz` sends a million."""

import pytest

from tests.protocols.stomp.fuzz import SessionFuzz, check_parser
from tests.protocols.stomp.peers import World

FRAMES = 20_000


@pytest.mark.slow
def test_the_parser_follows_the_grammar_on_damaged_frames() -> None:
    """Whatever was changed and wherever the stream is cut, the same frames come out, and errors where it has some."""
    whole = sum(check_parser(1, number) for number in range(FRAMES))
    assert whole > FRAMES // 2


@pytest.mark.slow
async def test_sessions_answer_damage_by_errors_alone(world: World) -> None:
    """Nothing is raised, nothing is held for who has gone, and a bystander does not notice."""
    fuzz = SessionFuzz(world, seed=1)
    await fuzz.run(0, FRAMES)
    assert fuzz.errors > FRAMES // 10
