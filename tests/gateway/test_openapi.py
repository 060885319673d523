"""The OpenAPI document says what the routes do."""

import json

import pytest
from jsonschema import Draft202012Validator

from playhead.gateway.openapi import describe
from playhead.gateway.routes import FEEDS, GUARDED, OPEN, STREAM
from tests.gateway.stub import ask, make

METHODS = {"get", "post", "delete", "put", "patch"}


@pytest.fixture(scope="module")
def document():
    return describe()


def operations(document):
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, item[method]


def walk(value):
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(item)


def test_it_has_the_routes_and_no_others(document):
    expected = {(path, method.lower()) for path, handlers in GUARDED.items() for method in handlers}
    expected |= {(path, "get") for path in (*OPEN, STREAM, FEEDS, "/metrics", "/openapi.json", "/")}
    assert {(path, method) for path, method, _ in operations(document)} == expected


def test_every_reference_leads_somewhere(document):
    found = 0
    for node in walk(document):
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            target = document
            assert node["$ref"].startswith("#/")
            for step in node["$ref"][2:].split("/"):
                target = target[step]
            found += 1
    assert found > 20


def test_every_operation_is_whole(document):
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for path, _, operation in operations(document):
        shared = document["paths"][path].get("parameters", [])
        in_path = {one["name"] for one in (*shared, *operation.get("parameters", [])) if one["in"] == "path"}
        assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert all("description" in one or "$ref" in one for one in operation["responses"].values())
        assert "default" in operation["responses"]


def test_every_schema_is_a_schema(document):
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for node in walk(document["paths"]):
        if isinstance(node, dict) and isinstance(node.get("schema"), dict):
            Draft202012Validator.check_schema(node["schema"])
    assert json.loads(json.dumps(document)) == document


@pytest.mark.anyio
async def test_it_is_served(document):
    answer = await ask(make()[1], "GET", "/openapi.json")
    assert answer.json == document
