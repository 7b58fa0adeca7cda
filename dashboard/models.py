"""What belongs to the pages alone: views of lists that a team keeps."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class SavedView(models.Model):
    """A set of filters of the runs page under a name that everybody sees."""

    name = models.TextField(unique=True)
    query = models.TextField(help_text="The filters as an address holds them.")
    owner = models.TextField(help_text="Who saved it.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "workflow_saved_views"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
