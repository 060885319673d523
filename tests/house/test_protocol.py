"""The bounds that PROTOCOL.md names are those that `tests/core/test_bounds.py` holds the code to."""

import re
from pathlib import Path

import pytest

PROTOCOL = Path(__file__).parents[2] / "PROTOCOL.md"


@pytest.mark.parametrize(
    "row",
    [
        "JSON nesting | 64 |",
        "labels of a run; a value | 16; 256 characters |",
        "event payload | 256 KiB encoded | fields become previews of 32 KiB",
        "text field of a snapshot | 2,000 characters |",
        "text part; parts of an attempt | 1 MiB; 64 |",
        "events of a timeline | 1,000 *, 16 MiB * |",
        "runs on one connection | 32 |",
    ],
)
def test_the_protocol_says_the_same(row):
    assert re.search(rf"^\| {re.escape(row)}", PROTOCOL.read_text(), re.MULTILINE)
