"""Django's admin over every model: to look at, not to edit. What may be done goes through ``engine.operate``."""

from dashboard.admin import bulk, history, limits, plumbing, runs, views

__all__ = ["bulk", "history", "limits", "plumbing", "runs", "views"]
