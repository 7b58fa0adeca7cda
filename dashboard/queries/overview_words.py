"""The sentence that opens the overview: what is wrong, how badly, and where it seems to come from. Rows only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from dashboard.nav import BOUND
from dashboard.queries.overview import Overview
from dashboard.queries.queues import Queue
from orchestrator.engine.explain_words import listed, number, span


@dataclass(frozen=True)
class Part:
    """A piece of the sentence, perhaps with a link."""

    text: str
    url: str = ""


@dataclass(frozen=True)
class Opening:
    """The sentence in parts, and the mark of ``words.MARK`` before it."""

    mark: str
    parts: list[Part]

    @property
    def text(self) -> str:
        """Without links, for titles and tests."""
        return "".join(part.text for part in self.parts)


def opening(page: Overview) -> Opening:
    """The state of the system in a sentence or three, worst first."""
    told = [*_machinery(page), *_lateness(page), *_failures(page), *_queues(page.queues)]
    if told:
        mark = (
            "down" if page.dispatcher_gone or _stuck(page.queues) else "overdue" if page.counts.overdue else "at_risk"
        )
        if not page.counts.overdue and not page.counts.at_risk and page.dead_total and not _stuck(page.queues):
            mark = "down" if page.dispatcher_gone else "dead"
        return Opening(mark, _joined(told))
    return _calm(page)


def _many(count: int) -> str:
    return f"over {BOUND:,}" if count > BOUND else f"{count:,}"


def _ago(page: Overview, moment: datetime) -> str:
    return _span((page.now - moment).total_seconds())


def _span(seconds: float) -> str:
    """A length of time that no line break parts."""
    return span(seconds).replace(" ", "\u00a0")


def _machinery(page: Overview) -> list[list[Part]]:
    if page.dispatcher_missing:
        return [[Part("No dispatcher", "/health/"), Part(" has ever been seen: start one, or what is due stays due.")]]
    if not page.dispatcher_gone:
        return []
    text = f" {_span(page.silent)}: nothing that is due will start until it is back."
    return [[Part("The dispatcher has not been seen for", "/health/"), Part(text)]]


def _lateness(page: Overview) -> list[list[Part]]:
    c = page.counts
    if not c.overdue and not c.at_risk:
        return []
    if not c.overdue:
        risky = (
            "1 run waits past its deadline" if c.at_risk == 1 else f"{_many(c.at_risk)} runs wait past their deadline"
        )
        return [[Part(risky, "/overdue/"), Part(" and will be late.")]]
    late = "1 run is overdue" if c.overdue == 1 else f"{_many(c.overdue)} runs are overdue"
    by = f", {'' if c.overdue == 1 else 'the worst '}by {_ago(page, c.worst)}" if c.worst else ""
    more = f", and {_many(c.at_risk)} more probably will be" if c.at_risk else ""
    return [[Part(late, "/overdue/"), Part(f"{by}{more}.")]]


def _failures(page: Overview) -> list[list[Part]]:
    if not page.dead:
        return []
    top, total = page.dead[0], page.dead_total
    what = "1 failure waits" if total == 1 else f"{_many(total)} failures wait"
    link = "/dead-letters/?" + urlencode({"fingerprint": top.fingerprint})
    first = [Part(what, "/dead-letters/"), Part(" in the dead letters")]
    if total == 1:
        return [[*first, Part(": "), Part(f"{top.kind} at {top.place}", link), Part(f" of {top.workflow}.")]]
    if top.count * 2 > total:
        share = "all" if top.count == total else _many(top.count)
        return [[*first, Part(f", {share} from one cause: "), Part(f"{top.kind} at {top.place}", link), Part(".")]]
    return [[*first, Part(".")]]


def _stuck(queues: list[Queue]) -> list[Queue]:
    return [queue for queue in queues if queue.mark == "down"]


def _queues(queues: list[Queue]) -> list[list[Part]]:
    told = []
    stuck = _stuck(queues)
    if stuck:
        names = listed([queue.name for queue in stuck])
        waiting = sum(queue.depth for queue in stuck)
        one = len(stuck) == 1
        verb = f"No worker serves the queue{'' if one else 's'} "
        told.append([Part(verb), Part(names, "/queues/"), Part(f", where {number(waiting, 'step')} wait.")])
    slow = next((queue for queue in queues if queue.mark == "late"), None)
    if slow and slow.oldest:
        text = f" has {number(slow.depth, 'step')} waiting for its {number(slow.workers, 'worker')}."
        told.append([Part("Queue "), Part(slow.name, "/queues/"), Part(text)])
    return told


def _calm(page: Overview) -> Opening:
    c = page.counts
    if c.running or c.compensating:
        live = "1 run is" if c.running + c.compensating == 1 else f"{_many(c.running + c.compensating)} runs are"
        calm = Part("; none is late and nothing waits in the dead letters.")
        under_way = Part(f"{live} under way", "/runs/?state=running,compensating")
        return Opening("ok", [Part("All is well. "), under_way, calm])
    if c.last_end:
        ended = f" ended {_ago(page, c.last_end)} ago."
        return Opening("ok", [Part("All is quiet. No run is under way; "), Part("the last one", "/runs/"), Part(ended)])
    how = Part(" and submit one from the command line or the API.")
    return Opening("idle", [Part("No run has been submitted yet. "), Part("See the workflows", "/workflows/"), how])


def _joined(told: list[list[Part]]) -> list[Part]:
    parts: list[Part] = []
    for sentence in told[:3]:
        parts += [Part(" "), *sentence] if parts else sentence
    return parts
