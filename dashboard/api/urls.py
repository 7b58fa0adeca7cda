"""URL table of what programs ask: the API, health, metrics; and of django-rq's pages inside the admin."""

from django.urls import include, path

from dashboard.api.app import api
from dashboard.views import service

urlpatterns = [
    path("healthz", service.healthz, name="healthz"),
    path("readyz", service.readyz, name="readyz"),
    path("metrics", service.prometheus, name="metrics"),
    path("api/v1/", api.urls),
    path("admin/rq/", include("dashboard.admin.rq_pages")),
]
