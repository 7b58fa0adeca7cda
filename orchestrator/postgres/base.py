"""The backend itself; ``ENGINE`` in the settings names this package."""

from django.db.backends.postgresql import base, features


class DatabaseFeatures(features.DatabaseFeatures):
    """PostgreSQL 15 is the oldest that the statements of the engine are written for."""

    minimum_database_version = (15,)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django refuses an older server at the first connection, with both versions in the message."""

    features_class = DatabaseFeatures
