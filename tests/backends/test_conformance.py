"""Every backend passes the whole suite of each port that it offers. A new backend is one line in each table."""

import math
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core.retention import Retention
from playhead.testing.check import LiveBench, RecordBench
from playhead.testing.check_archive import CHECKS as ARCHIVE
from playhead.testing.check_projection_store import CHECKS as PROJECTION
from playhead.testing.check_run_store import CHECKS as RUNS
from playhead.testing.check_signal import CHECKS as SIGNAL
from playhead.testing.check_text_channel import CHECKS as TEXT
from playhead.testing.clock import FakeClock
from tests.support import redis_servers


async def memory_record(clock, folder: Path):
    return MemoryRecord(clock)


async def sqlite_record(clock, folder: Path):
    from playhead.backends.sqlite import SqliteRecord

    return await SqliteRecord.open(folder / "record.db", clock=clock)


async def postgres_record(clock, dsn: str):
    from playhead.backends.postgres import PostgresRecord

    return await PostgresRecord.open(dsn, clock=clock, wall=lambda _: clock.wall_ms())


async def memory_live(clock, folder: Path, **options):
    return MemoryLive(clock, **options)


async def sqlite_live(clock, folder: Path, **options):
    from playhead.backends.sqlite import SqliteLive

    return await SqliteLive.at(folder / "live.db", clock=clock, **options)


def redis_live(kind, **how):
    async def make(clock, folder: Path, **options):
        return await redis_servers.live(kind, clock, **how, **options)

    return make


RECORDS = {"memory": memory_record, "sqlite": sqlite_record, "postgres": postgres_record}
# Further servers and ways of a kind.
WIDE = ("valkey", "redis7", "cluster", "valkey_cluster", "sentinel", "redis-pool", "cluster-pool")
LIVES = {"memory": memory_live, "sqlite": sqlite_live}
LIVES |= {kind: redis_live(kind) for kind in ("redis", "valkey", "redis7", "cluster", "valkey_cluster", "sentinel")}
LIVES |= {f"{kind}-pool": redis_live(kind, pipelined=False) for kind in ("redis", "cluster")}
SIGNALS = [name for name in LIVES if name != "sqlite"]
PLACES = {postgres_record: "postgres_dsn"}  # the fixture that gives a backend its place, where that is not a folder

# Check → the rows of the case table that it proves, on every backend.
ROWS = {
    "a_cancel_before_wins": ("BR-26",),
    "a_cancel_after_is_too_late": ("BR-26",),
    "cancel_and_end_agree_in_every_order": ("BR-26",),
    "the_same_decision_again_is_the_same_answer": ("BR-49",),
    "ten_clicks_are_one_decision": ("BR-49",),
    "of_two_opinions_the_first_counts": ("BR-49",),
    "a_second_question_is_shown": ("BR-51",),
    "after_the_deadline_no_answer_counts": ("BR-54",),
    "after_a_cancel_no_answer_counts": ("BR-54",),
    "deadline_decision_and_cancel_agree_in_every_order": ("BR-54",),
    "no_run_is_given_twice": ("A10",),
    "tokens_only_grow": ("A10",),
    "a_superseded_attempt_writes_nothing": ("A37",),
    "a_beat_tells_what_is_lost": ("A37",),
    "nothing_moves_an_ended_run": ("A12",),
    "final_is_a_latch": ("A12",),
    "quick_writes_are_all_accepted": ("BR-40", "R23"),
    "an_old_state_is_refused_with_its_events": ("BR-40", "R23"),
    "numbers_pass_every_digit_border": ("BR-07",),
    "a_missing_projection_is_rebuilt": ("A8",),
    "readers_go_on_where_nothing_is_missing": ("A2", "T-1"),
    "readers_are_told_what_is_missing": ("A1", "A5", "T-2", "T-3", "T-4", "T-7"),
    "a_write_sent_again_is_stored_once": ("A14", "R18"),
    "a_run_that_goes_on_never_expires": ("A15",),
    "tokens_are_compared_exactly": ("A9",),
    "every_argument_is_checked_before_anything_is_written": ("A9", "A11"),
    "every_append_moves_the_tip": ("A17",),
    "an_opened_projection_is_what_the_record_says": ("A18",),
    "ids_that_nobody_made_are_not_found": ("A39",),
    "feeds_are_apart": ("A39",),
    "every_character_is_stored_as_it_is": ("BR-60",),
    "nothing_is_lost_that_was_renewed": ("BR-34",),
    "beat_and_reaper_agree": ("BR-34",),
    "attempts_run_out": ("F12",),
    "events_and_state_become_visible_together": ("R4", "R21", "S1-3"),
    "a_reader_sees_whole_writes": ("A21", "R21", "S1-3"),
    "a_final_run_expires_in_two_steps": ("R3", "S1-1"),
    "the_first_reason_is_told": ("R22", "S1-5"),
    "text_is_fenced": ("R22", "S1-5"),
    "only_an_attempt_start_sets_the_token": ("S1-5",),
    "bytes_are_bounded_always": ("S1-10",),
    "a_run_whose_last_viewer_left_is_cancelled_once": ("R61",),
    "viewers_on_any_process_count": ("R61",),
    "a_process_without_a_lease_took_its_viewers_along": ("R61",),
    "a_run_that_nobody_watched_goes_on": ("R61",),
}


