"""The Python reader of the wire: calls of a server as methods, and runs followed to their end.

from playhead.client import Client

client = Client("http://127.0.0.1:8700")
run = await client.start("licence_review")
async with client.follow(run["id"]) as views:
    async for view in views:
        print(view.status, len(view.events))
print(view.run["result"])
"""

from playhead.client.client import Client
from playhead.client.following import Following, FollowingMany
from playhead.client.frames import Frame
from playhead.client.text import TextPart
from playhead.client.view import RunView, Timeline

__all__ = ["Client", "Following", "FollowingMany", "Frame", "RunView", "TextPart", "Timeline"]
