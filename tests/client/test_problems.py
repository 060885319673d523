import json
from typing import Any

import pytest

from playhead.client.problems import problem_of
from playhead.errors import AlreadyDecided, InvalidInput, PlayheadError, TooManyStreams


def problem(**body: Any) -> PlayheadError:
    return problem_of(422, json.dumps(body).encode())


def test_a_problem_becomes_the_error_it_was() -> None:
    error = problem(code="invalid_input", detail="No.", details={"problems": [], "message": "kept"})
    assert isinstance(error, InvalidInput)
    assert (error.message, error.details) == ("No.", {"problems": [], "message": "kept"})
    assert isinstance(problem(code="too_many_streams"), TooManyStreams)
    decided = problem(code="already_decided", title="Too late.", details={"decided_by": "ann"})
    assert isinstance(decided, AlreadyDecided)
    assert (str(decided), decided.details["decided_by"]) == ("Too late.", "ann")


@pytest.mark.parametrize("retryable", [True, False])
def test_a_code_of_a_later_version_is_kept(retryable: bool) -> None:
    error = problem(code="too_green", detail="It is too green.", retryable=retryable)
    assert (error.code, error.message, error.retryable) == ("too_green", "It is too green.", retryable)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"code": 1}'])
def test_another_answer_is_an_error_too(body: bytes) -> None:
    error = problem_of(502, body)
    assert type(error) is PlayheadError
    assert "502" in error.message
