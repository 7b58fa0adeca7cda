"""The workflows of the made-up shop. They have no handlers: their runs are history, and what is live stands still."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from orchestrator.core.actor import Actor
from orchestrator.core.cron import next_tick
from orchestrator.core.errors import Conflict
from orchestrator.definitions.parse import Loaded, loads
from orchestrator.engine.audit import note
from orchestrator.engine.plans import Plan
from orchestrator.models import Definition, Schedule

INGEST = """
workflow: video-ingest
version: {version}
description: From an upload to a published video
owner: media-platform
runbook: https://runbooks.example/video-ingest
deadline: 2h
on_deadline: alert
steps:
  - {{id: probe, say: Checking your video, queue: media-light, timeout: 60s, retries: 2,
     compensate: {{handler: release_storage_quota, queue: media-light}}}}
  - {{id: transcode, say: Converting your video, queue: media-heavy, timeout: 30m, retries: 3,
     fan_out: [1080p, 720p, 480p], topic: {{name: gpu, limit: 40}}, compensate: delete_rendition}}
  - {{id: thumbnail, say: Making a preview picture, queue: media-light, retries: 2}}
  - {{id: index, say: Adding your video to the search, queue: media-light, retries: 2}}
  - {{id: notify, say: Letting you know}}
on_failure:
  compensate: [purge_cdn]
"""
ORDER = """
workflow: order-fulfilment
version: 7
description: From a paid basket to a parcel
owner: shop
runbook: https://runbooks.example/orders
steps:
  - {id: reserve, say: Setting your goods aside, queue: stock, retries: 3, compensate: release_stock}
  - {id: charge, say: Charging your card, queue: payments, retries: 2, lock: "account:{input.account}",
     compensate: {handler: refund_payment, queue: payments}}
  - {id: approve, say: Waiting for a check by our staff,
     approval: {group: managers, timeout: 2d, on_timeout: fail}, when: reserve.large}
  - {id: pick, say: Packing your parcel, queue: stock, retries: 2}
  - {id: ship, say: Handing your parcel to the carrier, retries: 4}
  - {id: invoice, say: Sending your invoice, on_error: continue, retries: 3}
on_failure:
  compensate: [tell_customer]
"""
REFUND = """
workflow: refund
version: 2
description: Money back to a customer
owner: payments
steps:
  - {id: check, queue: payments, retries: 2}
  - {id: pay_out, queue: payments, retries: 3}
  - {id: mail, retries: 3}
"""
REPORT = """
workflow: regional-report
version: 1
description: Figures of every region
owner: data
schedule: {cron: "0 3 * * *", subject: "report-{date}"}
steps:
  - {id: gather, queue: reports, retries: 1, fan_out: [north, east, south, west], join: settled}
  - {id: cool_off, wait: 15m}
  - {id: publish, queue: reports}
"""
CLOSURE = """
workflow: account-closure
version: 3
description: Closes an account and erases what is known of its owner
owner: trust
steps:
  - {id: export, queue: reports, retries: 2, compensate: delete_export}
  - {id: erase, queue: default, retries: 2, compensate: restore_account}
  - {id: confirm}
on_failure:
  hold: 30m
"""
BOOK = """
workflow: photo-book
version: 1
description: A printed album
owner: print
steps:
  - {id: layout, queue: media-light, retries: 1}
  - {id: print, workflow: print-job}
  - {id: deliver}
"""
PRINT = """
workflow: print-job
version: 1
description: One volume on one press
owner: print
steps:
  - {id: rip, queue: print, retries: 2}
  - {id: press, queue: print}
"""
MAILING = """
workflow: mailing
version: 1
description: A letter to thousands
owner: marketing
steps:
  - {id: prepare}
  - {id: send, queue: mail, fan_out: {from: prepare.recipients}, window: 200, retries: 3, join: {at_least: 95%}}
  - {id: summary}
"""
SOURCES = (INGEST.format(version=3), INGEST.format(version=4), ORDER, REFUND, REPORT, CLOSURE, BOOK, PRINT, MAILING)
Key = tuple[str, int]


def publish(actor: Actor, now: datetime) -> dict[Key, Plan]:
    """Stores what is not there yet, and the schedules; the compiled definitions by (workflow, version).

    Raises:
        Conflict: a version is published with other content; nothing was stored.
    """
    with transaction.atomic():
        return {(one.spec.workflow, one.spec.version): _store(one, actor, now) for one in map(loads, SOURCES)}


def _store(one: Loaded, actor: Actor, now: datetime) -> Plan:
    spec = one.spec
    known = Definition.objects.filter(workflow=spec.workflow, version=spec.version).first()
    if known is not None and known.content_hash != one.content_hash:
        raise Conflict(f"{spec.workflow} version {spec.version} is published already with other content")
    if known is None:
        known = Definition.objects.create(
            workflow=spec.workflow,
            version=spec.version,
            content_hash=one.content_hash,
            spec=spec.model_dump(mode="json"),
            source=one.source,
            origin="demo_data",
        )
        note(f"{spec.workflow} v{spec.version}", "publish", actor, after={"version": spec.version})
    if spec.schedule and not Schedule.objects.filter(workflow=spec.workflow).exists():
        row = Schedule(workflow=spec.workflow, **spec.schedule.model_dump())
        row.next_at = next_tick(row.cron, row.timezone, now)
        row.save()
    return Plan(known.pk, spec)
