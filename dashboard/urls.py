"""URL table of the pages: one line a page."""

from django.contrib.auth import views as auth
from django.urls import URLPattern, URLResolver, path, re_path

from dashboard.views import (
    artifacts,
    bulk,
    dead_letters,
    overview,
    pauses,
    run,
    run_actions,
    runs,
    schedules,
    steps,
    system,
    upload,
    where,
    workflows,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", auth.LoginView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("", overview.overview, name="overview"),
    path("charts/", overview.charts, name="charts"),
    path("where/", where.where, name="where"),
    path("runs/", runs.runs, name="runs"),
    path("runs/<uuid:run_id>/", run.run, name="run"),
    path("runs/<uuid:run_id>/cancel/", run_actions.cancel, name="run-cancel"),
    path("runs/<uuid:run_id>/retry/", run_actions.retry, name="run-retry"),
    path("overdue/", runs.overdue, name="overdue"),
    path("dead-letters/", dead_letters.dead_letters, name="dead-letters"),
    re_path("^dead-letters/(?P<verb>replay|discard)/$", dead_letters.act, name="dead-letter-act"),
    path("approvals/", steps.approvals, name="approvals"),
    re_path("^steps/(?P<step_id>[0-9]{1,18})/(?P<verb>approve|reject|skip)/$", steps.act, name="step-act"),
    path("bulk/", bulk.latest, name="bulk-latest"),
    path("bulk/preview/", bulk.preview, name="bulk-preview"),
    path("bulk/start/", bulk.start, name="bulk-start"),
    path("bulk/<uuid:operation_id>/", bulk.operation, name="bulk"),
    path("bulk/<uuid:operation_id>/stop/", bulk.move, {"verb": "stop"}, name="bulk-stop"),
    path("bulk/<uuid:operation_id>/resume/", bulk.move, {"verb": "resume"}, name="bulk-resume"),
    path("workflows/", workflows.workflows, name="workflows"),
    path("workflows/<str:name>/", workflows.workflow, name="workflow"),
    path("schedules/", schedules.schedules, name="schedules"),
    re_path("^schedules/(?P<verb>pause|resume|run)/$", schedules.act, name="schedule-act"),
    path("queues/", system.queues, name="queues"),
    re_path("^(?P<verb>pause|resume)/(?P<kind>workflow|queue)/$", pauses.act, name="pause-act"),
    path("health/", system.health, name="health"),
    path("audit/", system.audit, name="audit"),
    path("upload/", upload.upload, name="upload"),
    path("runs/<uuid:run_id>/artifacts/<path:path>", artifacts.artifact, name="run-artifact"),
]
