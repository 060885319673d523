"""The numbers that PROTOCOL.md promises are those of the code: none of them changes by itself."""

from playhead.core import composite, payload, request, sse, text
from playhead.core.lease import backoff_ms
from playhead.core.repair import MINT_GUARD_MS
from playhead.core.retention import Retention
from playhead.core.snapshot import MAX_TEXT

KIB, MIB = 1 << 10, 1 << 20


def test_the_bounds_are_the_promised_ones():
    assert (payload.MAX_DEPTH, payload.MAX_PAYLOAD, payload.MAX_FIELD) == (64, 256 * KIB, 32 * KIB)
    assert (payload.MAX_INT, payload.MAX_IDENTITY) == (2**53 - 1, 2_048)
    assert payload.DOCUMENT_DEPTH > payload.MAX_DEPTH + 4  # a payload in an event in a screen in a resync in a frame
    assert (request.MAX_LABELS, request.MAX_LABEL) == (16, 256)
    assert (text.MAX_PART, text.MAX_PARTS, MAX_TEXT) == (MIB, 64, 2_000)
    assert (composite.MAX_FEEDS, composite.MAX_COMPOSITE) == (32, 2_048)
    assert (sse.MAX_RETRY, sse.MAX_LINE) == (2**31 - 1, 16 * MIB)
    assert (MINT_GUARD_MS, backoff_ms(1), backoff_ms(99)) == (2_000, 1_000, 30_000)


def test_a_timeline_is_kept_as_promised_where_nobody_says_otherwise():
    assert Retention() == Retention(count=1_000, age=None, max_bytes=16 * MIB, archive=True)
    assert Retention(count=7).hard_count == 28
