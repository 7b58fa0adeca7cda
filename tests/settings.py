"""The settings under test. Starts the private servers where DATABASE_URL or REDIS_URL is unset: tests need no set-up.

Tests make databases of their own on that server, and there use Redis database 15, never the one of ``make run``. A
REDIS_URL that you name must be one that may be emptied. With ``pytest -n 2`` each process has a Redis database of its
own: the ones below.
"""

import os
from urllib.parse import urlsplit

from orchestrator import services

_urls = services.ensure()
#: Private servers that this session started, as ``services.stop`` names them.
STARTED = [{"PostgreSQL": "postgres", "Valkey": "valkey"}[name] for name in _urls.started]
os.environ["DATABASE_URL"] = _urls.database
_own = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
if _own or not os.environ.get("REDIS_URL"):
    os.environ["REDIS_URL"] = urlsplit(_urls.redis)._replace(path=f"/{15 - int(_own or 0)}").geturl()
os.environ.setdefault("SECRET_KEY", "tests only")
os.environ["STATIC_HASHED"] = "no"  # whatever an earlier collectstatic left
os.environ["DEBUG"] = "no"

from orchestrator.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
# By process, so that two sessions on one server do not take each other's.
DATABASES["default"]["TEST"] = {"NAME": f"test_sy_{os.getpid()}"}  # noqa: F405
