"""What an agent accepts comes back to it as it was, or is not accepted."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Annotated, Any
from unittest import mock

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import InvalidInput, InvalidRequest
from playhead.runtime import inputs
from playhead.runtime.inputs import Input


class Item(pydantic.BaseModel):
    name: str
    count: int = pydantic.Field(alias="howMany")


class Order(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")
    items: list[Item] = []
    within: dt.timedelta = dt.timedelta(days=1)
    first: int | None = pydantic.Field(default=None, validation_alias="theFirst")
    rows: pydantic.Json[list[int]] = []


class Renamed(pydantic.BaseModel):
    first: int = pydantic.Field(serialization_alias="told_as")


class Odd(pydantic.BaseModel):
    when: Annotated[int, pydantic.PlainSerializer(lambda value: f"at {value}")]


class Login(pydantic.BaseModel):
    tokens: list[pydantic.SecretStr] = []


async def order(run: object, given: Order) -> None: ...


async def many(run: object, rows: list[int]) -> None: ...


async def number(run: object, x: float = 0.0, data: Any = None) -> None: ...


def problems(refused: pytest.ExceptionInfo[InvalidInput]) -> Any:
    return refused.value.details["problems"]


def back(of: Callable[..., Any], value: object) -> dict[str, Any]:
    made = Input(of, "shop")
    return dict(made.arguments(made.accept(value)))


@given(st.integers(), st.lists(st.tuples(st.text(max_size=5), st.integers())), st.lists(st.integers(), max_size=3))
def test_names_of_the_wire_and_types_with_a_form_of_their_own_come_back(
    user: int, items: list[tuple[str, int]], rows: list[int]
) -> None:
    value = {
        "userId": user,
        "items": [{"name": name, "howMany": count} for name, count in items],
        "within": "PT90S",
        "rows": str(rows),
    }
    found = back(order, value)["given"]
    assert found == Order.model_validate(value)
    assert found.rows == rows


def test_a_field_is_kept_under_the_name_by_which_it_is_read_again() -> None:
    async def renamed(run: object, given: Renamed) -> None: ...

    assert back(renamed, {"first": 7})["given"].first == 7


def test_values_that_are_kept_in_another_form_everywhere_are_kept() -> None:
    assert back(number, {"data": ["\ud800", 2**63, 5e-324]})["data"] == ["\ufffd", str(2**63), 5e-324]


@pytest.mark.parametrize("value", ["inf", "nan", math.inf])
def test_a_value_that_json_does_not_have_is_not_accepted(value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be kept"):
        Input(number, "shop").accept({"x": value})


def test_what_can_be_written_and_not_read_again_is_not_accepted() -> None:
    async def odd(run: object, given: Odd) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be kept"):
        Input(odd, "shop").accept({"when": 3})


def test_an_agent_that_asks_for_a_secret_is_none() -> None:
    async def login(run: object, given: Login) -> None: ...

    async def nested(run: object, logins: dict[str, Login]) -> None: ...

    async def data(run: object, key: pydantic.SecretBytes | None = None) -> None: ...

    for one in (login, nested, data):
        with pytest.raises(InvalidRequest, match="an input is kept"):
            Input(one, "shop")


def test_each_wrong_field_is_named_and_none_of_their_values() -> None:
    with pytest.raises(InvalidInput) as refused:
        Input(order, "shop").accept({"userId": "private-4711", "items": [{"name": "a"}]})
    told = problems(refused)
    assert [one["field"] for one in told] == ["userId", "items.0.howMany"]
    assert "4711" not in repr(refused.value.details) + refused.value.message


def test_very_many_wrong_values_are_counted_and_not_told() -> None:
    """They are not even listed: that would hold up every viewer of the process for seconds."""
    value = {"rows": ["x"] * 5_000}
    with mock.patch.object(inputs, "_MOST", 4_999), pytest.raises(InvalidInput) as refused:
        Input(many, "shop").accept(value)
    assert problems(refused) == [{"field": "", "message": "5000 values are wrong."}]
    with pytest.raises(InvalidInput) as few:
        Input(many, "shop").accept({"rows": ["x"] * 100})
    assert len(problems(few)) == 100


def test_names_and_messages_of_a_problem_are_bounded() -> None:
    async def table(run: object, rows: dict[str, int]) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        Input(table, "shop").accept({"rows": {"k" * 100_000: "x"}})
    (told,) = problems(refused)
    assert len(told["field"]) <= 300


def test_an_input_from_before_a_change_of_the_agent_is_refused_without_its_values() -> None:
    with pytest.raises(InvalidInput, match="given before: userId") as refused:
        Input(order, "shop").arguments(b'{"userId": "private-4711"}')
    assert "4711" not in refused.value.message
