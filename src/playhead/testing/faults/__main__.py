"""python -m playhead.testing.faults PORT --control PATH [--listen PORT] [--seed N]: a proxy of its own process."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from playhead.testing.faults.proxy import Proxy


async def serve(port: int, listen: int, seed: int, path: Path) -> None:
    """Say where the proxy is, and stay until the process is ended."""
    async with Proxy(port, listen=listen, seed=seed) as proxy:
        await proxy.control(path)
        os.write(1, f"{proxy.port}\n".encode())
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m playhead.testing.faults", description=__doc__)
    parser.add_argument("port", type=int, help="where the server is, on 127.0.0.1")
    parser.add_argument("--listen", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", type=Path, required=True, metavar="PATH", help="of the unix socket")
    given = parser.parse_args()
    try:
        asyncio.run(serve(given.port, given.listen, given.seed, given.control))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
