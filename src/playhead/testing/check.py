"""Checks of a port: small async functions, each guarding one rule, run against a fresh store each."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from playhead.interfaces import Archive, ProjectionStore, RunStore, Signal, TextChannel
from playhead.testing.clock import FakeClock


@dataclass(frozen=True, slots=True)
class RecordBench:
    """A fresh record, with the archive that it keeps, and the clock that it goes by."""

    store: RunStore
    archive: Archive
    clock: FakeClock


@dataclass(frozen=True, slots=True)
class LiveBench:
    """A fresh projection store with its text channel, the signal that it notifies, and the clock that it goes by."""

    store: ProjectionStore
    text: TextChannel
    signal: Signal
    clock: FakeClock


B = TypeVar("B")

# Called with the options of a check: none for a record, an archive or a signal; for a projection store `retention`,
# `timeline_ttl` and `snapshot_ttl`, and `idle_ttl` where the check is about that.
Make = Callable[..., AbstractAsyncContextManager[B]]


@dataclass(frozen=True, slots=True)
class Check(Generic[B]):
    """One check. `rule` is what it guards, `options` what the store under test is to be made with."""

    name: str
    rule: str
    body: Callable[[B], Awaitable[None]]
    options: Mapping[str, Any]

    async def run(self, make: Make[B]) -> None:
        async with make(**self.options) as bench:
            await self.body(bench)


class Rules(Generic[B]):
    """Collects the checks of a module: `@rule(...)` above each."""

    def __init__(self, **defaults: Any) -> None:
        self.checks: list[Check[B]] = []
        self._defaults = defaults

    def __call__(self, **options: Any) -> Callable[[Callable[[B], Awaitable[None]]], Callable[[B], Awaitable[None]]]:
        def keep(body: Callable[[B], Awaitable[None]]) -> Callable[[B], Awaitable[None]]:
            rule = " ".join((body.__doc__ or "").split())
            self.checks.append(Check(body.__name__, rule, body, {**self._defaults, **options}))
            return body

        return keep


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the checks of one port."""

    port: str
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # check → its rule and the traceback

    @property
    def ok(self) -> bool:
        return not self.failed

    def demand(self) -> None:
        """Raise AssertionError that tells every failure."""
        if self.failed:
            raise AssertionError(f"{self.port}: {len(self.failed)} checks failed\n" + "\n".join(self.failed.values()))


async def run_checks(port: str, checks: tuple[Check[B], ...], make: Make[B]) -> Report:
    """Run every check, also after one failed."""
    report = Report(port)
    for check in checks:
        try:
            await check.run(make)
        except Exception:
            report.failed[check.name] = f"{check.name}: {check.rule}\n{traceback.format_exc()}"
        else:
            report.passed.append(check.name)
    return report


X = TypeVar("X", bound=Exception)


@dataclass(slots=True)
class Refused(Generic[X]):
    """What `refused` caught."""

    errors: list[X] = field(default_factory=list)

    @property
    def error(self) -> X:
        return self.errors[0]


@contextmanager
def refused(kind: type[X]) -> Iterator[Refused[X]]:
    """The block must raise exactly this."""
    caught: Refused[X] = Refused()
    try:
        yield caught
    except kind as error:
        caught.errors.append(error)
    names = [type(error).__name__ for error in caught.errors]
    assert names == [kind.__name__], f"wanted {kind.__name__}, got {names}"


async def eventually(condition: Callable[[], object], within: float = 10.0) -> None:
    """Wait, in real time, for something that another thread or process brings about."""
    end = monotonic() + within
    while not condition():
        assert monotonic() < end, "it did not come about"
        await asyncio.sleep(0.002)
