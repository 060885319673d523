"""Each fault does what it says: between an echo and its caller, and between a real Redis and its driver."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisGone
from redis.exceptions import TimeoutError as RedisSilent

from playhead.testing.faults import Cut, Mode, Proxy
from playhead.testing.harness.process import free_port
from playhead.testing.harness.redis import Server

pytestmark = pytest.mark.anyio

SOON = 20.0  # patience
A_WHILE = 0.1  # in which nothing comes
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_opened: list[asyncio.StreamWriter] = []


class Echo:
    """Sends back what it gets. `got` is that; `ends` says how each connection ended on its side."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.sizes: list[int] = []
        self.ends: list[str] = []
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while data := await reader.read(65_536):
                self.got += data
                self.sizes.append(len(data))
                writer.write(data)
                await writer.drain()
            self.ends.append("orderly")
        except OSError:
            self.ends.append("reset")
        finally:
            writer.close()


@asynccontextmanager
async def echoing(seed: int = 0) -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = server.sockets[0].getsockname()[1]
    try:
        async with Proxy(echo.port, seed=seed) as proxy:
            yield echo, proxy
    finally:
        server.close()
        for writer in (*echo.writers, *_opened):
            writer.close()
        _opened.clear()


async def connect(proxy: Proxy) -> Pair:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    _opened.append(writer)
    return reader, writer


async def said(pair: Pair, data: bytes) -> bytes:
    """The echo of this."""
    pair[1].write(data)
    async with asyncio.timeout(SOON):
        return await pair[0].readexactly(len(data))


async def rest(pair: Pair) -> bytes | None:
    """What else comes until the end; None for a reset."""
    try:
        async with asyncio.timeout(SOON):
            return await pair[0].read()
    except ConnectionError:
        return None


