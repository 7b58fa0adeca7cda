"""Secrets are hidden from people whatever the case, nesting and place; everything else stays as it is."""

import time

import pytest

from orchestrator.core.mask import MASK, mask, mask_error, mask_text


@pytest.mark.parametrize(
    "key",
    ["password", "Password", "DB_PASSWORD", "api_key", "apiKey", "API-Key", "Authorization", "authToken", "secret"],
)
def test_a_value_under_a_secret_key_is_hidden_at_any_depth(key: str) -> None:
    assert mask({"a": [{"b": {key: "s3cr3t-X"}}]}) == {"a": [{"b": {key: MASK}}]}


def test_a_secret_object_is_hidden_whole_and_null_stays() -> None:
    assert mask({"credentials": {"user": "u", "key": "k"}, "token": None}) == {"credentials": MASK, "token": None}


def test_other_values_keep_their_shape() -> None:
    value = {"n": 1, "x": [1.5, True, None, "text"], "key": "renditions/1080p.mp4"}
    assert mask(value) == value


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach postgresql://u:s3cr3t-X@h/db",
        "cannot reach //u:s3cr3t-X@h/db twice: redis://:s3cr3t-X@r:6379/0",
        "password=s3cr3t-X&user=u",
        "{'Password': 's3cr3t-X', 'a': 1}",
        '{"api_key": "s3cr3t-X with spaces"}',
        "Authorization: Bearer s3cr3t-X",
        "sent header bearer s3cr3t-XYZ",
        "AWS_SECRET_ACCESS_KEY=s3cr3t-X",
    ],
)
def test_secrets_inside_a_text_are_hidden(text: str) -> None:
    assert "s3cr3t" not in mask_text(text)
    assert MASK in mask_text(text)


def test_the_user_and_host_of_a_url_stay() -> None:
    assert mask_text("postgresql://u:p@h:5432/db") == f"postgresql://u:{MASK}@h:5432/db"


@pytest.mark.parametrize("text", ["", "nothing here", "https://example.org:8080/a@b", "12:30 // note"])
def test_harmless_text_stays(text: str) -> None:
    assert mask_text(text) == text


def test_masking_is_idempotent() -> None:
    once = mask_text("redis://:pw@h and token=abc and Authorization: Bearer abcdefghijk")
    assert mask_text(once) == once


@pytest.mark.parametrize("text", ["password" * 20_000, "//" + "a" * 100_000, "a" * 100_000, "token: " * 20_000])
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    mask_text(text)
    assert time.process_time() - start < 5  # a pattern that goes back and forth would take minutes


def test_an_error_is_its_type_and_message() -> None:
    error = {"type": "OSError", "message": "//u:pw@h", "traceback": "…"}
    assert mask_error(error) == {"type": "OSError", "message": f"//u:{MASK}@h"}
    assert mask_error(None) is None
