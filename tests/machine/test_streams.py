"""Random hostile histories of one run through hub, subscriptions and stream route, with clients in process."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from playhead.core.cursor import Cursor
from playhead.runtime.bootstrap import Screens
from playhead.runtime.hub import Hub
from tests.machine.client import Client, Lossy
from tests.machine.history import PLANS, SEEDS, History, play
from tests.plugins import histories

CLIENTS = 3
WHICH = st.integers(0, CLIENTS - 1)
SHARES = {"memory": 0.3, "sqlite": 0.3, "servers": 0.02}  # of the histories that the ports get
HEALING = 60.0  # seconds for sweeps and retries


class Streams(History):
    clients: list[Client]
    hub: Hub
    signal: Lossy

    async def began(self) -> None:
        world, stores = self.world, self.world.stores
        self.signal = Lossy(stores.signal)
        projector = world.server.projector
        self.hub = Hub(stores.record, stores.live, stores.live, self.signal, projector, world.clock)
        screens = Screens(stores.record, stores.record, stores.live, stores.live, projector)
        self.clients = [Client(world, self.hub, screens) for _ in range(CLIENTS)]
        world.background.append(asyncio.get_running_loop().create_task(self.hub.run()))
        await self.clients[0].connect(inline=True, driven=True)

    @rule(
        which=WHICH,
        how=st.sampled_from(["none", "held", "held", "screen", "old", "foreign", "other", "ahead", "malformed"]),
        back=st.integers(0, 30),
        inline=st.booleans(),
        driven=st.booleans(),
        several=st.booleans(),
        plan=PLANS,
        seed=SEEDS,
    )
    def connect(
        self,
        which: int,
        how: str,
        back: int,
        inline: bool,
        driven: bool,
        several: bool,
        plan: list[str],
        seed: int,
    ) -> None:
        client, truth = self.clients[which], self.world.truth

        async def connect() -> None:
            await client.leave()
            if how == "screen" or (how == "held" and client.stopped):
                await client.load(back)
            elif how == "none":
                client.hold(None, None)
            elif how != "held":
                client.hold(*self.cursor(how, back))
            await client.connect(inline=inline, driven=driven, several=several)

        assert truth.cursors
        self.step(connect, plan, seed)

    def cursor(self, how: str, back: int) -> tuple[str, list[str]]:
        """A cursor of this kind, with what its holder has."""
        truth, line = self.world.truth, self.world.truth.line
        known = truth.cursors[-1 - back % len(truth.cursors)]
        if how == "old":
            return str(known), list(truth.history[known.tag])
        if how == "other":
            return str(self.world.other.cursors[back % len(self.world.other.cursors)]), ["not of this run"]
        if how == "ahead" and line is not None:
            return str(Cursor(line.epoch, line.position + 1 + back, line.tags[-1])), ["from the future"]
        if how == "malformed":
            return "1-2", ["nonsense"]
        return str(Cursor(known.epoch, known.position, "0123456789ab")), ["of nobody"]

    @rule(
        which=WHICH,
        what=st.sampled_from(["leave", "stall", "stall", "take", "load", "turn back"]),
        limit=st.sampled_from([0, 1, 3, 50]),
        lose=st.sampled_from([0, 0, 1, 3]),
        plan=PLANS,
        seed=SEEDS,
    )
    def use(self, which: int, what: str, limit: int, lose: int, plan: list[str], seed: int) -> None:
        """`stall`: the client's socket takes nothing until it takes again. `lose`: so many hints get lost next."""
        self.signal.lose = lose
        self.step(lambda: self.clients[which].use(what, limit), plan, seed)

    async def converge(self) -> None:
        self.signal.lose = 0
        for client in self.clients:
            client.open.set()
        for _ in range(3):  # one that was cut comes back
            await self.world.clock.advance(HEALING)
            for client in self.clients:
                if not client.connected and not client.ended:
                    if client.stopped or client.cursor is None:
                        await client.load(50)
                    await client.connect(inline=True, driven=True)
        await self.world.clock.advance(HEALING)

    def agreed(self) -> None:
        for client in self.clients:
            client.check_converged()


@pytest.mark.slow
@pytest.mark.timeout(600 + 6 * histories.count())
@pytest.mark.row("H-machine", "A32", "M-join-race", "M-hint-lost", "M-reload", "M-cursor-expired", "BR-05")
@pytest.mark.parametrize("backend", ["memory", "sqlite", "servers"])
def test_hostile_histories_through_the_hub(backend):
    play(Streams, backend, histories.count(SHARES[backend]))
