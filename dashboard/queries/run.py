"""Everything the page of one run shows, read in a bounded number of queries whatever the number of shards."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from dashboard import words
from dashboard.graph.draw import MAX_NODES, Picture, pictures
from dashboard.graph.segments import Segment, segments
from dashboard.graph.timeline import Timeline, timeline
from dashboard.queries.run_find import Found
from dashboard.queries.run_panel import Preview, preview
from dashboard.queries.run_side import Armed, ErrorView, TrailEntry, armed, error_rows, errors, trail
from dashboard.queries.run_steps import (
    RowView,
    ShardPage,
    StepView,
    first_of_each,
    is_open,
    shard_page,
    shards_of,
    step_views,
)
from dashboard.queries.run_tries import Tries, read_tries
from dashboard.words import Look
from orchestrator.core.actor import Actor
from orchestrator.core.states import RunState, StepState, WaitingFor
from orchestrator.engine.estimate import Estimate, at_risk, estimate, usual_lengths
from orchestrator.engine.explain import Where, explain
from orchestrator.engine.explain_facts import Facts
from orchestrator.engine.explain_words import clock, span
from orchestrator.engine.operate_steps import may_answer
from orchestrator.models import Run, Step


@dataclass(frozen=True)
class Fact:
    """A figure beside the answer. ``moment`` is shown as an age when ``way`` is since or until, else ``text``."""

    title: str
    text: str = ""
    moment: datetime | None = None
    way: str = ""
    small: str = ""
    small_moment: datetime | None = None
    tone: str = ""


@dataclass
class RunPage:
    """The view model of the page. ``failed_attempts``: those that did not succeed, undos among them."""

    run: Run
    failed_attempts: int
    facts: Facts
    views: list[StepView]
    tries: Tries
    where: Where
    estimate: Estimate | None
    show: str
    panel: str
    shards: ShardPage | None
    children: list[Run] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """The moment that everything was read at."""
        return self.facts.now

    def may_approve(self, actor: Actor) -> bool:
        """Whether the run waits for an approval that the actor may give or refuse."""
        rows = [found.row for view in self.views if view.tally.waits["approval"] for found in view.rows]
        return any(row.waiting_for == WaitingFor.APPROVAL and may_answer(actor, row.waiting_name) for row in rows)

    @property
    def live(self) -> bool:
        """Whether the run can still change by itself."""
        return not self.facts.terminal

    @cached_property
    def badges(self) -> list[Look]:
        """The run's state, and what else there is to say at once."""
        run, look = self.run, words.look(self.run.state)
        retry = any(view.tally.waits["retry"] for view in self.views)
        if run.state == RunState.RUNNING and retry:
            look = Look("Running, retrying", "s-retry", "retry")
        elif run.state == RunState.RUNNING and run.stop:
            look = Look("Stopping", "s-stop", "idle")
        elif run.state == RunState.RUNNING and run.started_at is None:
            delayed = run.available_at is not None and run.available_at > self.now
            look = words.MARK["delayed"] if delayed else words.STEP[StepState.QUEUED]
        elif run.state == RunState.COMPENSATING and run.hold_until and not self.facts.undo.total:
            look = Look("Held before the undo", "s-wait", "comp")
        badges = [look]
        if not self.live and run.compensation:
            badges.append(words.look(run.compensation, "undo"))
        if run.cause and not self.live and run.cause not in ("error", "cancelled"):
            badges.append(Look(words.cause_words(run.cause).split(" ", 1)[-1].capitalize(), "s-late", "late"))
        if self.live and run.deadline_at is not None and run.deadline_at < self.now:
            badges.append(words.MARK["overdue"])
        elif at_risk(run, self.estimate, self.now):
            badges.append(words.MARK["at_risk"])
        return badges

    @cached_property
    def fact_list(self) -> list[Fact]:
        """Elapsed, deadline, end and slack."""
        return [self._elapsed(), self._deadline(), *(self._ahead() if self.live else self._behind())]

    def _elapsed(self) -> Fact:
        run = self.run
        usual = f"usually {span(self.estimate.usual)}" if self.estimate else ""
        if run.started_at is None:
            return Fact("Since it was submitted", moment=run.submitted_at, way="since", small="not started")
        if self.live:
            return Fact("Elapsed", moment=run.started_at, way="since", small=usual)
        took = ((run.finished_at or self.now) - run.started_at).total_seconds()
        return Fact("Took", span(took), small=f"from {clock(run.started_at, self.now)}")

    def _deadline(self) -> Fact:
        deadline = self.run.deadline_at
        if deadline is None:
            return Fact("Deadline", span(self.run.deadline_seconds), small="counts from the start")
        text = clock(deadline, self.now)
        if not self.live:
            left = (deadline - (self.run.finished_at or self.now)).total_seconds()
            small = f"{span(abs(left))} {'to spare' if left >= 0 else 'late'}"
            return Fact("Deadline", text, small=small, tone="" if left >= 0 else "s-late")
        if deadline < self.now:
            return Fact("Deadline", text, small="passed", small_moment=deadline, way="since", tone="s-late")
        return Fact("Deadline", text, small="in", small_moment=deadline, way="until")

    def _ahead(self) -> list[Fact]:
        found, deadline = self.estimate, self.run.deadline_at
        if found is None:
            undoing = self.run.state == RunState.COMPENSATING or self.run.stop
            why = "the run is stopping" if undoing else "too few finished runs to compare with"
            attempts = Fact("Attempts", f"{self.attempts:,}", small=f"{self.failed_attempts:,} failed")
            return [Fact("Expected end", "–", small=why), attempts]
        end = Fact("Expected end", clock(found.p50, self.now), small=f"nine in ten by {clock(found.p90, self.now)}")
        if deadline is None:
            return [end, Fact("Slack", "–")]
        slack = (deadline - found.p50).total_seconds()
        tone = "s-late" if at_risk(self.run, found, self.now) or slack < 0 else ""
        small = f"{found.late:.0%} of such runs end late" if found.late else "none of such runs ends late"
        return [end, Fact("Slack", span(slack) if slack >= 0 else f"−{span(-slack)}", small=small, tone=tone)]

    def _behind(self) -> list[Fact]:
        end = Fact("Ended", clock(self.run.finished_at, self.now) if self.run.finished_at else "–")
        return [end, Fact("Attempts", f"{self.attempts:,}", small=f"{self.failed_attempts:,} failed")]

    @cached_property
    def attempts(self) -> int:
        """Attempts of all steps so far."""
        return sum(view.tally.attempts for view in self.views)

    @cached_property
    def segments(self) -> list[Segment]:
        """The progress bar: a part for each step, a fan-out filled by its shards."""
        return segments(self.views)

    @cached_property
    def caption(self) -> list[tuple[Look, str]]:
        """How many steps stand how, in the order of the bar."""
        counts: dict[Look, int] = defaultdict(int)
        for view in self.views:
            counts[view.look] += 1
        pending = words.STEP[StepState.PENDING]
        ready = [(look, f"{n} {look.word.lower()}") for look, n in counts.items() if look != pending]
        return ready + ([(pending, f"{counts[pending]} to go")] if counts[pending] else [])

    @cached_property
    def progress_words(self) -> str:
        """The caption for screen readers."""
        return ", ".join(text for _, text in self.caption)

    @cached_property
    def pictures(self) -> list[Picture]:
        """The graph in both orientations; none when it is too large."""
        return pictures(self.views, self.now, self.panel)

    too_large = property(lambda self: len(self.views) > MAX_NODES, doc="Whether the graph is left out for its size.")

    @property
    def undos(self) -> list[Step]:
        """Compensation rows, in the order in which they run."""
        return self.facts.undos

    @property
    def undos_left_out(self) -> int:
        """Compensations that are not listed."""
        return max(self.facts.undo.total - len(self.undos), 0)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The drawing of when what ran."""
        by_row: dict[int, list[Step]] = defaultdict(list)
        for row in self.undos:
            if row.undoes_id:
                by_row[row.undoes_id].append(row)
        return timeline(self.run, self.views, by_row, self.now)

    @cached_property
    def armed(self) -> list[Armed]:
        """Compensations that would run if the run stopped now."""
        return armed(self.facts, self.views) if self.run.state == RunState.RUNNING and not self.run.stop else []

    @cached_property
    def errors(self) -> list[ErrorView]:
        """What went wrong, at most one of the steps and one of the undo."""
        return errors(self.facts, self.tries)

    @cached_property
    def trail(self) -> list[TrailEntry]:
        """The latest records and failed attempts, newest first."""
        return trail(self.run, self.tries.latest)

    @cached_property
    def table(self) -> list[tuple[StepView, list[RowView]]]:
        """Steps and shards of the table, the latest start first; those to come are left out unless asked for."""
        chosen = []
        for view in self.views:
            rows = view.rows if view.is_fan_out else []
            if self.show == "failed":
                rows = [r for r in rows if r.failures or r.look.tone == "fail"]
                keep = bool(rows) or any(r.failures or r.look.tone == "fail" for r in view.rows)
            elif self.show == "open":
                rows = [r for r in rows if is_open(r)]
                keep = is_open(view)
            else:
                keep = view.begun or self.show == "all"
            if keep:
                chosen.append((view, rows))
        return sorted(chosen, key=lambda pair: -(pair[0].tally.start or self.now).timestamp() if pair[0].begun else 1)

    @property
    def input(self) -> Preview:
        """The run's input, masked and cut."""
        return preview(self.run.input)

    @property
    def output(self) -> Preview | None:
        """The run's output, masked and cut; None without one."""
        has = self.run.output is not None or self.run.output_ref
        return preview(self.run.output, self.run.output_ref) if has else None

    @property
    def runbook(self) -> str:
        """The definition's runbook where it is a web address."""
        url = self.facts.plan.spec.runbook
        return url if url.startswith(("https://", "http://")) else ""

    @property
    def not_begun(self) -> int:
        """Steps that were not reached yet."""
        return sum(not view.begun for view in self.views)


def run_page(
    found: Found, *, show: str = "", panel: str = "", shards: str = "", state: str = "", after: int = -1
) -> RunPage:
    """Reads the page. ``show``: "", all, open, failed; ``panel``: the step opened; ``shards``: a fan-out to list."""
    run = found.run
    facts, shown = Facts(run), first_of_each(run)
    facts.see(shown)
    listed = shards_of(facts, shards, state, after) if shards else None
    tries = Tries(none=True)
    if found.failed_attempts:
        tries = read_tries(run, [*shown, *(listed or []), *error_rows(facts)])
    here = facts.steps[run.current_step].ready if run.current_step in facts.plan.by_id else None
    page = RunPage(
        run=run,
        failed_attempts=found.failed_attempts,
        facts=facts,
        views=step_views(facts, usual_lengths(run.workflow, run.version), shown, tries),
        tries=tries,
        where=explain(facts),
        estimate=estimate(run, facts.now, here),
        show=show,
        panel=panel,
        shards=None if listed is None else shard_page(facts, shards, state, listed, tries),
    )
    if found.has_children:
        children = Run.objects.filter(parent_run=run).select_related("parent_step").defer("input", "output")
        page.children = list(children.order_by("id")[:20])
    return page
