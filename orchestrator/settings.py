"""Settings, all from the environment (12-factor) and all optional. A value that cannot be read stops the start."""

from __future__ import annotations

import sys
from pathlib import Path

from environs import Env

from dashboard.csp import CONTENT_SECURITY_POLICY as CONTENT_SECURITY_POLICY
from orchestrator.config import ConfigError, database_settings, load_engine_settings, private_urls

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL_DIR = BASE_DIR / ".local"

try:
    DEBUG = env.bool("DEBUG", False)
    _urls = private_urls(LOCAL_DIR)
    DATABASES = {"default": database_settings(env.str("DATABASE_URL", "") or _urls.database)}
    REDIS_URL = env.str("REDIS_URL", "") or _urls.redis
    DATABASE_IS_PRIVATE = not env.str("DATABASE_URL", "")
    REDIS_IS_PRIVATE = not env.str("REDIS_URL", "")
    SECRET_KEY = env.str("SECRET_KEY", "") or _urls.secret_key
    ORCHESTRATOR = load_engine_settings(env)
except ConfigError as error:
    sys.exit(f"switchyard: {error}")
except Exception as error:  # environs names the variable in its message
    sys.exit(f"switchyard: {error}")

ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", ["*"])
INSTALLED_APPS = [
    "django.contrib.admin",
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
RQ_QUEUES = {
    name: {"URL": REDIS_URL, "SERIALIZER": "rq.serializers.JSONSerializer"}
    for name in ORCHESTRATOR.queues
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = BASE_DIR / "staticfiles"
EMAIL_BACKEND = env.str("EMAIL_BACKEND", "django.core.mail.backends.filebased.EmailBackend")
EMAIL_FILE_PATH = LOCAL_DIR / "mail"
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
