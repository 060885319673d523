"""The pages beside the gateway, on one origin: `uvicorn examples.serve:app`, then /plain-html/, /react/ and /vue/."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import playhead
from examples.survey import survey

HERE = Path(__file__).parent
BUILT = Path(os.environ.get("EXAMPLES_BUILT", HERE / "dist"))
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"


class Pages(StaticFiles):
    """Files under a policy that lets a page run its own scripts and call its own server, and nothing else."""

    def file_response(self, full_path: Any, *args: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *args, **options)
        response.headers["content-security-policy"] = POLICY + inline(Path(full_path))
        return response


def inline(path: Path) -> str:
    """A source for the script that stands in a page itself, so that this one alone may run."""
    found = re.search(r"<script>(.*?)</script>", path.read_text(), re.DOTALL) if path.suffix == ".html" else None
    if found is None:
        return ""
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    return f"; script-src-elem 'sha256-{digest}'"


app = Starlette()
playhead.attach(app, playhead.App([survey]), path="/playhead")
app.mount("/plain-html", Pages(directory=HERE / "plain-html", html=True))
if BUILT.is_dir():
    app.mount("/", Pages(directory=BUILT, html=True))
