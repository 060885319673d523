"""Counts and times for Prometheus, in an own registry. No label holds an id, a tenant or a name from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from playhead.gateway.port import Engine

_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """What one gateway has done. Several in one process do not disturb each other."""

    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "playhead_http_requests",
            "Requests answered, streams when they end.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "playhead_http_request_seconds",
            "Time to answer a request; streams are not in it.",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._streams = Gauge("playhead_streams_open", "Streams that are open now.", registry=self.registry)
        self.registry.register(_Numbers(engine))

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        self.count(route, method, status)
        self._seconds.labels(route).observe(seconds)

    def count(self, route: str, method: str, status: int) -> None:
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _Numbers(Collector):
    """What is counted behind the gateway: resyncs by reason, closed viewers by cause, lost hints, halts of the loop,
    and damage in the stores."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        hub = self._engine.hub
        yield GaugeMetricFamily("playhead_feeds_live", "Feeds that have viewers here, or had just now.", hub.feeds)
        yield CounterMetricFamily("playhead_loop_blocked", "Times that the event loop stood still.", hub.pulse.blocked)
        yield CounterMetricFamily(
            "playhead_events_unreadable",
            "Times that a stored event could not be read and was told as a placeholder.",
            self._engine.unreadable,
        )
        counted = CounterMetricFamily("playhead_hub", "What happened to viewers, by kind.", labels=["kind"])
        for kind, number in sorted(hub.statistics.items()):
            counted.add_metric([kind], number)
        yield counted
