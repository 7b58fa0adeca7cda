"""Sending alerts: a POST to ``ALERT_WEBHOOK_URL``, a mail to ``ALERT_EMAIL``.

The dispatcher calls :func:`send_due`. An alert is taken under a row lock, so it is sent by one dispatcher; a receiver
that answers with an error is asked again with growing waits for a day. A crash between sending and noting it sends it
twice, with the same ``key``.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from orchestrator.core.mask import mask_text
from orchestrator.models import Alert

log = logging.getLogger("switchyard.alerts")
_TIMEOUT = 5.0
_ATTEMPTS = 20


def send_due(limit: int = 20) -> int:
    """Sends alerts that are due, each in a transaction of its own; returns how many went out."""
    return sum(_send_one() for _ in range(limit))


def _send_one() -> int:
    with transaction.atomic():
        due = Alert.objects.filter(next_at__lte=Now()).select_related("run").order_by("next_at")
        alert = due.select_for_update(skip_locked=True, of=("self",)).first()
        if alert is None:
            return 0
        problem = _deliver(payload(alert))
        attempts = alert.attempts + 1
        if problem is None:
            Alert.objects.filter(pk=alert.pk).update(sent_at=Now(), next_at=None, attempts=attempts, last_error="")
            return 1
        log.warning("alert %s could not be sent: %s", alert.key, problem)
        again = _later(attempts) if attempts < _ATTEMPTS else None
        Alert.objects.filter(pk=alert.pk).update(next_at=again, attempts=attempts, last_error=problem[:1000])
        return 0


def _later(attempts: int) -> CombinedExpression:
    return Now() + timedelta(seconds=min(5 * 2**attempts, 3600))


def payload(alert: Alert) -> dict[str, Any]:
    """What is sent: the run, why it is told, a ``text`` to show as it is; ``key`` is the same for the same event."""
    run = alert.run
    error = run.error or {}
    where = f" at {error['step']}" if error.get("step") else ""
    told = f": {error['message']}" if error.get("message") else ""
    verb = "missed its deadline" if alert.kind == "deadline" else f"failed ({run.cause}{where}){told}"
    return {
        "key": alert.key,
        "kind": alert.kind,
        "run_id": str(run.pk),
        "workflow": run.workflow,
        "version": run.version,
        "subject_id": run.subject_id,
        "state": run.state,
        "cause": run.cause,
        "compensation": run.compensation,
        "error": {key: mask_text(str(value)) for key, value in error.items()} or None,
        "at": alert.created_at.isoformat(),
        "text": mask_text(f"{run.workflow} {run.subject_id} {verb}"),
    }


def _deliver(message: dict[str, Any]) -> str | None:
    """What went wrong, or None."""
    try:
        if settings.ALERT_WEBHOOK_URL:
            _post(settings.ALERT_WEBHOOK_URL, message)
        if settings.ALERT_EMAIL:
            body = json.dumps(message, indent=2, ensure_ascii=False)
            subject = " ".join(f"[switchyard] {message['text']}".split())[:200]
            send_mail(subject, body, None, [settings.ALERT_EMAIL])
    except Exception as problem:  # a receiver may fail in any way
        return f"{type(problem).__name__}: {problem}"
    return None


def _post(url: str, message: dict[str, Any]) -> None:
    request = urllib.request.Request(  # noqa: S310 - settings allow http and https only
        url,
        data=json.dumps(message).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": message["key"]},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310
        pass
