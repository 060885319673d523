"""Histories in which the machines once found a fault, and which chance brings seldom."""

from __future__ import annotations

import pytest

from playhead.core.replay import Reason
from tests.machine.history import History
from tests.machine.test_ports import Ports
from tests.machine.test_streams import Streams
from tests.machine.world import LONG

pytestmark = pytest.mark.parametrize("backend", ["memory", "sqlite", "servers"])


@pytest.fixture
def begin(backend):
    """Start a calm history of one attempt; it ends, and is judged, with the test."""
    begun: list[History] = []

    def make(kind, *, raw=False, archive="off", count=1_000):
        machine = type(kind.__name__, (kind,), {"backend": backend})()
        begun.append(machine)
        machine.begin(archive=archive, count=count, seed=1, lifetime=100, chatter=0, attempts=[raw])
        return machine

    yield make
    for machine in begun:
        machine.teardown()


def publish(machine, count, who=0):
    machine.work(who, [("publish", count, count)], [], 0)


def test_an_overtaken_attempt_shows_nothing_of_itself_when_its_process_rebuilds(begin):
    machine = begin(Ports)
    publish(machine, 2)
    machine.start(False, [], 0)
    machine.bring([1], True, [], 0)  # the process of the first attempt
    assert b"attempt 1" not in machine.world.truth.line.state


def test_last_words_are_not_put_on_a_timeline_that_lost_what_came_before(begin):
    machine = begin(Ports, archive="async")
    publish(machine, 2)
    machine.happen("copy", 0)
    publish(machine, 1)
    machine.happen("back", 0)
    machine.outage(True)
    publish(machine, 1)
    machine.finish("failed", 0, True, [], 0)
    machine.outage(False)
    machine.bring([0], False, [], 0)
    truth = machine.world.truth
    assert truth.line is None  # it is over: what went back is dropped, and the archive has what there is
    assert [name.rpartition(":")[2] for name in truth.archive if not name.startswith("run:")] == ["1", "2", "4"]
    assert truth.archive[-1] == truth.facts[-1].event.id


def test_a_timeline_is_archived_before_it_is_emptied_also_under_a_busy_attempt(begin):
    machine = begin(Ports, archive="async", raw=True)
    world = machine.world
    for seed in range(1, 40):
        # By somebody who then died, so the attempt goes on under the old epoch until it is told.
        machine.step(lambda: world.surely("mint_epoch", world.truth.feed, world.run.epoch))
        machine.step(lambda: world.clock.advance(2.5))
        work = [world.bring(0), world.work(0, [("publish", 1, 1)] * 3)]
        machine.step(lambda work=work: world.all_at_once(*work), [], seed)
        assert world.truth.line.epoch == world.run.epoch


def test_a_projection_that_lacks_facts_is_rebuilt_when_no_fact_is_kept_any_more(begin):
    machine = begin(Ports)
    machine.happen("copy", 0)
    machine.work(0, [("ask", "one", True)], [], 0)
    machine.wait(70.0, 0.0)
    before = machine.world.run.epoch
    machine.happen("back", 0)
    machine.bring([0], False, [], 0)
    assert machine.world.run.epoch > before
    assert machine.world.truth.line.rev == machine.world.run.rev


def test_a_client_behind_the_tip_goes_on_when_the_store_went_back_to_what_it_has(begin):
    machine = begin(Streams, raw=True)
    machine.connect(1, "screen", 5, True, True, False, [], 0)
    machine.use(1, "stall", 3, 0, [], 0)
    publish(machine, 1)
    publish(machine, 1)
    machine.happen("copy", 0)
    publish(machine, 2)
    machine.happen("back", 0)
    machine.step(lambda: machine.world.clock.advance(16.0))  # a sweep
    machine.use(1, "take", 3, 0, [], 0)
    assert [client.resyncs for client in machine.clients[:2]] == [[Reason.AHEAD], []]


def test_a_resync_names_the_place_that_a_held_up_client_has_reached(begin):
    machine = begin(Streams)
    machine.use(0, "stall", 3, 0, [], 0)
    publish(machine, 2)
    machine.happen("lost", 0)
    machine.bring([0], False, [], 0)
    machine.step(lambda: machine.world.clock.advance(16.0))
    machine.use(0, "take", 3, 0, [], 0)  # the client compares what it is told with what it has
    assert machine.clients[0].resyncs == [Reason.EPOCH]


def test_what_a_fact_took_along_is_archived_in_its_place_where_a_trimmed_hole_ends_within_it(begin):
    machine = begin(Ports, archive="sync", count=1)
    machine.end_while_the_store_is_away(count=3, how="failed", plan=[], seed=0)
    machine.outage(False)
    machine.start(False, [], 0)
    machine.work_at_once([("publish", 1, None)], [("publish", 0, None)], [], 0)
    machine.happen("lost", 0)
    names = [name.partition(":")[2] for name in machine.world.truth.archive if not name.startswith("run:")]
    assert names[:3] == ["1:1", "1:2", "1:3"]


def test_a_run_that_is_given_back_after_the_clock_went_back_waits_for_no_earlier_loss(begin):
    machine = begin(Ports)
    for _ in range(4):
        machine.start(False, [], 0)
    machine.wait(0.3, -30.0)
    machine.wait(0.3, -30.0)
    machine.end_while_the_store_is_away(count=1, how="released", plan=[], seed=0)
    machine.outage(False)
    machine.start(False, [], 0)
    assert machine.world.run.owner is not None


def test_a_lost_run_that_nobody_took_before_the_clock_went_back_is_taken_later(begin):
    machine = begin(Ports)
    world = machine.world
    machine.step(lambda: world.surely("leave", world.run.owner))
    machine.step(lambda: world.surely("lose", world.run.id, world.run.token, None))
    over = (world.clock.wall_ms() - world.run.not_before) / 1_000
    machine.wait(0.3, -(over + 10 + LONG + 15))  # what healing lets pass, and half of the longest backoff


def test_the_end_has_its_status_where_the_store_lost_a_state_just_before_it(begin):
    machine = begin(Streams)
    machine.happen("copy", 0)
    machine.connect(which=0, how="none", driven=False, several=False, inline=False, back=0, plan=[], seed=0)
    machine.work(0, [("publish", 0, 7)], [], 0)  # a state and nothing else: the next write has its version again
    machine.finish("failed", 0, False, [], 0)
    machine.come_out_of_turn(0, 0)
    assert machine.clients[0].ended


def test_what_a_fact_took_along_is_lost_with_both_stores_alone(begin):
    """The live store loses it just before the fact comes, and the archive looks when the record has forgotten both."""
    machine = begin(Ports, archive="async", count=1)
    machine.end_while_the_store_is_away(count=1, how="released", plan=[], seed=0)
    machine.outage(False)
    machine.cancel(False, [], 0)
    machine.come_out_of_turn(0, 0)
    [carried] = machine.world.truth.carried
    assert carried not in machine.world.truth.excused
    machine.wait(0.3, 0.0)
    assert carried in machine.world.truth.excused
