import json

import pytest

from playhead.cli import http
from playhead.cli.http import Answer, backoff, problem_of, retry_after
from playhead.errors import InvalidInput, InvalidRequest, PlayheadError


def test_nobody_returns_before_the_time_that_was_told():
    waits = [backoff(0, 8.0) for _ in range(200)]
    assert min(waits) >= 8
    assert max(waits) <= 16
    assert max(waits) - min(waits) > 4  # those who were sent away together do not return together


def test_waits_grow_to_their_cap():
    assert max(backoff(0) for _ in range(100)) <= http.BASE
    assert max(backoff(10_000) for _ in range(100)) <= http.CAP
    assert max(backoff(10_000) for _ in range(100)) > http.CAP / 2


@pytest.mark.parametrize(("given", "told"), [("7", 7.0), ("", 0.0), ("-1", 0.0), ("soon", 0.0), ("9" * 30, 3600.0)])
def test_retry_after_is_read_with_care(given, told):
    assert retry_after({"retry-after": given}) == told


def problem(**body):
    return problem_of(Answer(422, {}, json.dumps(body).encode()))


def test_a_problem_becomes_the_error_it_was():
    error = problem(code="invalid_input", detail="No.", details={"problems": [], "message": "not mine"})
    assert isinstance(error, InvalidInput)
    assert (error.message, error.details) == ("No.", {"problems": []})


def test_a_code_of_a_later_version_is_kept():
    error = problem(code="too_green", detail="It is too green.")
    assert (error.code, error.message) == ("too_green", "It is too green.")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"code": 1}'])
def test_another_answer_is_an_error_too(body):
    error = problem_of(Answer(502, {}, body))
    assert type(error) is PlayheadError
    assert "502" in error.message


@pytest.mark.parametrize("url", ["nowhere", "ftp://h", "http://", "http://h:x", "http://[::1"])
def test_an_address_that_is_none_is_told(url):
    with pytest.raises(InvalidRequest):
        http._connect(url, 1.0)
