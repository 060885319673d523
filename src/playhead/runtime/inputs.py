"""An agent's input: its shape, how it is accepted and kept, and how it comes back to the agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pydantic

from playhead.core import payload as payloads
from playhead.errors import InvalidInput, InvalidRequest, PayloadNotJson

_MOST = 100  # problems that are told one by one
_WORDS = 300  # characters of each


class Input:
    """The input of one agent. `schema` is what a client is shown."""

    def __init__(
        self, function: Callable[..., Any] | None, name: str, model: type[pydantic.BaseModel] | None = None
    ) -> None:
        """Raises InvalidRequest for a function whose parameters are no input, or that asks for a secret: what a run
        was given is kept, and shown to whoever may see the run."""
        self._name = name
        self._model, self._whole = _model(function, name, model)
        self.schema: dict[str, Any] = self._model.model_json_schema()
        if _has_secret(self.schema):
            raise InvalidRequest(f"The agent {name} asks for a secret, and an input is kept: give it the name of one.")

    def accept(self, given: object) -> bytes:
        """The input as it is kept, with its defaults. Raises InvalidInput that names each field."""
        try:
            model = self._model.model_validate({} if given is None else given)
        except pydantic.ValidationError as error:
            problems = _problems(error)
            raise InvalidInput(f"{self._name} does not accept this input.", problems=problems) from None
        # An alias, or a type with a form of its own: what is kept must be what the agent can be given.
        for by_alias in (True, False):
            try:
                dumped = model.model_dump(mode="json", by_alias=by_alias, round_trip=True)
                kept = payloads.encode(dumped)
                again = self._model.model_validate_json(kept)
                told = again.model_dump(mode="json", by_alias=by_alias, round_trip=True)
                # Text is repaired and very large whole numbers are text when they are kept, as everywhere.
                if told == dumped or payloads.plain(told) == payloads.plain(dumped):
                    return kept
            except (ValueError, PayloadNotJson):  # both of Pydantic's errors are of the first kind
                continue
        raise InvalidInput(f"This input of {self._name} has a value that cannot be kept as JSON.", problems=[])

    def arguments(self, kept: bytes) -> Mapping[str, Any]:
        """What the function is called with. Raises InvalidInput, without any value, if it takes this no more."""
        try:
            model = self._model.model_validate_json(kept)
        except pydantic.ValidationError as error:
            fields = ", ".join(one["field"] for one in _problems(error)[:10])
            message = f"{self._name} does not accept the input that this run was given before: {fields}."
            raise InvalidInput(message) from None
        if self._whole is not None:
            return {self._whole: model}
        return {name: getattr(model, name) for name in type(model).model_fields}


def _problems(error: pydantic.ValidationError) -> list[dict[str, str]]:
    if error.error_count() > _MOST:  # a list of a million wrong items would take seconds to tell
        return [{"field": "", "message": f"{error.error_count()} values are wrong."}]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        {"field": ".".join(str(part) for part in one["loc"])[:_WORDS], "message": one["msg"][:_WORDS]} for one in found
    ]


def _has_secret(schema: object) -> bool:
    """Whether Pydantic's SecretStr or SecretBytes is in it: of these only asterisks would be kept."""
    if isinstance(schema, dict):
        if schema.get("writeOnly") is True and schema.get("format") == "password":
            return True
        return any(_has_secret(one) for one in schema.values())
    return isinstance(schema, list) and any(_has_secret(one) for one in schema)


def _model(
    function: Callable[..., Any] | None, name: str, model: type[pydantic.BaseModel] | None
) -> tuple[type[pydantic.BaseModel], str | None]:
    """The model of an agent's input, and the parameter that takes it whole (None: one parameter for each field)."""
    if function is None:
        return model or pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="allow")), None
    parameters = list(inspect.signature(function).parameters.values())[1:]
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise InvalidRequest(f"The agent {name} is annotated with a type not found in its module: {error}") from None
    if len(parameters) == 1:
        only = hints.get(parameters[0].name)
        if inspect.isclass(only) and issubclass(only, pydantic.BaseModel):
            return only, parameters[0].name
    fields: dict[str, Any] = {}
    for one in parameters:
        if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            raise InvalidRequest(f"The agent {name} must name its input fields.")
        default = ... if one.default is one.empty else one.default
        fields[one.name] = (hints.get(one.name, Any), default)
    return model or pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields), None
