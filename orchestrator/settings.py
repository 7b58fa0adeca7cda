"""Settings, all from the environment (12-factor) and all optional. A value that cannot be read stops the start."""

from __future__ import annotations

import sys
from pathlib import Path

from environs import Env

from dashboard.csp import CONTENT_SECURITY_POLICY as CONTENT_SECURITY_POLICY
from orchestrator.config import ConfigError, database_settings, private_urls, read_environment, read_list
from orchestrator.services import LOCAL
from orchestrator.services.state import secret_key

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL_DIR = LOCAL

try:
    _environment, ORCHESTRATOR = read_environment(env)
    _private = private_urls(LOCAL_DIR)
    DATABASES = {"default": database_settings(_environment.database or _private.database)}
except ConfigError as error:
    sys.exit(f"error: {error}")

DEBUG = _environment.debug
PORT = _environment.port
WEB_PROCESSES = _environment.web_processes
DATABASE_IS_PRIVATE = not _environment.database
REDIS_IS_PRIVATE = not _environment.redis
REDIS_URL = _environment.redis or _private.redis
SECRET_KEY = env.str("SECRET_KEY", "") or secret_key(LOCAL_DIR)
ALERT_WEBHOOK_URL = _environment.alert_webhook
ALERT_EMAIL = env.str("ALERT_EMAIL", "")
METRICS_TOKEN = env.str("METRICS_TOKEN", "")
ALLOWED_HOSTS = read_list(env, "ALLOWED_HOSTS", ["*"])
CSRF_TRUSTED_ORIGINS = read_list(env, "CSRF_TRUSTED_ORIGINS", [])
if _environment.behind_proxy:  # one that sets these headers itself, and ends TLS
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    USE_X_FORWARDED_HOST = True
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True

INSTALLED_APPS = [
    # Its models register where the URL table is read: a worker or dispatcher need not import the pages.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "django_rq",
    "django_htmx",
    "orchestrator",
    "dashboard",
]
MIDDLEWARE = [
    "dashboard.api.middleware.JsonErrors",
    "dashboard.shared_regions.SharedRegions",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "dashboard.zone.ReadersZone",
    "dashboard.keeping.OncePerRequest",
    "dashboard.patience.Patience",
]
ROOT_URLCONF = "orchestrator.urls"
WSGI_APPLICATION = "orchestrator.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_MEMORY = "django.core.cache.backends.locmem.LocMemCache"
CACHES = {
    "default": {"BACKEND": _MEMORY, "LOCATION": "default"},
    # Sessions whose open pages were let in a moment ago: dashboard.shared_regions.
    "readers": {"BACKEND": _MEMORY, "LOCATION": "readers", "OPTIONS": {"MAX_ENTRIES": 10_000}},
}
RQ_QUEUES = {name: {"URL": REDIS_URL, "SERIALIZER": "rq.serializers.JSONSerializer"} for name in ORCHESTRATOR.queues}
# Its pages are mounted at /admin/rq/ for admins; its own registration would show them to all staff.
RQ_SHOW_ADMIN_LINK = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = BASE_DIR / "staticfiles"
# Hashed names need `collectstatic`; without it files are served from where they lie.
STATIC_IS_HASHED = _environment.static_hashed
if STATIC_IS_HASHED is None:
    STATIC_IS_HASHED = not DEBUG and (STATIC_ROOT / "staticfiles.json").exists()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_IS_HASHED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not STATIC_IS_HASHED
WHITENOISE_MANIFEST_STRICT = False
EMAIL_BACKEND = env.str("EMAIL_BACKEND", "django.core.mail.backends.filebased.EmailBackend")
EMAIL_FILE_PATH = LOCAL_DIR / "mail"
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
AUTHENTICATION_BACKENDS = ["dashboard.sign_in.Backend"]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "django.request": {"level": "ERROR"},  # a page that is not there is the visitor's business
        **{name: {"level": _environment.log_level} for name in ("orchestrator", "dashboard", "switchyard")},
    },
}
