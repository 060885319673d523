"""A FastAPI application with its own login and its own page: `uvicorn examples.fastapi.app:app`."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.requests import HTTPConnection

import playhead
from examples.survey import survey
from playhead.errors import Unauthenticated
from playhead.gateway import Principal

BUILT = Path(os.environ.get("EXAMPLES_BUILT", Path(__file__).parents[1] / "dist"))
SECRET = os.environ.get("EXAMPLES_SECRET", secrets.token_hex()).encode()


def signed(name: str) -> str:
    return f"{name}.{hmac.digest(SECRET, name.encode(), hashlib.sha256).hex()}"


def who_is_asking(request: HTTPConnection) -> Principal:
    cookie = request.cookies.get("session", "")
    name = cookie.partition(".")[0]
    if not hmac.compare_digest(cookie.encode(), signed(name).encode()):
        raise Unauthenticated
    return Principal(subject=name, tenant="team")


def may_they(principal: Principal, action: str, run: object) -> bool:
    return principal.subject != "guest" or action.endswith((".list", ".read", ".stream"))


class Login(BaseModel):
    name: str = Field(pattern="^[a-z]{1,20}$")


app = FastAPI()
playhead.attach(app, playhead.App([survey]), path="/playhead", authenticate=who_is_asking, authorize=may_they)
app.mount("/assets", StaticFiles(directory=BUILT / "assets"))


@app.get("/")
async def page() -> FileResponse:
    policy = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:"
    return FileResponse(BUILT / "fastapi" / "index.html", headers={"content-security-policy": policy})


@app.post("/login", status_code=204)
async def login(given: Login, response: Response) -> None:
    """A name is enough here. Yours asks for more, and says `secure=True`."""
    response.set_cookie("session", signed(given.name), httponly=True, samesite="strict")
