"""The text channel: parts that only grow, addressed by offset, fenced like publishes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from playhead.core import event
from playhead.core.retention import Retention
from playhead.core.snapshot import State
from playhead.core.text import TextAlready, TextApplied, TextFrom, TextPart, TextWrite
from playhead.core.transition import Behind, Final, NeedsRebuild, Reply, Stale, WrongEpoch
from playhead.testing.check import LiveBench, Rules
from playhead.testing.ports.given import STRANGE, Scribe, applied, live, opened, project, publish, view

rule: Rules[LiveBench] = Rules(retention=Retention(count=1_000), timeline_ttl=3_600.0, snapshot_ttl=86_400.0)

WHOLE = STRANGE.encode()


async def _refuses(b: LiveBench, write: TextWrite, reply: Reply | TextAlready | TextFrom) -> None:
    """The piece gets this reply and changes nothing."""
    before = await b.text.read_text(write.feed)
    assert await b.text.append(write) == reply
    assert await b.text.read_text(write.feed) == before


@rule()
async def a_part_grows_by_its_pieces(b: LiveBench) -> None:
    """Pieces that continue a part are appended byte for byte, and each is answered with the new end."""
    scribe = await live(b)
    data = b""
    for character in STRANGE:
        piece = character.encode()
        assert await b.text.append(scribe.text(len(data), piece)) == TextApplied(len(data) + len(piece))
        data += piece
    assert await b.text.read_text(scribe.feed) == [TextPart("answer", 1, len(data), False, False, data)]
    assert data == WHOLE


@rule()
async def a_piece_sent_again_is_stored_once(b: LiveBench) -> None:
    """A piece that lies within the part is `already`, with the part's length."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"hello "))
    await b.text.append(scribe.text(6, b"world"))
    for offset, data in ((0, b"hello "), (6, b"world"), (0, b"hello world"), (3, b"lo"), (11, b""), (0, b"")):
        await _refuses(b, scribe.text(offset, data), TextAlready(11))


@rule()
async def a_piece_that_does_not_fit_is_told_from_where(b: LiveBench) -> None:
    """A piece beyond the end, or over it, is not stored; the answer is the length to go on from."""
    scribe = await live(b)
    await _refuses(b, scribe.text(5, b"x"), TextFrom(0))
    await b.text.append(scribe.text(0, b"hello"))
    for offset, data in ((6, b"x"), (99, b"x"), (3, b"lo w"), (0, b"hello world")):
        await _refuses(b, scribe.text(offset, data), TextFrom(5))
    assert await b.text.append(scribe.text(5, b" world")) == TextApplied(11)


@rule()
async def a_part_that_ended_is_closed(b: LiveBench) -> None:
    """A final piece closes its part; repeating it is `already`, and nothing is added afterwards."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"hello"))
    assert await b.text.append(scribe.text(5, b"!", final=True)) == TextApplied(6)
    await _refuses(b, scribe.text(5, b"!", final=True), TextAlready(6))
    await _refuses(b, scribe.text(0, b"hello"), TextAlready(6))
    await _refuses(b, scribe.text(6, b" more"), TextFrom(6))
    (part,) = await b.text.read_text(scribe.feed)
    assert (part.final, part.data) == (True, b"hello!")


@rule()
async def a_part_may_end_without_more_text(b: LiveBench) -> None:
    """An empty final piece closes a part, an empty one too."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"hello"))
    await _refuses(b, scribe.text(0, b"hello", final=True), TextFrom(5))
    assert await b.text.append(scribe.text(5, b"", final=True)) == TextApplied(5)
    assert await b.text.append(scribe.text(0, b"", "empty", final=True)) == TextApplied(0)
    assert [(part.part, part.length, part.final) for part in await b.text.read_text(scribe.feed)] == [
        ("answer", 5, True),
        ("empty", 0, True),
    ]


