"""The file of users."""

import os
from pathlib import Path

import pytest

from penstock.model.access import Action
from penstock.model.errors import BadRequest, NoObject, ObjectAlreadyExists
from penstock.server.users import User, UserFile, checked_user, hashed, is_right, parsed

HASH = hashed("secret")


@pytest.fixture
def file(tmp_path: Path) -> UserFile:
    """Return a file that is not there yet."""
    return UserFile(tmp_path / "users.toml")


def test_users_are_as_they_were_written(file: UserFile) -> None:
    """With all that a name or a pattern may have."""
    users = [
        User("mill", HASH, {Action.PUBLISH: ["orders", "news.*"], Action.CONSUME: [], Action.ADMINISTER: ["*"]}),
        User('a "quoted" \\ ü.b', HASH, {action: ['[x] = "y"'] for action in Action}),
    ]
    for user in users:
        file.add(user)
    assert list(UserFile(file.path).users().values()) == users


def test_the_file_is_for_its_owner_alone(file: UserFile) -> None:
    """From the beginning, and nothing else is left beside it."""
    file.add(User("mill", HASH))
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.path.parent) == [file.path.name]  # noqa: PTH208  # names


def test_a_user_is_added_once_and_removed_once(file: UserFile) -> None:
    """The others stay."""
    for name in ("a", "b"):
        file.add(User(name, HASH))
    with pytest.raises(ObjectAlreadyExists):
        file.add(User("a", HASH))
    file.remove("a")
    with pytest.raises(NoObject):
        file.remove("a")
    assert list(file.users()) == ["b"]


def test_a_change_is_seen_and_a_mistake_is_told_once(file: UserFile) -> None:
    """After it the users are as they were, until the file is right again."""
    file.add(User("a", HASH))
    assert list(file.users()) == ["a"]
    good = file.path.read_text()
    file.path.write_text(good.replace("secret", "sacred"))
    with pytest.raises(BadRequest, match="sacred"):
        file.users()
    assert list(file.users()) == ["a"]
    file.path.write_text(good.replace('"a"', '"other"'))
    assert list(file.users()) == ["other"]


def test_a_secret_is_right_or_wrong() -> None:
    """And nobody has none."""
    user = User("mill", hashed("grüße"))
    assert is_right(user, "grüße")
    assert not is_right(user, "grusse")
    assert not is_right(user, "")
    assert not is_right(None, "grüße")
    assert hashed("grüße") != user.secret_hash


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[users", "is not TOML"),
        ("[user.a]\n", "there is 'user' beside"),
        ("users = 3\n", "users is not a table"),
        ("[users]\na = 3\n", r"\[users.a\] is not a table"),
        ("[users.a]\n", "has no secret hashed by argon2"),
        ('[users.a]\nsecret = "plain"\n', "has no secret hashed by argon2"),
        ("[users.a]\nsecret = 3\n", "has no secret hashed by argon2"),
        (f'[users.a]\nsecret = "{HASH}"\npublsh = []\n', "has a field 'publsh'"),
        (f'[users.a]\nsecret = "{HASH}"\npublish = "a"\n', "publish is not a list of patterns"),
        (f'[users.a]\nsecret = "{HASH}"\npublish = [1]\n', "publish is not a list of patterns"),
        (f'[users.a]\nsecret = "{HASH}"\npublish = [""]\n', "publish"),
        (f'[users."a:b"]\nsecret = "{HASH}"\n', "has a colon"),
        (f'[users.""]\nsecret = "{HASH}"\n', "user"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(text: str, fault: str) -> None:
    """With the place."""
    with pytest.raises(BadRequest, match=fault) as refused:
        parsed(text, "users.toml")
    assert "users.toml" in str(refused.value)


def test_everything_wrong_is_told_at_once() -> None:
    """Of all users."""
    with pytest.raises(BadRequest) as refused:
        parsed('[users.a]\nx = 1\n[users.b]\npublish = 3\nsecret = "plain"\n[other]\n', "users.toml")
    for fault in ("beside [users]", "[users.a] has a field 'x'", "[users.b] publish is not", "[users.b] has no secret"):
        assert fault in str(refused.value)


@pytest.mark.parametrize("mode", ["missing", "directory", "binary"])
def test_a_file_that_cannot_be_read_is_told(file: UserFile, mode: str) -> None:
    """Whatever it is instead."""
    if mode == "directory":
        file.path.mkdir()
    elif mode == "binary":
        file.path.write_bytes(b"\xff")
    with pytest.raises(BadRequest, match="cannot be read"):
        file.users()


def test_names_have_no_colon() -> None:
    """Where HTTP logs in it is the end of the name."""
    assert checked_user("grüße@mill.example") == "grüße@mill.example"
    with pytest.raises(BadRequest):
        checked_user("a:b")
