"""Every error has one status, one form, and tells nothing that it should not."""

import inspect
import json
import logging
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from starlette.responses import Response

from playhead import errors
from playhead.gateway import problems

SCHEMA = json.loads((Path(__file__).parents[2] / "spec" / "problem.schema.json").read_text())
NOT_OF_REQUESTS = {"playhead_error", "data_locked", "folder_unusable", "port_in_use", "no_server"}


def classes() -> list[type[errors.PlayheadError]]:
    found = [*vars(errors).values(), *vars(problems).values()]
    return [one for one in found if inspect.isclass(one) and issubclass(one, errors.PlayheadError)]


def body(response: Response) -> dict:
    found: dict = json.loads(bytes(response.body))
    Draft202012Validator(SCHEMA).validate(found)
    return found


def test_every_error_that_a_request_can_meet_has_a_status():
    assert {one.code for one in classes()} - NOT_OF_REQUESTS == set(problems.STATUS)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.code)
def test_every_error_is_a_problem(kind):
    response = problems.problem(kind())
    told = body(response)
    assert response.media_type == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert told["status"] == response.status_code
    assert told["type"].endswith(":" + told["code"])
    assert ("retry-after" in response.headers) == told["retryable"]


def test_refused_clients_are_told_different_times():
    for code in ("store_unavailable", "too_many_streams", "store_full"):
        least = problems.RETRY_AFTER.get(code, problems.DEFAULT_RETRY_AFTER)
        seen = {problems.retry_after(code) for _ in range(500)}
        assert min(seen) >= least
        assert max(seen) - min(seen) >= least / 2


def test_an_unexpected_error_tells_nothing_and_logs_no_words(caplog):
    def fail():
        raise ValueError("CANARY sk-TEST123")

    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError) as caught:
        fail()
    response = problems.problem(caught.value)
    told = body(response)
    assert (response.status_code, told["code"]) == (500, "internal_error")
    reference = told["details"]["reference"]
    assert reference in caplog.text
    assert "ValueError" in caplog.text
    assert "test_problems.py" in caplog.text
    assert "CANARY" not in caplog.text + bytes(response.body).decode()


def test_an_error_class_of_somebody_else_is_internal():
    class Theirs(errors.PlayheadError):
        """CANARY"""

        code = "theirs"

    told = body(problems.problem(Theirs("CANARY", secret="CANARY")))
    assert told["code"] == "internal_error"
    assert "CANARY" not in json.dumps(told)


@pytest.mark.parametrize("kind", [errors.StoreUnavailable, errors.StoreCorrupt, errors.StoreFull, errors.NotFound])
def test_what_a_store_says_stays_inside(kind):
    told = body(problems.problem(kind("host=CANARY", path="CANARY")))
    assert "CANARY" not in json.dumps(told)


def test_a_refused_value_is_not_repeated():
    found = [{"loc": ["a"], "msg": "is no number", "input": "CANARY", "ctx": {"x": "CANARY"}, "url": "CANARY"}]
    told = body(problems.problem(errors.InvalidInput("No.", problems=found)))
    assert told["details"] == {"problems": [{"loc": ["a"], "msg": "is no number"}]}


def test_huge_and_unspeakable_details_are_bounded():
    response = problems.problem(errors.AlreadyDecided(decision={"value": "x" * 10**6}, what=object()))
    told = body(response)
    assert len(response.body) < 2 * problems.MAX_DETAILS
    assert told["details"]["truncated"] is True
    assert told["details"]["what"] is None


def test_who_is_unknown_is_told_how_to_say_it():
    assert problems.problem(errors.Unauthenticated()).headers["www-authenticate"] == "Bearer"
