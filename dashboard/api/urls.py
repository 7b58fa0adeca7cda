"""URL table of what programs ask: the API, health, metrics; and of django-rq's pages inside the admin."""

from django.urls import include, path

from dashboard.api.app import api

urlpatterns = [
    path("api/v1/", api.urls),
    path("admin/rq/", include("dashboard.admin.rq_pages")),
]