@rule()
async def a_cut_part_says_so(b: LiveBench) -> None:
    """That text was left out of a part stays known."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"hello"))
    await b.text.append(scribe.text(5, b" w", truncated=True))
    await b.text.append(scribe.text(7, b"", final=True))
    (part,) = await b.text.read_text(scribe.feed)
    assert (part.truncated, part.final, part.data) == (True, True, b"hello w")


@rule()
async def parts_are_apart(b: LiveBench) -> None:
    """Parts of one attempt grow independently and are read in the order in which they began."""
    scribe, other = await live(b), await live(b)
    for part, offset, data in (("b", 0, b"b1"), ("a", 0, b"a1"), ("b", 2, b"b2"), ("c", 0, b"c1"), ("a", 2, b"a2")):
        assert isinstance(await b.text.append(scribe.text(offset, data, part)), TextApplied)
    assert [(part.part, part.data) for part in await b.text.read_text(scribe.feed)] == [
        ("b", b"b1b2"),
        ("a", b"a1a2"),
        ("c", b"c1"),
    ]
    assert await b.text.read_text(other.feed) == []


@rule()
async def text_is_fenced(b: LiveBench) -> None:
    """A piece carries the same guard as a publish and is refused for the same reasons, in the same order."""
    missing = Scribe(b.clock)
    await _refuses(b, missing.text(0, b"x"), NeedsRebuild(0))
    scribe = await live(b)
    applied(await project(b, scribe, scribe.fact(event.ATTEMPT_STARTED)))
    await b.text.append(scribe.text(0, b"hello"))
    epoch = scribe.epoch
    replies: list[tuple[dict[str, int], Reply]] = [
        ({"epoch": epoch + 1, "token": 1}, NeedsRebuild(epoch)),
        ({"epoch": epoch - 1, "acked_n": 9}, WrongEpoch(epoch)),
        ({"acked_n": 9, "rev": 9}, NeedsRebuild(epoch)),
        ({"acked_state": 9}, NeedsRebuild(epoch)),
        ({"token": 1, "rev": 9}, Stale(2)),
        ({"token": 3}, Behind(4)),
        ({"rev": 5}, Behind(4)),
    ]
    for fields, reply in replies:
        for offset, data in ((5, b" world"), (0, b"hello"), (9, b"x")):
            await _refuses(b, replace(scribe.text(offset, data), guard=scribe.guard(**fields)), reply)
    applied(await project(b, scribe, scribe.final()))
    await _refuses(b, scribe.text(5, b" world"), Final())
    await _refuses(b, replace(scribe.text(5, b" world"), guard=scribe.guard(token=1)), Final())


@rule()
async def a_new_attempt_starts_its_own_text(b: LiveBench) -> None:
    """An `attempt_started` drops the text of the attempts before it; the same part name begins again at 0."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"first try"))
    applied(await project(b, scribe, scribe.fact(event.CANCEL_REQUESTED)))
    assert len(await b.text.read_text(scribe.feed)) == 1
    started = scribe.fact(event.ATTEMPT_STARTED)
    applied(await project(b, scribe, started))
    assert await b.text.read_text(scribe.feed) == []
    await _refuses(b, scribe.text(9, b"x"), TextFrom(0))
    await b.text.append(scribe.text(0, b"second"))
    await project(b, scribe, started)
    assert [(part.token, part.data) for part in await b.text.read_text(scribe.feed)] == [(2, b"second")]


@rule()
async def a_rebuild_drops_the_text(b: LiveBench) -> None:
    """After an opening the text is gone, and the attempt's whole text is accepted again from 0."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"hello", final=True))
    old, scribe.epoch = scribe.epoch, scribe.epoch + 1
    applied(await b.store.open(scribe.opening(old)))
    assert await b.text.read_text(scribe.feed) == []
    assert await b.text.append(scribe.text(0, b"hello")) == TextApplied(5)


@rule()
async def lengths_are_those_of_the_parts(b: LiveBench) -> None:
    """`lengths` gives, for many feeds at once, the length of each part by attempt and name."""
    one, two, none = await live(b), await live(b), await opened(b)
    await b.text.append(one.text(0, WHOLE, "a"))
    await b.text.append(one.text(0, b"xy", "b"))
    await b.text.append(two.text(0, b"z", "a"))
    absent = Scribe(b.clock)
    got = await b.text.lengths([one.feed, two.feed, none.feed, absent.feed])
    assert got[one.feed] == {(1, "a"): len(WHOLE), (1, "b"): 2}
    assert got[two.feed] == {(1, "a"): 1}
    assert not got.get(none.feed)
    assert not got.get(absent.feed)
    assert await b.text.lengths([]) == {}


@rule()
async def text_is_no_event(b: LiveBench) -> None:
    """Text moves nothing of the timeline and nothing of the snapshot, and events move nothing of the text."""
    scribe = await live(b)
    before = await view(b, scribe.feed)
    await b.text.append(scribe.text(0, b"hello"))
    await b.text.append(scribe.text(5, b" world", final=True))
    after = await view(b, scribe.feed)
    assert (after.marks, after.entries, after.snapshot) == (before.marks, before.entries, before.snapshot)
    text = await b.text.read_text(scribe.feed)
    await publish(b, scribe, 3, state=State(title="x"))
    assert await b.text.read_text(scribe.feed) == text


@rule()
async def pieces_sent_at_once_are_stored_once(b: LiveBench) -> None:
    """The same piece sent several times at once is appended once, piece after piece."""
    scribe = await live(b)
    for i in range(20):
        write = scribe.text(i * 5, b"%04d " % i)
        got = await asyncio.gather(*(b.text.append(write) for _ in range(3)))
        assert [type(reply) for reply in got].count(TextApplied) == 1
        assert [type(reply) for reply in got].count(TextAlready) == 2
    (part,) = await b.text.read_text(scribe.feed)
    assert part.data == b"".join(b"%04d " % i for i in range(20))


@rule()
async def a_large_part_is_kept_whole(b: LiveBench) -> None:
    """A part of a megabyte, in pieces, is read back whole."""
    scribe = await live(b)
    piece = ("\u00e9" * 32_768).encode()
    for i in range(16):
        assert await b.text.append(scribe.text(i * len(piece), piece)) == TextApplied((i + 1) * len(piece))
    (part,) = await b.text.read_text(scribe.feed)
    assert (part.length, part.data) == (1 << 20, piece * 16)
