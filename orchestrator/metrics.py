"""``/metrics`` in Prometheus' text format, read from the database, so that every process answers the same.

Names and labels are fixed by the contract. Labels come from bounded sets: workflows, steps, states, causes, queues,
topics. A part that cannot be read in time is left out, and ``workflow_metrics_part_up`` says which.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.core import metric_names as names
from orchestrator.engine import gauges, rollup
from orchestrator.engine.rollup import Count

log = logging.getLogger("switchyard.metrics")
T = TypeVar("T")
#: Seconds for all statements of one scrape together, and for one of them.
SCRAPE_SECONDS = 1.6
PART_SECONDS = 0.8
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (names.RUNS_FAILED, "Runs that ended failed.", ("workflow", "cause")),
    (names.RUNS_MISSED_DEADLINE, "Runs that were not finished at their deadline.", ("workflow",)),
    (names.STEP_ATTEMPTS, "Attempts that ended, by outcome: done or the cause.", ("workflow", "step", "outcome")),
    (names.DUPLICATE_COMPLETIONS, "Completions that came after another had been recorded.", ()),
)
HISTOGRAMS: tuple[tuple[str, str, tuple[str, ...], tuple[float, ...]], ...] = (
    (names.RUN_DURATION, "From submission to the end of a run.", ("workflow", "state"), names.RUN_BUCKETS),
    (names.STEPS_WAITING, "From ready to claimed by a worker.", ("queue",), names.WAIT_BUCKETS),
)


def render() -> bytes:
    """The whole page.

    Raises:
        DatabaseError: nothing at all could be read.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DatabaseCollector())
    return generate_latest(registry)


class DatabaseCollector(Collector):
    """Reads everything once for each scrape."""

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are not checked against other collectors, of which there are none."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        until = time.monotonic() + SCRAPE_SECONDS
        up: dict[str, bool] = {}
        found: list[Metric] = []
        counts = _part("counters", rollup.totals, until, up)
        if counts is not None:
            found += _counters(counts)
        for gauge in gauges.GAUGES:
            values = _part(gauge.name, gauge.read, until, up)
            if values is not None:
                found.append(_gauge(gauge, _known_queues(gauge, values)))
        if not any(up.values()):
            raise DatabaseError("the database cannot be read")
        part = GaugeMetricFamily("workflow_metrics_part_up", "1: read for this scrape; 0: left out.", labels=["part"])
        for name, good in up.items():
            part.add_metric([name], float(good))
        yield from [*found, part]


def _part(name: str, read: Callable[[], T], until: float, up: dict[str, bool]) -> T | None:
    """What ``read`` answers in its time, else None; ``up`` notes which."""
    left = min(PART_SECONDS, until - time.monotonic())
    up[name] = False
    if left <= 0.01:
        return None
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(int(left * 1000))])
            values = read()
            cursor.execute("SELECT set_config('statement_timeout', '0', true)")
    except DatabaseError as error:
        log.warning("metric %s left out: %s", name, error)
        return None
    up[name] = True
    return values


def _gauge(gauge: gauges.Gauge, values: dict[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def _known_queues(gauge: gauges.Gauge, values: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """With 0 for the configured queues that the statement found nothing of."""
    if gauge.labels != ("queue",):
        return values
    return {(queue,): 0.0 for queue in settings.ORCHESTRATOR.queues} | values


def _counters(counts: list[Count]) -> Iterator[Metric]:
    by_metric: dict[str, list[Count]] = defaultdict(list)
    for count in counts:
        by_metric[count.metric].append(count)
    for name, text, labels in COUNTERS:
        family = CounterMetricFamily(name, text, labels=labels)
        for count in by_metric[name] or _zeros(name, labels):
            family.add_metric([count.labels.get(label, "") for label in labels], count.value)
        yield family
    for name, text, labels, bounds in HISTOGRAMS:
        yield _histogram(name, text, labels, bounds, by_metric)


def _zeros(name: str, labels: tuple[str, ...]) -> list[Count]:
    """A counter that has not counted yet, where its labels are known beforehand: a first step up from 0 is seen."""
    if labels == ("workflow",):
        return [Count(name, {"workflow": workflow}, 0.0) for workflow in gauges.published()]
    return [] if labels else [Count(name, {}, 0.0)]


def _histogram(
    name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...], counts: dict[str, list[Count]]
) -> HistogramMetricFamily:
    """Buckets are kept one by one and made cumulative here."""
    buckets: dict[tuple[str, ...], dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for count in counts[f"{name}_bucket"]:
        key = tuple(count.labels.get(label, "") for label in labels)
        # A bound of an earlier release that is none now counts in the next one above it.
        kept = math.inf if count.labels["le"] == "+Inf" else float(count.labels["le"])
        buckets[key][next(bound for bound in bounds if bound >= kept)] += count.value
    sums = {tuple(c.labels.get(label, "") for label in labels): c.value for c in counts[f"{name}_sum"]}
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, found in sorted(buckets.items()):
        total, cumulative = 0.0, []
        for bound in bounds:
            total += found[bound]
            cumulative.append((names.bound_label(bound), total))
        family.add_metric(key, cumulative, sums.get(key, 0.0))
    return family
