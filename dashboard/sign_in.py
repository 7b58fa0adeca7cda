"""Users as Django knows them, read together with their groups: every page needs both."""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Q, Value


class Backend(ModelBackend):
    """Django's own, but ``user.group_names`` is there without another query."""

    def get_user(self, user_id: int) -> User | None:
        """The user of a session, if there still is one who may sign in."""
        names = ArrayAgg("groups__name", filter=Q(groups__isnull=False), default=Value([]))
        user: User | None = User.objects.annotate(group_names=names).filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None
