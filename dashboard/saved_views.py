"""Views of the runs page that the team keeps: a name, and the filters behind it."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.http import QueryDict

from dashboard.models import SavedView
from dashboard.queries import run_filters
from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict, Invalid, NotFound
from orchestrator.core.text import clean
from orchestrator.engine import audit

#: As many are kept and shown.
MOST = 100
MAX_NAME = 60


def all_views() -> list[SavedView]:
    """By name."""
    return list(SavedView.objects.order_by("name")[:MOST])


def filters_of(params: QueryDict) -> str:
    """The filters of an address in one order, without its page: equal views have equal text."""
    kept = QueryDict(mutable=True)
    for name in run_filters.NAMES:
        kept.setlist(name, [value for value in params.getlist(name) if value])
    return kept.urlencode()


def save(name: str, query: str, actor: Actor) -> SavedView:
    """Keeps the filters of a query string under a name that no other view has.

    Raises:
        NotAllowed: role below support.
        Invalid: no name, one over 60 characters, filters that cannot be read, or none.
        Conflict: the name is taken, or too many are kept.
    """
    require(actor, "support")
    name = " ".join(clean(name).split())
    if not name or len(name) > MAX_NAME:
        raise Invalid(f"give the view a name of at most {MAX_NAME} characters", field="name")
    if len(query) > 4000:
        raise Invalid("these filters are too long to be kept", field="query")
    params = QueryDict(query)
    run_filters.parse(dict(params.lists()))
    text = filters_of(params)
    if not text:
        raise Invalid("set a filter first: a view without any would be the list itself", field="query")
    if SavedView.objects.count() >= MOST:
        raise Conflict(f"{MOST} views are kept; delete one that nobody uses")
    try:
        with transaction.atomic():
            made = SavedView.objects.create(name=name, query=text, owner=actor.name)
            audit.note(f"view {name}", "save_view", actor, after={"query": text})
    except IntegrityError:
        raise Conflict(f"there is a view called {name}; give another name or delete that one") from None
    return made


def delete(view_id: int, actor: Actor) -> str:
    """Deletes a view; answers its name.

    Raises:
        NotAllowed: role below support.
        NotFound: there is none, or no longer.
    """
    require(actor, "support")
    with transaction.atomic():
        found = SavedView.objects.select_for_update().filter(pk=view_id).first()
        if found is None:
            raise NotFound("this view has been deleted already")
        audit.note(f"view {found.name}", "delete_view", actor, before={"query": found.query})
        found.delete()
    return found.name
