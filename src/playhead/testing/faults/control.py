"""Orders to a proxy from another process: one JSON object a line at a unix socket, and one for the answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playhead.testing.faults.mode import Cut

if TYPE_CHECKING:
    from playhead.testing.faults.proxy import Proxy


class Control:
    """`{"do": "up" or "down", …}` sets a mode by its names, `cut` as an object of its own; patterns are text.

    `{"do": "refuse" | "resume" | "reset" | "close" | "log"}` has no more to it; `half_close` has `way`, `vanish` has
    `side`, `lose_answers` has what the method has. The answer is `{"ok": true}`, with `log` for that, or `{"error"}`.
    """

    def __init__(self, proxy: Proxy, server: asyncio.Server) -> None:
        self._proxy, self._server = proxy, server

    @classmethod
    async def open(cls, proxy: Proxy, path: Path) -> Control:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while line := await reader.readline():
                    writer.write(json.dumps(await answer(proxy, line)).encode() + b"\n")
                    await writer.drain()
            except OSError:
                pass  # whoever asked does not want to know
            finally:
                writer.close()

        return cls(proxy, await asyncio.start_unix_server(serve, path))

    async def close(self) -> None:
        self._server.close()


async def answer(proxy: Proxy, line: bytes) -> dict[str, Any]:
    try:
        order = json.loads(line)
        told = await _obey(proxy, order.pop("do"), order)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"ok": True, **told}


async def _obey(proxy: Proxy, what: str, given: dict[str, Any]) -> dict[str, Any]:
    match what:
        case "up" | "down":
            if "cut" in given:
                cut = given["cut"]
                given["cut"] = Cut(**{**cut, "at": cut["at"].encode("latin-1")} if "at" in cut else cut)
            (proxy.up if what == "up" else proxy.down).set(**given)
        case "lose_answers":
            patterns = {name: given.pop(name).encode("latin-1") for name in ("command", "answer") if name in given}
            proxy.lose_answers(**patterns, **given)
        case "half_close":
            proxy.half_close(given["way"])
        case "vanish":
            proxy.vanish(given["side"])
        case "refuse":
            await proxy.refuse()
        case "resume":
            await proxy.resume()
        case "reset":
            proxy.reset()
        case "close":
            proxy.close_lines()
        case "log":
            return {"log": [[one.at, one.what, one.line] for one in proxy.log]}
        case _:
            raise ValueError(f"there is no order {what!r}")
    return {}
