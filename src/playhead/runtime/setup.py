"""What an engine is made of: its ports, its agents, its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from playhead.core.run import Policy
from playhead.interfaces import Archive, ProjectionStore, RunStore, Signal, TextChannel
from playhead.runtime.hub import HubOptions
from playhead.runtime.worker import Callee


class AgentCard(Protocol):
    """What is told of an agent."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class AgentLike(AgentCard, Callee, Protocol):
    """An agent as the engine needs it; `playhead.agent` makes them."""

    def validate(self, given: object) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Ports:
    record: RunStore
    archive: Archive
    live: ProjectionStore
    texts: TextChannel
    signal: Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """See `playhead.settings.Settings` for what each means."""

    worker: bool = True
    concurrency: int = 16
    lease: float = 10.0
    beat: float = 3.0
    lost_after: float = 60.0
    cancel_grace: float = 5.0
    drain_window: float = 5.0
    drain_grace: float = 10.0
    outbox_ttl: float = 86_400.0
    viewer_grace: float = 30.0
    archive: str = "async"
    sweep: float = 15.0
    reconcile: float = 1.0
    pending_publishes: int = 1_000
    pending_bytes: int = 1 << 20
    state_flush: float = 0.05
    text_flush: float = 0.02
    text_bytes: int = 2_048
    max_result: int = 8 << 20
    hub: HubOptions = field(default_factory=HubOptions)
