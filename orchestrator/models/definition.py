"""A published version of a workflow."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Definition(models.Model):
    """One immutable (workflow, version), known by the hash of its content. Runs pin theirs."""

    workflow = models.TextField()
    version = models.PositiveIntegerField()
    content_hash = models.TextField(help_text="SHA-256 of the normalised definition.")
    spec = models.JSONField(help_text="The normalised definition, as validated.")
    source = models.TextField(help_text="The YAML as published.")
    origin = models.TextField(help_text="File that it was published from.")
    package = models.TextField(default="", help_text="Workflow package whose import registers the handlers.")
    published_at = models.DateTimeField(db_default=Now())
    retired_at = models.DateTimeField(null=True, blank=True, help_text="No new runs start on a retired version.")

    class Meta:
        db_table = "workflow_definitions"
        verbose_name = "definition version"
        ordering = ["workflow", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["workflow", "version"], name="workflow_definitions_version_key"),
            models.CheckConstraint(condition=models.Q(version__gte=1), name="workflow_definitions_version_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} v{self.version}"
