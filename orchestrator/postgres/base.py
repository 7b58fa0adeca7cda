"""The backend itself; ``ENGINE`` in the settings names this package."""

from typing import Any

from django.db.backends.postgresql import base, features


class DatabaseFeatures(features.DatabaseFeatures):
    """PostgreSQL 15 is the oldest that the statements of the engine are written for."""

    minimum_database_version = (15,)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django refuses an older server at the first connection, with both versions in the message."""

    features_class = DatabaseFeatures

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection whose plans suit many small answers at once.

        Pages and actions read little by keys: compiling a statement takes longer than running it, helpers for one page
        are taken from everybody else, and an index that is used all day is in memory.
        """
        made = super().get_new_connection(conn_params)
        with made.cursor() as cursor:
            cursor.execute("SET jit = off; SET max_parallel_workers_per_gather = 0; SET random_page_cost = 1.1")
        if not made.autocommit:
            made.commit()
        return made
