"""URL table: the dashboard at the root, Django's admin beside it."""

from django.contrib import admin
from django.urls import include, path

admin.autodiscover()

urlpatterns = [
    path("", include("dashboard.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("dashboard.urls")),
]
