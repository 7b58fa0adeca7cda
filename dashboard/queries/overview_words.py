"""The sentence that opens the overview: what is wrong, how badly, and where it seems to come from. Rows only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from dashboard.nav import BOUND
from dashboard.queries.overview import Overview
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
    told = [*_machinery(page), *_undo(page), *_lateness(page), *_queues(page), *_failures(page), *_unusual(page)]
    return Opening(_mark(page), _joined(told)) if told else _calm(page)


def _mark(page: Overview) -> str:
    """The mark of the worst that is told."""
    c = page.counts
    if page.dispatcher_gone or page.dispatcher_missing or page.stuck or c.partial:
        return "down"
    if c.overdue or c.held:
        return "overdue"
    return "at_risk" if c.at_risk else "dead" if page.dead_total else "late"


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
        risky = "1 run" if c.at_risk == 1 else f"{_many(c.at_risk)} runs"
        its = "its deadline" if c.at_risk == 1 else "their deadlines"
        return [[Part(f"{risky} will probably miss {its}", "/overdue/"), Part(".")]]
    late = "1 run is overdue" if c.overdue == 1 else f"{_many(c.overdue)} runs are overdue"
    by = f", {'' if c.overdue == 1 else 'the worst '}by {_ago(page, c.worst)}" if c.worst else ""
    more = f", and {_many(c.at_risk)} more probably will be" if c.at_risk else ""
    return [[Part(late, "/overdue/"), Part(f"{by}{more}.")]]


def _undo(page: Overview) -> list[list[Part]]:
    c, told = page.counts, []
    if c.partial:
        undone = (
            "1 run was not undone completely"
            if c.partial == 1
            else f"{_many(c.partial)} runs were not undone completely"
        )
        told.append([Part(undone, "/runs/?compensation=partial"), Part(".")])
    if c.held:
        held = "1 failed run is held" if c.held == 1 else f"{_many(c.held)} failed runs are held"
        left = (c.held_until - page.now).total_seconds() if c.held_until else 0
        first = "it is undone" if c.held == 1 else "the first is undone"
        when = f"; {first} in {_span(left)} unless somebody retries it." if left > 0 else f"; {first} now."
        told.append([Part(held, "/runs/?state=compensating&compensation=pending"), Part(when)])
    return told


def _unusual(page: Overview) -> list[list[Part]]:
    """More failures than usual, where that is known."""
    if not page.failed.is_unusual or page.failed.usual is None:
        return []
    usual = round(page.failed.usual)
    runs = "1 run has failed" if page.failed.today == 1 else f"{page.failed.today:,} runs have failed"
    return [[Part(runs, "/runs/?state=failed&since=24h"), Part(f" in 24\u00a0h, against {usual:,} as a rule.")]]


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
    return [[*first, Part(": "), *_causes(page)]]


def _causes(page: Overview) -> list[Part]:
    """Several causes, the most frequent first: ``3 × OSError at transcode, 2 × Timeout at probe and 2 of others.``"""
    parts: list[Part] = []
    shown = page.dead[:3]
    left = page.dead_total - sum(group.count for group in shown)
    for index, group in enumerate(shown):
        link = "/dead-letters/?" + urlencode({"fingerprint": group.fingerprint})
        last = index == len(shown) - 1 and left <= 0
        parts += [Part(" and " if last else ", ")] if index else []
        parts.append(Part(f"{_many(group.count)}\u00a0×\u00a0{group.kind} at {group.place}", link))
    return [*parts, Part(f" and {_many(left)} of other causes." if left > 0 else ".")]


def _queues(page: Overview) -> list[list[Part]]:
    told, stuck = [], page.stuck
    if stuck:
        names = listed([queue.name for queue in stuck])
        waiting = sum(queue.depth for queue in stuck)
        one = len(stuck) == 1
        verb = f"No worker serves the queue{'' if one else 's'} "
        told.append(
            [Part(verb), Part(names, "/queues/"), Part(f", where {number(waiting, 'step waits', 'steps wait')}.")]
        )
    slow = next((queue for queue in page.queues if queue.mark == "late"), None)
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
    for sentence in told[:5]:
        parts += [Part(" "), *sentence] if parts else sentence
    return parts