async def nothing(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(A_WHILE):
            await pair[0].read(1)


async def until(done: Any) -> None:
    async with asyncio.timeout(SOON):
        while not done():
            await asyncio.sleep(0.005)


async def test_without_a_fault_everything_passes_and_an_end_too() -> None:
    async with echoing() as (echo, proxy):
        one, other = await connect(proxy), await connect(proxy)
        big = bytes(range(256)) * 4_000
        assert await said(one, big) == big
        assert await said(other, b"small") == b"small"
        assert proxy.lines == 2
        one[1].write_eof()
        assert await rest(one) == b""
        await until(lambda: proxy.lines == 1)
        assert echo.ends == ["orderly"]
        other[1].close()
        await until(lambda: proxy.lines == 0)
        assert proxy.accepted == 2


async def reaching(proxy: Proxy, count: int) -> None:
    """Return when the proxy has let so many in and the last of them is not yet through to the server."""
    async with asyncio.timeout(SOON):
        while proxy.accepted < count:
            await asyncio.sleep(0)
    assert proxy.lines < count


@pytest.mark.parametrize("end", ["reset", "close_lines"])
async def test_a_connection_that_does_not_reach_the_server_yet_ends_with_the_others(end: str) -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await reaching(proxy, 1)
        getattr(proxy, end)()
        assert await rest(pair) is None
        assert proxy.lines == 0
        assert echo.got == b""
        assert await said(await connect(proxy), b"later") == b"later"
        assert proxy.lines == 1


@pytest.mark.parametrize("turns", range(6))
async def test_nobody_slips_through_between_the_port_and_the_server(turns: int) -> None:
    """However far the proxy has come with a connection when it refuses and resets."""
    async with echoing() as (_, proxy):
        with socket.create_connection(("127.0.0.1", proxy.port)) as sock:  # as far as the kernel is concerned
            for _turn in range(turns):
                await asyncio.sleep(0)
            await proxy.refuse()
            proxy.reset()
            pair = await asyncio.open_connection(sock=sock)
            assert await rest(pair) is None
            pair[1].close()
        assert proxy.lines == 0


@pytest.mark.parametrize("way", ["up", "down"])
async def test_hold_moves_nothing_that_way_until_it_is_over(way: str) -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        held = proxy.up if way == "up" else proxy.down
        held.set(hold=True)
        pair[1].write(b"b")
        await nothing(pair)
        assert bytes(echo.got) == (b"a" if way == "up" else b"ab")
        held.set()
        async with asyncio.timeout(SOON):
            assert await pair[0].read(10) == b"b"


async def test_both_ways_held_a_hole_in_which_an_end_is_not_heard_either() -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        proxy.up.set(hold=True)
        proxy.down.set(hold=True)
        pair[1].write(b"b")
        pair[1].close()
        await asyncio.sleep(A_WHILE)
        assert echo.ends == []
        await proxy.resume()
        await until(lambda: echo.ends)
        assert bytes(echo.got) == b"ab"


@pytest.mark.parametrize(("way", "got"), [("up", b"a"), ("down", b"ab")])
async def test_drop_reads_and_discards(way: str, got: bytes) -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        (proxy.up if way == "up" else proxy.down).set(drop=True)
        pair[1].write(b"b")
        await nothing(pair)
        assert bytes(echo.got) == got
        await proxy.resume()
        assert await said(pair, b"c") == b"c"


async def test_delay_is_latency_and_keeps_the_order() -> None:
    async with echoing() as (_, proxy):
        pair = await connect(proxy)
        loop = asyncio.get_running_loop()
        proxy.down.set(delay=0.05, jitter=0.05)
        began = loop.time()
        for i in range(20):
            pair[1].write(bytes([i]))
            await asyncio.sleep(0)
        async with asyncio.timeout(SOON):
            assert await pair[0].readexactly(20) == bytes(range(20))
        assert loop.time() - began >= 0.05


async def test_rate_bounds_the_bytes_a_second() -> None:
    async with echoing() as (_, proxy):
        pair = await connect(proxy)
        loop = asyncio.get_running_loop()
        proxy.up.set(rate=20_000)
        began = loop.time()
        assert await said(pair, b"x" * 4_000) == b"x" * 4_000
        assert loop.time() - began >= 0.15


async def test_pieces_are_as_small_as_was_said_and_the_same_for_one_seed() -> None:
    async def sizes(seed: int) -> list[int]:
        async with echoing(seed) as (echo, proxy):
            proxy.up.set(most=7)
            pair = await connect(proxy)
            assert await said(pair, bytes(range(100))) == bytes(range(100))
            return echo.sizes

    found = await sizes(1)  # what arrives together may be read together
    assert sum(found) == 100
    assert len(found) > 1
    chances = [Proxy(0, seed=seed).up for seed in (1, 1, 2)]
    for way in chances:
        way.set(most=7)
    same, again, other = ([len(way.piece(bytes(100))) for _ in range(50)] for way in chances)
    assert same == again != other


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_cut_behind_a_number_of_bytes(how: Any) -> None:
    async with echoing() as (echo, proxy):
        proxy.down.set(cut=Cut(after=10, how=how, times=1))
        pair = await connect(proxy)
        pair[1].write(b"0123456789abc")
        got = b""
        try:
            async with asyncio.timeout(SOON):
                while piece := await pair[0].read(100):
                    got += piece
            ended = "close"
        except ConnectionError:
            ended = "reset"
        assert ended == how
        assert got == b"0123456789" or (how == "reset" and b"0123456789".startswith(got))
        await until(lambda: echo.ends)
        assert (proxy.down.cuts, proxy.down.cut) == (1, None)
        spared = await connect(proxy)
        assert await said(spared, b"0123456789abc") == b"0123456789abc"


async def test_a_cut_counts_for_each_connection_from_when_it_was_set() -> None:
    left = [3, None]
    async with echoing() as (_, proxy):
        before = await connect(proxy)
        await said(before, b"0123456789")
        proxy.down.set(cut=Cut(after=lambda: left.pop(0), how="close"))
        before[1].write(b"abcdef")
        assert await rest(before) == b"abc"
        spared = await connect(proxy)
        assert await said(spared, b"0123456789") == b"0123456789"


@pytest.mark.parametrize("most", [None, 1, 3])
async def test_a_cut_behind_the_nth_frame_wherever_its_bytes_were_parted(most: int | None) -> None:
    async with echoing() as (_, proxy):
        proxy.down.set(most=most, cut=Cut(at=rb"\n\n", matches=3, how="close"))
        pair = await connect(proxy)
        pair[1].write(b"one\n\ntwo\n\n\nthree\n\nfour\n\n")
        assert await rest(pair) == b"one\n\ntwo\n\n\nthree\n\n"


async def test_reset_ends_both_sides_as_a_crash_does() -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        proxy.reset()
        assert await rest(pair) is None
        await until(lambda: echo.ends)
        assert echo.ends == ["reset"]
        assert await said(await connect(proxy), b"b") == b"b"


async def test_close_lines_ends_both_sides_in_good_order() -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        proxy.close_lines()
        assert await rest(pair) == b""
        await until(lambda: echo.ends == ["orderly"])


async def test_refuse_refuses_new_connections_and_leaves_the_open_ones() -> None:
    async with echoing() as (_, proxy):
        pair = await connect(proxy)
        await proxy.refuse()
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await connect(proxy)
        assert await said(pair, b"a") == b"a"
        port = proxy.port
        await proxy.resume()
        assert proxy.port == port
        assert await said(await connect(proxy), b"b") == b"b"


async def test_half_close_ends_one_direction_only() -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        proxy.half_close("down")
        async with asyncio.timeout(SOON):
            assert await pair[0].read() == b""
        pair[1].write(b"b")
        await until(lambda: bytes(echo.got) == b"ab")


async def test_a_client_that_vanishes_leaves_the_server_with_an_open_connection() -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        proxy.vanish("client")
        assert await rest(pair) is None
        for writer in echo.writers:
            writer.write(b"are you there?")
        await asyncio.sleep(A_WHILE)
        assert echo.ends == []
        assert await said(await connect(proxy), b"b") == b"b"
        await proxy.resume()
        await until(lambda: echo.ends == ["reset"])


async def test_a_server_that_vanishes_leaves_the_client_with_an_open_connection() -> None:
    async with echoing() as (echo, proxy):
        pair = await connect(proxy)
        await said(pair, b"a")
        proxy.vanish("server")
        await until(lambda: echo.ends == ["reset"])
        pair[1].write(b"are you there?")
        await nothing(pair)


@pytest.mark.parametrize("most", [None, 2])
async def test_a_lost_answer_is_of_a_command_that_was_delivered(most: int | None) -> None:
    async with echoing() as (echo, proxy):
        proxy.up.set(most=most)
        proxy.lose_answers(rb"STORE \w+;", answer=rb";")
        pair = await connect(proxy)
        assert await said(pair, b"LOOK;") == b"LOOK;"
        pair[1].write(b"STORE this;")
        assert await rest(pair) is None
        assert bytes(echo.got) == b"LOOK;STORE this;"
        assert proxy.answers_to_lose == 0
        again = await connect(proxy)
        assert await said(again, b"STORE that;") == b"STORE that;"


async def test_a_fault_with_a_time_heals_by_itself() -> None:
    async with echoing() as (_, proxy):
        pair = await connect(proxy)
        proxy.down.set(hold=True, seconds=0.05)
        assert await said(pair, b"a") == b"a"
        assert proxy.down.mode == Mode()


async def test_nobody_behind_the_proxy_is_a_reset() -> None:
    async with Proxy(free_port()) as proxy:
        pair = await connect(proxy)
        assert await rest(pair) is None
        pair[1].close()
        assert [one.what for one in proxy.log] == ["listen", "nobody is there"]


def test_a_mode_that_cannot_be_is_refused() -> None:
    for bad in ({"delay": -1.0}, {"rate": 0}, {"most": 0}):
        with pytest.raises(ValueError):
            Mode(**bad)
    for cut in ({}, {"after": 1, "at": b"x"}, {"after": -1}, {"at": b"x", "matches": 0}):
        with pytest.raises(ValueError):
            Cut(**cut)


async def test_everything_is_logged_with_its_time_and_connection() -> None:
    async with echoing() as (_, proxy):
        proxy.down.set(cut=Cut(after=1))
        pair = await connect(proxy)
        pair[1].write(b"ab")
        await rest(pair)
        await until(lambda: proxy.lines == 0)
        assert [(one.what.partition("=")[0], one.line) for one in proxy.log] == [
            ("listen", None), ("down: cut", None), ("open", 1), ("down: cut (reset)", 1), ("over", 1),
        ]  # fmt: skip
        times = [one.at for one in proxy.log]
        assert times == sorted(times)


async def test_closing_the_proxy_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with echoing() as (_, proxy):
        pairs = [await connect(proxy) for _ in range(5)]
        for pair in pairs:
            await said(pair, b"a")
        proxy.up.set(hold=True)
        proxy.down.set(delay=60.0)
        for pair in pairs:
            pair[1].write(b"b" * 100_000)
        await asyncio.sleep(0.02)
    for pair in pairs:
        assert await rest(pair) is None
    await until(lambda: asyncio.all_tasks() == before)


async def order(path: Path, *orders: Any) -> list[Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    answers = []
    for one in orders:
        writer.write((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n")
        answers.append(json.loads(await reader.readline()))
    writer.close()
    return answers


async def test_orders_come_by_a_unix_socket_too(tmp_path: Path) -> None:
    async with echoing() as (_, proxy):
        await proxy.control(tmp_path / "orders")
        path = tmp_path / "orders"
        cut = {"do": "down", "cut": {"at": "\\d\\n", "matches": 2, "how": "close"}, "most": 3}
        assert await order(path, cut) == [{"ok": True}]
        assert proxy.down.mode == Mode(most=3, cut=Cut(at=rb"\d\n", matches=2, how="close"))
        pair = await connect(proxy)
        pair[1].write(b"1\n2\n3\n")
        assert await rest(pair) == b"1\n2\n"
        bad = [b"{", {"do": "explode"}, {"no": 1}, {"do": "up", "delay": -1}, {"do": "up", "nonsense": 1}, []]
        for answer in await order(path, *bad):
            assert answer.keys() == {"error"}
        resumed = {"do": "resume"}
        lost = {"do": "lose_answers", "command": "a", "times": 2}
        more = [{"do": "refuse"}, resumed, lost, {"do": "half_close", "way": "up"}, {"do": "reset"}, {"do": "close"}]
        assert await order(path, *more, {"do": "vanish", "side": "client"}) == [{"ok": True}] * 7
        assert proxy.answers_to_lose == 2
        [told] = await order(path, {"do": "log"})
        assert [what for _, what, _ in told["log"]][-5:] == [
            "lose 2 answers to b'a'", "up: half close", "reset", "close", "the client vanishes",
        ]  # fmt: skip


async def test_a_proxy_of_its_own_process(tmp_path: Path) -> None:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = [sys.executable, "-m", "playhead.testing.faults", str(port), "--control", str(tmp_path / "orders")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SOON):
            told = int(await process.stdout.readline())
        pair = await asyncio.open_connection("127.0.0.1", told)
        assert await said(pair, b"a") == b"a"
        assert await order(tmp_path / "orders", {"do": "reset"}) == [{"ok": True}]
        assert await rest(pair) is None
        pair[1].close()
    finally:
        process.kill()
        await process.wait()
        server.close()


# Between a real Redis and its driver.


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with Server() as server:
        yield server


@asynccontextmanager
async def driven(server: Server) -> AsyncIterator[tuple[Proxy, Any]]:
    async with Proxy(server.port) as proxy:
        client = aioredis.Redis(
            host="127.0.0.1",
            port=proxy.port,
            protocol=2,
            socket_timeout=0.3,
            retry=Retry(NoBackoff(), 0),
            legacy_responses=False,
        )
        try:
            yield proxy, client
        finally:
            await client.aclose()


async def test_redis_gets_a_command_whose_answer_is_lost(redis: Server) -> None:
    redis.ask("SET", "counted", 0)
    async with driven(redis) as (proxy, client):
        await client.ping()
        proxy.lose_answers(rb"\r\ncounted\r\n")
        with pytest.raises(RedisGone):
            await client.incr("counted")
        assert int(redis.ask("GET", "counted")) == 1
        assert await client.incr("counted") == 2


async def test_redis_in_a_hole_is_silent_and_refused_is_gone(redis: Server) -> None:
    redis.ask("SET", "counted", 0)
    async with driven(redis) as (proxy, client):
        await client.ping()
        proxy.down.set(hold=True)  # it gets what is asked, and its answers do not come
        with pytest.raises(RedisSilent):
            await client.incr("counted")
        assert int(redis.ask("GET", "counted")) == 1
        proxy.up.set(hold=True)
        with pytest.raises(RedisSilent):
            await client.incr("counted")
        assert int(redis.ask("GET", "counted")) == 1
        await proxy.refuse()
        proxy.reset()
        with pytest.raises(RedisGone):
            await client.ping()
        await proxy.resume()
        assert await client.ping()


async def test_redis_connections_that_are_cut_every_so_many_commands(redis: Server) -> None:
    async with driven(redis) as (proxy, client):
        proxy.up.set(cut=Cut(at=rb"\*\d+\r\n\$", matches=10))
        failed = 0
        for i in range(60):
            try:
                await client.set("key", i)
            except RedisGone:
                failed += 1
        assert 3 <= failed == proxy.up.cuts <= 20