def test_every_row_names_a_check():
    assert ROWS.keys() <= {check.name for suite in (RUNS, ARCHIVE, PROJECTION, TEXT, SIGNAL) for check in suite}


def table(backends, checks):
    return [
        pytest.param(make, check, id=f"{name}-{check.name}", marks=marks(name, check.name))
        for name, make in backends.items()
        for check in checks
    ]


def marks(backend, check):
    return [pytest.mark.row(*ROWS.get(check, ())), *([pytest.mark.wide] if backend in WIDE else [])]


@pytest.fixture
def record(request):
    def bound(make):
        place = request.getfixturevalue(PLACES.get(make, "tmp_path"))

        @asynccontextmanager
        async def bench():
            clock = FakeClock()
            store = await make(clock, place)
            try:
                yield RecordBench(store, store, clock)
            finally:
                await store.close()

        return bench

    return bound


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "check"), table(RECORDS, RUNS))
async def test_run_store(record, make, check):
    await check.run(record(make))


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "check"), table(RECORDS, ARCHIVE))
async def test_archive(record, make, check):
    @asynccontextmanager
    async def archive():
        async with record(make)() as bench:
            yield bench.archive

    await check.run(archive)


@pytest.fixture
def live(tmp_path):
    def bound(make):
        @asynccontextmanager
        async def bench(**options):
            clock = FakeClock()
            store = await make(clock, tmp_path, **options)
            try:
                yield LiveBench(store, store, store.signal, clock)
            finally:
                await store.close()

        return bench

    return bound


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "check"), table(LIVES, PROJECTION))
async def test_projection_store(live, make, check):
    await check.run(live(make))


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "check"), table(LIVES, TEXT))
async def test_text_channel(live, make, check):
    await check.run(live(make))


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "check"), table({name: LIVES[name] for name in SIGNALS}, SIGNAL))
async def test_signal(live, make, check):
    @asynccontextmanager
    async def signal():
        async with live(make)(retention=Retention(), timeline_ttl=60.0, snapshot_ttl=60.0) as bench:
            yield bench.signal

    await check.run(signal)


@pytest.mark.row("A13")
@pytest.mark.anyio
@pytest.mark.parametrize("make", [pytest.param(LIVES[name], id=name, marks=marks(name, "")) for name in LIVES])
async def test_no_store_takes_a_time_to_live_that_is_none(make, tmp_path):
    for bad in (0, -1, 0.0001, math.nan, math.inf, "60", None):
        for name in ("timeline_ttl", "snapshot_ttl", "idle_ttl"):
            times = {"timeline_ttl": 60.0, "snapshot_ttl": 60.0, name: bad}
            with pytest.raises(ValueError, match="time to live"):
                await make(FakeClock(), tmp_path, retention=Retention(), **times)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("checks", [RUNS, ARCHIVE, PROJECTION, TEXT, SIGNAL])
def test_every_check_states_its_rule_and_has_its_own_name(checks):
    assert all(check.rule.endswith(".") for check in checks)
    assert len({check.name for check in checks}) == len(checks)
