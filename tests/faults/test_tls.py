"""C70: PostgreSQL and Redis reached through TLS by what their URLs say, and no connection shared over a fork."""

from __future__ import annotations

import shutil
from urllib.parse import urlsplit

import pytest
from django.conf import settings as conf

from orchestrator.models import Attempt
from tests.faults.test_more_cases import cut
from tests.harness.tls import TlsProxy, make_certificate

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture
def secured(world, tmp_path):
    """(proxy of PostgreSQL, proxy of Redis, environment that leads through them and trusts the certificate)."""
    certificate = make_certificate(tmp_path)
    base = conf.DATABASES["default"]
    if "/" in base["HOST"] or not urlsplit(conf.REDIS_URL).hostname:
        pytest.skip("servers behind sockets")
    database = TlsProxy((base["HOST"] or "127.0.0.1", int(base["PORT"] or 5432)), certificate, postgres=True)
    redis_at = urlsplit(conf.REDIS_URL)
    broker = TlsProxy((redis_at.hostname, redis_at.port or 6379), certificate)
    given = urlsplit(world.live.database.url)
    secret = f"{redis_at.username or ''}:{redis_at.password}@" if redis_at.password else ""
    signed_in = given.netloc.rpartition("@")[0]
    environment = {
        "DATABASE_URL": f"postgresql://{signed_in}@127.0.0.1:{database.port}{given.path}"
        f"?sslmode=verify-full&sslrootcert={certificate}",
        "REDIS_URL": f"rediss://{secret}127.0.0.1:{broker.port}{redis_at.path}?ssl_ca_certs={certificate}",
    }
    yield database, broker, environment
    database.close()
    broker.close()


@pytest.mark.slow
def test_work_goes_through_tls_and_survives_cut_connections(world, secured):
    database, broker, environment = secured
    dispatcher = world.live.start_dispatcher(**environment)
    worker = world.live.start_worker(processes=2, **environment)
    runs = [world.submit("chain", {"*": "sleep:0.01"}, subject=f"s{i}") for i in range(20)]
    for share in (20, 100):
        world.until(lambda share=share: len(world.ledger.entries()) > share)
        cut()
    world.finish(*runs)
    before = database.handshakes
    assert before >= 4 and broker.handshakes >= 3
    cut()
    (run,) = world.finish(world.submit("chain", subject="after"))
    assert run.state == "done" and database.handshakes > before
    assert not Attempt.objects.exists()
    assert {r.state for r in world.finish(*runs)} == {"done"}
    for process in (dispatcher, worker):
        said = process.output().lower()
        assert not any(word in said for word in ("decryption failed", "bad record mac", "wrong version", "bad length"))


def test_a_certificate_that_is_not_trusted_is_refused_in_one_line(world, secured, tmp_path):
    _, _, environment = secured
    other = tmp_path / "other"
    other.mkdir()
    untrusted = make_certificate(other)
    url = environment["DATABASE_URL"].replace(str(tmp_path / "cert.pem"), str(untrusted))
    done = world.live.manage("runs", **{**environment, "DATABASE_URL": url})
    assert done.returncode == 1 and "certificate verify failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert world.live.manage("runs", **environment).returncode == 0
