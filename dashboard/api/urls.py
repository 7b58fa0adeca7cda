"""URL table of the API."""

from django.urls import path

from dashboard.api.app import api

urlpatterns = [path("api/v1/", api.urls)]
