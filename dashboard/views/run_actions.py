"""Cancel and retry of a run: a page that says what will happen and asks for a reason, and the POST that does it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.access import actor_of, require_role
from dashboard.queries.run_find import find_run
from dashboard.render import FRAGMENT, PAGE, is_fragment
from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound, SwitchyardError
from orchestrator.core.states import RunState
from orchestrator.engine import operate, stale
from orchestrator.engine.explain_words import number, sentences, span, upper_first
from orchestrator.engine.reading import plan
from orchestrator.engine.unwind import is_held
from orchestrator.models import Run

#: Rows of a preview that are listed one by one.
LISTED = 20
#: HTTP status of what the engine refuses.
STATUS: dict[type[SwitchyardError], int] = {Conflict: 409, Invalid: 422, NotAllowed: 403, NotFound: 404}


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("operator")
def cancel(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Cancel a run, or with ``force`` end what still runs of it."""
    found = run_or_404(run_id)
    force = (request.POST if request.method == "POST" else request.GET).get("force", "") in ("1", "on", "true")

    def act(actor: Actor, reason: str) -> None:
        operate.cancel_run(run_id, actor, reason, force=force)

    done = "Forced: what still ran is being ended." if force else "Cancelled. What was done is being undone."
    return serve(request, found, act, done, lambda: _cancel_context(found, force))


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("operator")
def retry(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Let a failed or cancelled run go on; ``from_step`` runs that step and all behind it again too."""
    found = run_or_404(run_id)
    given = (request.POST if request.method == "POST" else request.GET).get("from_step", "")
    from_step = given.replace("\x00", "\ufffd")[:500] or None

    def act(actor: Actor, reason: str) -> None:
        operate.retry_run(run_id, actor, reason, from_step=from_step)

    return serve(request, found, act, "Retried: the run goes on.", lambda: _retry_context(found, from_step))


def run_or_404(run_id: uuid.UUID) -> Run:
    """The run with what its head names."""
    found = find_run(run_id)
    if found is None:
        raise Http404(f"There is no run {run_id}. It may have been deleted after its retention.")
    return found


def serve(
    request: HttpRequest,
    run: Run,
    act: Callable[[Actor, str], None],
    done: str,
    context: Callable[[], dict[str, Any]],
) -> HttpResponse:
    """Ask, or act and go back to the run; what is refused is told on the page that asked.

    The form carries what it showed (``seen``): on a run that has moved on since, it has no effect.
    """
    reason, problem, status = request.POST.get("reason", ""), None, 200
    if request.method == "POST":
        try:
            stale.check_run(run.id, request.POST.get("seen", ""))
            act(actor_of(request), reason.replace("\x00", "\ufffd").encode("utf-8", "replace").decode())
        except SwitchyardError as error:
            problem, status = error, STATUS.get(type(error), 422)
        else:
            messages.success(request, done)
            home = reverse("run", args=[run.id])
            if is_fragment(request):
                return HttpResponse(status=204, headers={"HX-Redirect": home})
            return HttpResponseRedirect(home)
    try:
        shown = context()
    except SwitchyardError as error:
        problem, status = problem or error, status if status != 200 else STATUS.get(type(error), 422)
        shown = {"title": f"{run.workflow} {run.subject_id}", "refused": True}
    told = sentences(upper_first(problem.message)) if problem else ""
    layout = FRAGMENT if is_fragment(request) else PAGE
    shown |= {"run": run, "problem": problem, "told": told, "reason": reason, "layout": layout,
              "seen": stale.sign_of_run(run)}  # fmt: skip
    return render(request, "run/confirm.html", shown, status=status)


def _cancel_context(run: Run, force: bool) -> dict[str, Any]:
    seen = operate.preview_cancel(run.id, force)
    held = is_held(run)
    if run.stop and not force and not held:
        raise Conflict("this run is stopping already; force ends what still runs")
    if run.state == RunState.COMPENSATING and not held:
        return _force_the_undo(seen)
    undo = [(item.handler, f"undoes {item.step}{f', {item.shard}' if item.shard else ''}") for item in seen.undo]
    steps = len({item.step for item in seen.undo if item.step in plan(run.definition_id).by_id})
    verb = f"Cancel run and undo {number(steps, 'step')}" if steps else "Cancel run"
    if undo and not steps:
        verb = "Cancel run and clean up"
    doing = "Nothing new starts."
    if seen.running:
        doing += f" {number(len(seen.running), 'attempt is', 'attempts are')} running: "
        doing += "killed at once." if force else "told to stop, and killed after the grace."
    words = {"title": "Cancel this run?", "verb": verb, "keep": "Keep running"}
    if force:
        words |= {"title": "Force this run to end?", "verb": f"Force: {verb[0].lower()}{verb[1:]}"}
    elif held:
        doing = "It does not wait for an operator any longer. What was done is undone at once."
        words = {
            "title": "Undo this run now?",
            "verb": f"Undo {number(steps, 'step')} now" if steps else "Undo now",
            "keep": "Keep holding",
        }
    return words | {
        "text": doing,
        "danger": True,
        "lists": [
            listed("Will be undone, in this order", undo),
            listed("Killed at once" if force else "Is running now", seen.running),
            listed("Started, and has no undo: stays as it is", seen.not_undoable),
            listed("Not reached yet, and will be skipped", seen.skipped),
            listed("Child runs, which are cancelled too", _subjects(seen.children)),
        ],
        "hidden": [("force", "1")] if force else [],
    }


def _force_the_undo(seen: operate.CancelPreview) -> dict[str, Any]:
    running = number(len(seen.running), "undo")
    return {
        "title": "Force the end of what is undone now?",
        "text": "What runs of the undo is killed and recorded as failed. What it undoes stays as it is, until somebody "
        "replays its dead letter or settles it with a note; the run ends with an incomplete undo.",
        "verb": f"Force the end of {running}" if seen.running else "Force",
        "keep": "Let it undo",
        "danger": True,
        "lists": [
            listed("Killed, and stays not undone", seen.running),
            listed("Comes after it all the same", seen.remaining),
        ],
        "hidden": [("force", "1")],
    }


def listed(heading: str, items: Sequence[str | tuple[str, str]]) -> tuple[str, list[tuple[str, str]], int]:
    """A part of a preview: its heading, the first of its (name, detail), and how many more there are."""
    pairs = [(item, "") if isinstance(item, str) else item for item in items]
    return heading, pairs[:LISTED], max(len(pairs) - LISTED, 0)


def _subjects(ids: list[uuid.UUID]) -> list[str | tuple[str, str]]:
    shown = Run.objects.filter(pk__in=ids[:LISTED]).values_list("workflow", "subject_id")
    names: list[str | tuple[str, str]] = [f"{workflow} {subject}"[:200] for workflow, subject in shown]
    return names + [str(one) for one in ids[LISTED:]]


def _retry_context(run: Run, from_step: str | None) -> dict[str, Any]:
    seen = operate.preview_retry(run.id, from_step)
    again = [(_name(item), f"{_WHY.get(item.why, item.why)}, attempt {item.attempt}") for item in seen.steps]
    calls = [
        (effect, f"by {', '.join(by[:LISTED])}{f' and {len(by) - LISTED} more' if len(by) > LISTED else ''}")
        for effect in seen.side_effects
        for by in [[_name(item) for item in seen.steps if effect in item.side_effects]]
    ]
    new_deadline = f"It gets a new deadline, {span(run.deadline_seconds)} from now."
    return {
        "title": "Retry this run?",
        "text": f"The same run goes on with fresh attempts. {new_deadline}",
        "verb": f"Retry {number(len(again), 'step or shard', 'steps and shards')}" if again else "Retry",
        "keep": "Leave it as it is",
        "danger": False,
        "lists": [
            ("Will run again", again[:LISTED], max(len(again) - LISTED, 0)),
            ("Calls to the outside that will be made again", calls[:LISTED], max(len(calls) - LISTED, 0)),
            ("Keeps its result", [(name, "") for name in seen.kept[:LISTED]], max(len(seen.kept) - LISTED, 0)),
        ],
        "hidden": [],
        "steps": [node.id for node in plan(run.definition_id).nodes],
        "from_step": from_step or "",
    }


def _name(item: operate.RetryItem) -> str:
    return f"{item.step} {item.shard}".strip()


_WHY = {"blocked": "was not reached", "undone": "was undone", "chosen": "chosen"}
