"""Django's PostgreSQL backend with our own floor: version 15."""
