"""What the gateway asks of the engine behind it, and how it is set up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from playhead.gateway.stream import StreamOptions

if TYPE_CHECKING:
    from playhead.core.interrupt import Interrupt
    from playhead.core.run import Run, Status
    from playhead.runtime.bootstrap import Screens
    from playhead.runtime.hub import Hub
    from playhead.runtime.setup import AgentCard


class Engine(Protocol):
    """The runs behind the routes. Each call is narrowed by tenant; what is absent or another's raises NotFound."""

    @property
    def agents(self) -> Mapping[str, AgentCard]: ...
    @property
    def ready(self) -> bool: ...
    @property
    def draining(self) -> bool: ...
    @property
    def hub(self) -> Hub: ...
    @property
    def screens(self) -> Screens: ...
    @property
    def unreadable(self) -> int: ...

    async def create(
        self,
        agent: str,
        given: object,
        *,
        tenant: str,
        subject: str,
        labels: Mapping[str, str],
        key: str | None,
        dedupe: str | None,
    ) -> tuple[Run, bool]: ...

    async def run(self, tenant: str, run_id: str) -> Run: ...

    async def runs(
        self,
        tenant: str,
        *,
        status: Collection[Status],
        agent: str | None,
        labels: Mapping[str, str],
        key: str | None,
        before_seq: int | None,
        limit: int,
        most_bytes: int | None,
    ) -> list[Run]: ...

    async def cancel(self, tenant: str, run_id: str, *, by: str, reason: str | None) -> Run: ...

    async def decide(
        self, tenant: str, run_id: str, interrupt_id: str, decision: dict[str, Any], *, by: str
    ) -> Interrupt: ...

    async def interrupts(self, tenant: str, run_id: str | None = None) -> list[Interrupt]: ...

    async def delete(self, tenant: str, run_id: str) -> None: ...

    async def bootstrap(self, run: Run, limit: int) -> bytes: ...

    async def earlier(self, run: Run, before: str | None, limit: int) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the gateway behaves. Seconds and bytes."""

    max_body: int = 1 << 20
    body_timeout: float = 30.0  # for a whole body to arrive
    metrics: bool = True  # whether /metrics is served
    page: bool = True  # whether / is served
    origins: frozenset[str] = frozenset()  # of other sites whose pages may call; `https://app.example`
    stream: StreamOptions = field(default_factory=StreamOptions)
