"""URL table of the pages: one line a page."""

from django.contrib.auth import views as auth
from django.urls import URLPattern, URLResolver, path

from dashboard.views import artifacts, overview, upload, where

urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", auth.LoginView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("", overview.overview, name="overview"),
    path("where/", where.where, name="where"),
    path("upload/", upload.upload, name="upload"),
    path("runs/<uuid:run_id>/artifacts/<path:path>", artifacts.artifact, name="run-artifact"),
]
