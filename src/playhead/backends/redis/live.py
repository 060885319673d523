"""The shared live store: projections, text and hints in Redis or Valkey, for any number of processes.

The store is disposable. What it lacks is a lost projection and no more: the record rules, and laws 6 and 7 repair it.
Whatever is not as a script wrote it (another type, numbers that make no sense, a timeline that is not the one that the
marks tell of) counts as missing, for every call alike, and is replaced by the next opening.

Every act is one script. The times that it goes by are those of the caller's clock, as with every other backend; only
the times to live of the keys themselves run by the server's clock, from the moment of the final fact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar, cast

from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from playhead.backends.redis import rows
from playhead.backends.redis.faults import as_ours, typed
from playhead.backends.redis.findings import Finding, examine
from playhead.backends.redis.indexes import Indexes
from playhead.backends.redis.names import Names
from playhead.backends.redis.nodes import Cluster, Command, Nodes, Single
from playhead.backends.redis.pipes import UNDONE, Pipes
from playhead.backends.redis.rows import Argument, DamagedProjection
from playhead.backends.redis.scripts import load
from playhead.backends.redis.signal import TOLD_BY, RedisSignal, Way
from playhead.backends.redis.target import parse
from playhead.core.cursor import check_tag
from playhead.core.event import UNREADABLE, Fact
from playhead.core.ids import Feed, check_whole, is_name
from playhead.core.retention import Retention, idles, lifetime_ms
from playhead.core.snapshot import EMPTY
from playhead.core.text import TextPart, TextReply, TextWrite
from playhead.core.transition import Marks, Opening, Publish, Reply
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, View

T = TypeVar("T")

_ROUNDS = 5  # times that an act is asked for with the text keys that it turned out to need
_EXPIRED_AT_ONCE = 20  # feeds: each may have thousands of entries to remove, and others wait meanwhile

log = logging.getLogger(__name__)


class RedisLive:
    """ProjectionStore and TextChannel; `signal` tells what any process wrote.

    Lives in the event loop in which it was made; its methods may be called from others.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        retention: Retention | None = None,
        timeline_ttl: float = 3_600.0,
        snapshot_ttl: float = 86_400.0,
        idle_ttl: float = 86_400.0,
        prefix: str = "agent",
        deadline: float = 2.0,
        pipelined: bool = True,
        connections: int = 20,
        hint_bytes: int = 64 << 10,
    ) -> None:
        """See `at`."""
        target = parse(url)
        times = lifetime_ms(timeline_ttl), lifetime_ms(snapshot_ttl), lifetime_ms(idle_ttl)
        self.unreadable = 0
        self._clock, self._deadline, self._what = clock, deadline, target.name
        self._retention = keep = retention or Retention()
        self._names = Names(prefix, spread=target.kind == "cluster")
        self._nodes: Nodes
        self._pipes: Pipes | None = None
        if pipelined:
            self._nodes = self._pipes = Pipes(target, deadline=deadline)
        else:
            kind = Cluster if target.kind == "cluster" else Single
            self._nodes = kind(target, deadline=deadline, connections=connections)
        self._loop = asyncio.get_running_loop()
        age = rows.optional(None if keep.age is None else round(keep.age * 1000))
        bounds = [keep.count, keep.hard_count, keep.max_bytes, age, rows.flag(keep.archive), *times]
        self._bounds = {told_by: ":".join(map(str, [*bounds, told_by, hint_bytes])) for told_by in TOLD_BY.values()}
        self._way: Way | None = None
        self._closed = False
        self._indexes = Indexes(self._names, self._nodes.execute_all)
        self.signal = RedisSignal(self._nodes, self._names, self._hints, self._look, what=self._what, deadline=deadline)

    @classmethod
    async def at(cls, url: str, **options: Any) -> RedisLive:
        """The store at this URL (see `target.parse`), which need not be there yet.

        Options: `clock`; `retention`; `timeline_ttl` and `snapshot_ttl`, seconds after the final fact; `idle_ttl`,
        seconds after a thread or topic was left alone; `prefix` of all keys; `deadline`, seconds that a call may take;
        `connections`, the most that calls may use to one server, of which they share one unless `pipelined` is off and
        the driver's own pool is used; `hint_bytes`, beyond which a hint says only that there is something. Raises
        ValueError for one that cannot be.
        """
        return cls(url, **options)

    @property
    def retention(self) -> Retention:
        return self._retention

    # ProjectionStore.

    async def open(self, opening: Opening) -> Reply:
        state = opening.state or EMPTY
        arguments: list[Argument] = [
            opening.seen,
            opening.epoch,
            opening.rev,
            opening.token,
            opening.at,
            opening.tag,
            opening.status.value,
            rows.flag(opening.status.final),
            rows.optional(opening.started_at),
            opening.seen_tag or "",
            state,
            *rows.shown(state),
            opening.feed.id,
        ]
        return await self._write("open", opening.feed, arguments, ended=opening.status.final)

    async def fact(self, epoch: int, fact: Fact, tag: str) -> Reply:
        check_whole(epoch)
        check_tag(tag)
        return await self._write("fact", fact.feed, [epoch, *rows.fact_arguments(fact, tag)], ended=fact.final)

    async def publish(self, write: Publish) -> Reply:
        token = write.guard.token
        last_n = write.last_n if write.events else ""
        arguments: list[Argument] = [
            rows.guard(write.guard),
            f"{write.first_n}:{last_n}:{write.state_version}:{write.at}",
            *rows.state(write.state),
            len(write.events),
        ]
        for event, tag in zip(write.events, write.tags, strict=True):
            arguments += rows.event_arguments(write.feed, token, event, tag)
        return await self._write("publish", write.feed, arguments)

    async def read(
        self, feed: Feed, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> View | None:
        window = [rows.optional(after), rows.optional(before), limit]
        found = await self._ask("read", feed, window)
        if found is None:
            return None
        guard, marks_text, *row, low, wanted, entries = found
        marks = rows.marks(guard, marks_text)
        try:
            snapshot = rows.snapshot(marks, row) if marks else None
            if marks is None or snapshot is None:
                raise DamagedProjection(feed.key)
            view = View(marks, snapshot, rows.entries(feed, marks, int(low), int(wanted), entries))
        except DamagedProjection:
            await self._drop_damaged(feed, marks)
            return None
        unreadable = sum(entry.event.type == UNREADABLE for entry in view.entries)
        if unreadable:
            self.unreadable += unreadable
            log.warning("%d events of %s in %s cannot be read.", unreadable, feed.key, self._what)
        return view

    async def find(self, feed: Feed, event_id: str) -> int | None:
        """As the port says; ids are those that `core.ids` makes."""
        series = rows.series(feed, event_id)
        if series is None:
            return None
        token, n, rev = map(rows.optional, series)
        found = await self._ask("find", feed, [event_id, token, n, rev])
        return None if found is None else int(found)

    async def stand(self, feeds: Collection[Feed]) -> dict[Feed, Marks]:
        wanted = list(dict.fromkeys(feeds))
        found = await self._ask_all("stand", [(feed, []) for feed in wanted])
        marks = {feed: rows.marks(*row) for feed, row in zip(wanted, found, strict=True) if row}
        return {feed: held for feed, held in marks.items() if held is not None}

    async def archived(self, feed: Feed, epoch: int, position: int) -> None:
        check_whole(epoch, position)
        await self._ask("archived", feed, [*self._rules(feed, ""), epoch, position])

    async def unarchived(self, limit: int) -> list[Feed]:
        return await self._indexed("waiting", limit)

    async def trim(self, feed: Feed) -> None:
        await self._ask("trim", feed, self._rules(feed, ""))

    async def aged(self, limit: int) -> list[Feed]:
        if self._retention.age is None:
            return []
        return await self._indexed("oldest", limit, self._clock.wall_ms() - round(self._retention.age * 1000))

    async def drop(self, feed: Feed, epoch: int | None = None) -> None:
        await self._ask("drop", feed, [feed.key, rows.optional(epoch), ""])

    async def watched(self, feeds: Collection[Feed]) -> None:
        used = [feed for feed in feeds if idles(feed)]
        for feed in used:
            self._indexes.used(feed, ended=True)
        await self._ask_all("watched", [(feed, self._rules(feed, "")) for feed in used])

    async def expire(self) -> int:
        """As the port says, for what the keys' own times to live have left."""
        total = 0
        while True:
            due = await self._due("ends", _EXPIRED_AT_ONCE, self._clock.wall_ms())
            total += sum(map(int, await self._ask_all("expire", [(feed, self._rules(feed, "")) for feed in due])))
            if len(due) < _EXPIRED_AT_ONCE:
                return total

    # TextChannel.

    async def append(self, write: TextWrite) -> TextReply:
        """Raises ValueError for a part whose name is not one (`core.ids.is_name`)."""
        if not is_name(write.part):
            raise ValueError(f"not a part's name: {write.part!r:.80}")
        arguments: list[Argument] = [
            rows.guard(write.guard),
            write.part,
            write.offset,
            write.end,
            rows.flag(write.final),
            rows.flag(write.truncated),
            write.data,
        ]
        named = [f"{write.guard.token}:{write.part}"]
        rules = self._rules(write.feed, await self._told_by(write.feed))
        return rows.reply(await self._ask("append", write.feed, [*rules, *arguments], named))

    async def read_text(self, feed: Feed) -> list[TextPart]:
        found = await self._ask("read_text", feed, [])
        if not found:
            return []
        _, guard, tag, *parts = found
        try:
            return rows.parts(feed, parts)
        except DamagedProjection:
            epoch = int(guard.split(b":")[0])
            await self._ask("drop", feed, [feed.key, epoch, tag])
            log.warning("The text of %s in %s was damaged and its projection is dropped.", feed.key, self._what)
            return []

    async def lengths(self, feeds: Collection[Feed]) -> dict[Feed, dict[tuple[int, str], int]]:
        wanted = list(dict.fromkeys(feeds))
        found = await self._ask_all("lengths", [(feed, []) for feed in wanted])
        told: dict[Feed, dict[tuple[int, str], int]] = {}
        for feed, row in zip(wanted, found, strict=True):
            if row:
                told[feed] = {(int(token), name.decode()): int(length) for token, name, length in row[1:]}
        return told

    # The rest.

    async def findings(self) -> list[Finding]:
        """What is not as it should be with the servers, for `doctor`. Raises StoreUnavailable."""
        return await self._here(self._timely(examine(self._nodes, self._clock)))

    async def close(self) -> None:
        await self._here(self._close())

    async def _close(self) -> None:
        self._closed = True
        await self.signal.close()
        await self._nodes.close()

    # How scripts are called.

    def _rules(self, feed: Feed, told_by: str) -> list[Argument]:
        return [self._bounds[told_by], feed.key, self._clock.wall_ms()]

    async def _write(self, name: str, feed: Feed, arguments: list[Argument], *, ended: bool = False) -> Reply:
        told_by = await self._told_by(feed) if self._way is None else TOLD_BY[self._way]
        answer = await self._ask(name, feed, [*self._rules(feed, told_by), *arguments])
        self._indexes.used(feed, ended=ended or idles(feed))
        return cast(Reply, rows.reply(answer))

    async def _ask(self, name: str, feed: Feed, arguments: Sequence[Argument], named: Sequence[str] = ()) -> Any:
        if self._pipes is not None and asyncio.get_running_loop() is self._loop:
            begun = self._pipes.begin(self._command(name, feed, named, arguments))
            if begun is not None:  # then there is nothing more to find out, and one time limit for all who wait
                try:
                    answer = await begun
                except UNDONE:
                    pass
                except (RedisError, OSError) as error:
                    raise as_ours(self._what, error) from error
                else:
                    if type(answer) is not list or answer[:1] != [b"keys"]:
                        return answer
        (found,) = await self._ask_all(name, [(feed, arguments)], named)
        return found

    async def _ask_all(
        self, name: str, asked: Sequence[tuple[Feed, Sequence[Argument]]], named: Sequence[str] = ()
    ) -> list[Any]:
        """What the script answers for each feed. One that needs the keys of more text parts is asked again."""
        return await self._here(self._timely(self._answers(name, asked, named)))

    async def _answers(
        self, name: str, asked: Sequence[tuple[Feed, Sequence[Argument]]], named: Sequence[str]
    ) -> list[Any]:
        names = [list(named) for _ in asked]
        answers: list[Any] = [None] * len(asked)
        open_ones = list(range(len(asked)))
        for _ in range(_ROUNDS):
            if not open_ones:
                return answers
            commands = [self._command(name, asked[i][0], names[i], asked[i][1]) for i in open_ones]
            for i, answer in zip(open_ones, await self._run(name, commands), strict=True):
                answers[i] = answer
                if type(answer) is list and answer[:1] == [b"keys"]:
                    names[i] = [*named, *(one.decode() for one in answer[1:] if one.decode() not in named)]
            open_ones = [i for i in open_ones if type(answers[i]) is list and answers[i][:1] == [b"keys"]]
        if open_ones:
            raise StoreUnavailable(f"{self._what}: the text of {asked[open_ones[0]][0].key} changes all the time.")
        return answers

    def _command(self, name: str, feed: Feed, named: Sequence[str], arguments: Sequence[Argument]) -> list[Argument]:
        keys = [*self._names.keys(feed), *(self._names.text(feed, part) for part in named)]
        return ["EVALSHA", load(name).sha, len(keys), *keys, *arguments]

    async def _run(self, name: str, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            try:
                return [await self._nodes.execute(commands[0])]
            except NoScriptError:
                return [await self._nodes.execute(["EVAL", load(name).text, *commands[0][2:]])]
        answers = await self._nodes.execute_all(commands)
        for i, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):  # the first one of a server has it loaded for the others
                (answers[i],) = await self._run(name, [commands[i]])
            elif isinstance(answer, Exception):
                raise answer
        return answers

    async def _timely(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise StoreUnavailable(f"{self._what} is closed.")
        with typed(self._what):
            async with asyncio.timeout(self._deadline):
                return await work

    async def _here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this in the loop of the connections."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # How hints travel.

    async def _told_by(self, feed: Feed) -> str:
        """The command with which a script tells; empty where none is allowed."""
        way: Way
        if self._way is None:
            way = await self._here(self._timely(self._hints(feed)))
        else:
            way = self._way
        return TOLD_BY[way]

    async def _hints(self, feed: Feed) -> Way:
        """Found out once, by trying: a server may lack the command, and its rules may forbid it. The server that is
        tried is the one that has to be there for this feed anyway."""
        if self._way is None:
            channel = self._names.index(self._names.bucket(feed), "probe")
            ways: list[tuple[Way, str]] = [("sharded", "SPUBLISH"), ("plain", "PUBLISH")]
            for way, command in ways:
                try:
                    await self._nodes.execute([command, channel, b""])
                except NoPermissionError:
                    continue
                except ResponseError as error:
                    if "unknown command" not in str(error):
                        raise
                    continue
                self._way = way
                return way
            log.warning("%s allows no pub/sub: what is live is looked at every second instead.", self._what)
            self._way = "polled"
        return self._way

    async def _look(self, feeds: Collection[Feed]) -> dict[Feed, object]:
        marks, lengths = await self.stand(feeds), await self.lengths(feeds)
        return {feed: (held, lengths.get(feed)) for feed, held in marks.items()}

    # Indexes.

    async def _indexed(self, which: str, limit: int, bound: int = 0) -> list[Feed]:
        """Feeds that an index names and that wait indeed."""
        named = await self._due(which, limit * 2, bound)
        waits = await self._ask_all("waits", [(feed, [feed.key, which, bound]) for feed in named])
        return [feed for feed, still in zip(named, waits, strict=True) if still][:limit]

    async def _due(self, which: str, limit: int, bound: int) -> list[Feed]:
        return await self._here(self._timely(self._indexes.due(which, limit, bound)))

    async def _drop_damaged(self, feed: Feed, marks: Marks | None) -> None:
        """Drop what was found damaged, if it is still what it was, so that every later look finds it missing too."""
        where: list[Argument] = [marks.epoch, marks.tag] if marks else ["", ""]
        if await self._ask("drop", feed, [feed.key, *where]):
            log.warning("The projection of %s in %s was damaged and is dropped.", feed.key, self._what)
