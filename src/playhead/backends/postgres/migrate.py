"""Bring a database to the schema of this code: numbered `.sql` files, each applied whole or not at all, in order.

A step is `pre` or `post`. The code before it goes on working beside a `pre` step, so that is applied before new code
starts. It does not beside a `post` step, which is applied when the old code is gone; new code does not wait for it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from playhead.backends.postgres.database import Database, Row, Session
from playhead.errors import StoreTooNew, StoreTooOld, StoreUnavailable

_NAME = re.compile(r"(\d{3})_(pre|post)_[a-z_]+")
_LOCK = 0x706C617968656164  # any number that no other program takes; this is the name
_LOCK_WAIT_MS = 10_000  # for a table: who waits for one holds up everybody behind him

_TAKE_TURN = f"SELECT pg_advisory_xact_lock({_LOCK})"
_SETTINGS = "SELECT current_setting('server_encoding'), to_regclass('playhead.schema_step') IS NOT NULL"
_APPLIED = "SELECT version, name, checksum FROM playhead.schema_step ORDER BY version"
_NOTE = "INSERT INTO playhead.schema_step (version, name, checksum) VALUES ({version}, '{name}', '{checksum}')"


@dataclass(frozen=True, slots=True)
class Step:
    version: int
    name: str
    text: str

    @property
    def pre(self) -> bool:
        return _is_pre(self.name)

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def statements(self) -> str:
        """The text, lacking the last semicolon."""
        return self.text.strip().rstrip(";")

    @property
    def note(self) -> str:
        return _NOTE.format(version=self.version, name=self.name, checksum=self.checksum)


def load(folder: Path) -> tuple[Step, ...]:
    """Read the steps of a folder, `001_pre_first.sql` and on, in order. Raises ValueError for a wrong name."""
    steps = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), 1):
        name = _NAME.fullmatch(path.stem)
        if name is None or int(name[1]) != number:
            raise ValueError(f"The schema steps in {folder} are not numbered 1, 2, 3 and on: {path.name}")
        steps.append(Step(number, path.stem, path.read_text("utf-8")))
    return tuple(steps)


async def missing(database: Database, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps that are not applied yet.

    Raises StoreTooNew for a database that holds steps which this code cannot work with.
    """
    ((settings,),) = await database.read((_SETTINGS, {}))
    return _lacking(await _applied(database, settings), steps, database.where)


async def check(database: Database, steps: tuple[Step, ...]) -> None:
    """Raise StoreTooOld or StoreTooNew unless this code can work with the database as it is."""
    wanted = [step.name for step in await missing(database, steps) if step.pre]
    if wanted:
        raise StoreTooOld(
            f"{database.where} lacks {', '.join(wanted)}. Please run: playhead db upgrade",
            database=database.where,
            missing=wanted,
        )


async def apply(database: Database, steps: tuple[Step, ...], *, pre_only: bool = False) -> list[Step]:
    """Apply what is missing, one transaction a step; what was applied. `pre_only`: up to the first `post` step.

    Several at once apply each step once.
    """
    done: list[Step] = []
    while (step := await database.act(lambda session: _next(session, steps, database.where, pre_only))) is not None:
        done.append(step)
    return done


def script(steps: tuple[Step, ...]) -> str:
    """What `apply` would run for these steps, for whoever wants to read it first or run it in another way."""
    parts = [f"BEGIN;\n{_bounded()};\n{_TAKE_TURN};\n{step.statements};\n{step.note};\nCOMMIT;\n" for step in steps]
    return "\n".join(parts)


def _bounded() -> str:
    return f"SET LOCAL lock_timeout = {_LOCK_WAIT_MS}"


async def _next(session: Session, steps: tuple[Step, ...], where: str, pre_only: bool) -> Step | None:
    await session.rows(_TAKE_TURN)
    (settings,) = await session.rows(_SETTINGS)
    _check_encoding(settings, where)
    applied = await session.rows(_APPLIED) if settings[1] else []
    lacking = _lacking(applied, steps, where)
    if not lacking or (pre_only and not lacking[0].pre):
        return None
    for statement in (_bounded(), lacking[0].statements, lacking[0].note):
        session.write(statement)
    return lacking[0]


async def _applied(database: Database, settings: Row) -> list[Row]:
    _check_encoding(settings, database.where)
    if not settings[1]:
        return []
    (applied,) = await database.read((_APPLIED, {}))
    return applied


def _check_encoding(settings: Row, where: str) -> None:
    if settings[0] != "UTF8":
        raise StoreUnavailable(f"{where} is encoded in {settings[0]}; playhead needs UTF8.", database=where)


def _lacking(applied: list[Row], steps: tuple[Step, ...], where: str) -> tuple[Step, ...]:
    known = {step.version: step for step in steps}
    for version, name, checksum in applied:
        step = known.get(version)
        if step is None and not _is_pre(name):
            message = f"{where} has {name}, which this version of playhead does not know. It is left as it is."
            raise StoreTooNew(message, database=where, step=name)
        if step is not None and step.checksum != checksum:
            message = f"{where} was made by another version of playhead: its {name} is not the one here."
            raise StoreTooNew(message, database=where, step=name)
    done = {row[0] for row in applied}
    return tuple(step for step in steps if step.version not in done)


def _is_pre(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and found[2] == "pre"
