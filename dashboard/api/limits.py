"""Calls about workflows, queues and topics."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboard.api.answers import Error, Items, TopicItem, answer
from dashboard.api.auth import ADMIN, OPERATOR, VIEWER, actor_of
from dashboard.api.params import number, only
from dashboard.api.schemas import TopicLimit, Why
from orchestrator.engine import catalogue, limits, operate, topics

router = Router()
_VERSION: dict[Any, Any] = {200: Items, (404, 409, 422): Error}


@router.get("/workflows", auth=VIEWER, response={200: Items}, tags=["workflows"])
def list_workflows(request: HttpRequest) -> HttpResponse:
    """Every published workflow."""
    only(request.GET)
    return answer({"items": catalogue.workflows(), "next_cursor": None})


@router.get("/workflows/{name}/versions", auth=VIEWER, response={200: Items, 404: Error}, tags=["workflows"])
def list_versions(request: HttpRequest, name: str) -> HttpResponse:
    """The versions of a workflow, newest first."""
    return answer({"items": catalogue.versions(name), "next_cursor": None})


@router.post("/workflows/{name}/versions/{version}/retire", auth=ADMIN, response=_VERSION, tags=["workflows"])
def retire(request: HttpRequest, name: str, version: str, body: Why) -> HttpResponse:
    """Start no new runs on a version; refused while live runs are on it. Answers the versions as they are then."""
    operate.retire_version(name, number(version, "version"), actor_of(request), body.reason)
    return answer({"items": catalogue.versions(name), "next_cursor": None})


@router.post("/workflows/{name}/versions/{version}/restore", auth=ADMIN, response=_VERSION, tags=["workflows"])
def restore(request: HttpRequest, name: str, version: str, body: Why) -> HttpResponse:
    """Let new runs start on a retired version again. Answers the versions as they are then."""
    operate.restore_version(name, number(version, "version"), actor_of(request), body.reason)
    return answer({"items": catalogue.versions(name), "next_cursor": None})


@router.get("/queues", auth=VIEWER, response={200: Items}, tags=["queues"])
def list_queues(request: HttpRequest) -> HttpResponse:
    """Every queue: what waits, since when, what runs, who serves it."""
    only(request.GET)
    return answer({"items": limits.queues(), "next_cursor": None})


@router.get("/topics", auth=VIEWER, response={200: Items}, tags=["topics"])
def list_topics(request: HttpRequest) -> HttpResponse:
    """Every topic: its limit, who says so, what runs and what waits."""
    only(request.GET)
    return answer({"items": topics.topics(), "next_cursor": None})


@router.get("/topics/{name}", auth=VIEWER, response={200: TopicItem, 404: Error}, tags=["topics"])
def read_topic(request: HttpRequest, name: str) -> HttpResponse:
    """A topic's limit and what it holds."""
    return answer(topics.topic(name))


@router.patch("/topics/{name}", auth=OPERATOR, response={200: TopicItem, (404, 422): Error}, tags=["topics"])
def set_topic(request: HttpRequest, name: str, body: TopicLimit) -> HttpResponse:
    """Set a topic's cluster-wide limit, from now on, or go back to the settings' or the definition's."""
    limits.set_topic_limit(name, body.limit, actor_of(request), body.reason)
    return answer(topics.topic(name))
