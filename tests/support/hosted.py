"""An app under a server that is not ours: by itself, attached to a host, and plainly mounted in one."""

import asyncio

from starlette.applications import Starlette
from starlette.routing import Mount

import playhead


@playhead.agent(resumable=True)
async def endless(run: playhead.RunContext) -> None:
    await run.event("begun")
    await asyncio.Event().wait()


alone = playhead.App([endless])
attached = Starlette()
playhead.attach(attached, playhead.App([endless]), path="/")
mounted = Starlette(routes=[Mount("/", playhead.App([endless]))])
