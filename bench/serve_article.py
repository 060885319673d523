"""The published pattern as a server: one blocking stream read in Redis for each viewer, a generator response.

    python -m bench.serve_article PORT REDIS_PORT

The same commands as bench.serve_playhead; its CPU includes that of the Redis server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import redis.asyncio as redis
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bench.measure import cpu_seconds

EVENTS, STATE = "agent:run:{bench}:events", "agent:run:{bench}:state"
TRANSITION = """
local fence = redis.call('HGET', KEYS[2], 'fencing_token')
if fence and tonumber(fence) > tonumber(ARGV[1]) then return redis.error_reply('STALE') end
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 1000, '*', 'type', ARGV[2], 'payload_json', ARGV[3])
redis.call('HSET', KEYS[2], 'fencing_token', ARGV[1], 'status', 'running', 'progress', ARGV[4], 'last_event_id', id)
redis.call('EXPIRE', KEYS[1], 86400)
redis.call('EXPIRE', KEYS[2], 86400)
return id
"""


class Server:
    def __init__(self, redis_port: int) -> None:
        # One connection for each viewer, as the pattern has it; a socket timeout above the block.
        pool = redis.ConnectionPool(host="127.0.0.1", port=redis_port, max_connections=20_000, socket_timeout=60)
        self.redis = redis.Redis(connection_pool=pool)
        self.redis_pid = 0

    async def stream(self, request: Request) -> StreamingResponse:
        async def frames() -> AsyncIterator[str]:
            yield ": open\n\n"
            last = "$"
            while True:
                batches: Any = await self.redis.xread({EVENTS: last}, count=100, block=15_000)
                found = batches[0][1] if batches else []
                for entry_id, fields in found:
                    last = entry_id.decode()
                    payload = json.loads(fields[b"payload_json"])
                    data = json.dumps({"type": fields[b"type"].decode(), "payload": payload})
                    yield f"id: {last}\nevent: {fields[b'type'].decode()}\ndata: {data}\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def emit(self, events: int, burst: int, pause: float) -> None:
        before = time.process_time() + cpu_seconds(self.redis_pid)
        sent = 0
        while sent < events:
            for _ in range(min(burst, events - sent)):
                sent += 1
                payload = json.dumps({"n": sent, "pad": "x" * 60})
                await self.redis.eval(TRANSITION, 2, EVENTS, STATE, 1, "mark_set", payload, sent)
            await asyncio.sleep(pause)
        await asyncio.sleep(1.0)
        print(json.dumps({"cpu": time.process_time() + cpu_seconds(self.redis_pid) - before}), flush=True)

    async def main(self, port: int) -> None:
        self.redis_pid = int((await self.redis.info("server"))["process_id"])
        app = Starlette(routes=[Route("/stream", self.stream)])
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", backlog=4096))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(json.dumps({"path": "/stream"}), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while text := (await reader.readline()).decode():
            words = text.split()
            if words[0] == "emit":
                await self.emit(int(words[1]), int(words[2]), float(words[3]))
        await serving


if __name__ == "__main__":
    uvloop.run(Server(int(sys.argv[2])).main(int(sys.argv[1])))
