"""``manage.py up``: everything on one machine, until Ctrl-C. What ``make run`` runs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from orchestrator import services
from orchestrator.core.errors import SwitchyardError
from orchestrator.management import base
from orchestrator.management.autostart import migrate_private
from orchestrator.services.process import port_is_free
from orchestrator.services.supervisor import Child, Supervisor
from orchestrator.services.tether import die_with_parent, make_was_interrupted

MANAGE = str(Path(settings.BASE_DIR) / "manage.py")
#: Name that ``services.ensure`` gives a server -> name that ``services.stop`` takes.
STOPPABLE = {"PostgreSQL": "postgres", "Valkey": "valkey"}


class Command(base.Command):
    """Servers, tables, workflows, sign-ins, then web, dispatcher and worker, supervised.

    This process itself asks the database nothing: it is read into before the private server has an address.
    """

    json_option = False
    help = (
        "Run everything on this machine until Ctrl-C: private PostgreSQL and Valkey where DATABASE_URL and REDIS_URL "
        "are unset, tables, workflows, sign-ins, web, dispatcher, workers."
    )

    def arguments(self, parser: CommandParser) -> None:
        """``--processes``."""
        parser.add_argument("--processes", type=int, default=2, metavar="N", help="worker processes (default 2)")

    def run(self, *args: Any, **options: Any) -> None:
        """Checks first, so that a refusal leaves nothing behind."""
        if "MAKELEVEL" in os.environ:
            die_with_parent(signal.SIGTERM)  # make may be killed without a word to us
        # While things are made ready too, SIGTERM ends in an orderly way: by an exception.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
        self.address = os.environ.get("BIND", "127.0.0.1")
        shown = "127.0.0.1" if self.address in ("0.0.0.0", "::", "") else self.address  # noqa: S104
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{settings.PORT}"
        settings.LOCAL_DIR.mkdir(parents=True, exist_ok=True)
        with (settings.LOCAL_DIR / "up.lock").open("a+") as lock:
            self._refuse_a_second(lock)
            started = self._start_servers()
            try:
                self._supervise(self._make_ready(), options["processes"])
            finally:
                if started:
                    self.note(f"stopping {' and '.join(started)}")
                    services.stop(names=[STOPPABLE[name] for name in started])
                    (settings.LOCAL_DIR / services.OF_UP).unlink(missing_ok=True)

    def _refuse_a_second(self, lock: Any) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise base.error(f"Switchyard runs already: {lock.read().strip()}") from None
        if not port_is_free(settings.PORT, self.address):
            raise base.error(
                f"port {settings.PORT} is in use on {self.address}; "
                f"choose another, such as: PORT={settings.PORT + 1 if settings.PORT < 65535 else 8000} make run"
            )
        lock.truncate(0)
        lock.write(f"{self.url}, process {os.getpid()}\n")
        lock.flush()

    def _start_servers(self) -> tuple[str, ...]:
        """Starts the private servers that are needed; answers the ones to stop in the end.

        Those are the ones started here, and the ones that an earlier ``up`` started and could not stop, being killed.
        """
        self.urls = services.ensure()
        if self.urls.started:
            self.note(f"started the private {' and '.join(self.urls.started)}")
        left = settings.LOCAL_DIR / services.OF_UP
        ours = tuple(dict.fromkeys([*self.urls.started, *(left.read_text().split() if left.exists() else [])]))
        left.write_text("\n".join(ours))
        return ours

    def _make_ready(self) -> list[str]:
        """Tables, static files, workflows, sign-ins, example runs; answers the queues to work on."""
        static = subprocess.Popen([sys.executable, MANAGE, "collectstatic", "--no-input", "--verbosity", "0"])
        if "postgres" in services.private_names():
            migrate_private(self.urls)
        else:
            self._step("migrate", "--verbosity", "0")
        if static.wait():
            raise base.error("collecting the static files failed; the reason is above")
        answer = json.loads(self._step("bootstrap", "--url", self.url, "--json"))
        queues: list[str] = answer["queues"]
        return queues

    def _step(self, *command: str) -> str:
        """Runs a command of ours with its messages shown; its answer. Its refusal is ours."""
        done = subprocess.run([sys.executable, MANAGE, *command], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise base.error(f"{command[0]} failed; the reason is above")
        return done.stdout

    def _supervise(self, queues: list[str], processes: int) -> None:
        children = [
            Child("web", self._web()),
            Child("dispatcher", [sys.executable, MANAGE, "dispatcher"]),
            Child("worker", [sys.executable, MANAGE, "worker", *queues, "--processes", str(processes)]),
        ]
        self.supervisor = Supervisor(children, watch=self._watch)
        self.supervisor.run(on_start=self._announce)

    def _web(self) -> list[str]:
        # A file in memory for the workers' heartbeats: on a slow disk they would be taken for hung.
        memory = ["--worker-tmp-dir", "/dev/shm"] if Path("/dev/shm").is_dir() else []  # noqa: S108
        bind = f"[{self.address}]" if ":" in self.address else self.address
        return [
            *(sys.executable, "-m", "gunicorn", "orchestrator.wsgi", "--bind", f"{bind}:{settings.PORT}"),
            *("--worker-class", "gthread", "--workers", str(settings.WEB_PROCESSES), "--threads", "4"),
            *("--graceful-timeout", "5", "--log-level", "warning", *memory),
        ]

    def _watch(self) -> None:
        """Private servers are no children: they outlive us when they were there before. Start them if they fall.

        And a make that was told to stop waits for us.
        """
        if make_was_interrupted():
            return self.supervisor.stop()
        try:
            for name in services.ensure().started:
                self.supervisor.say("servers", f"{name} had stopped; started again")
        except SwitchyardError as problem:
            self.supervisor.say("servers", problem.message)

    def _announce(self) -> None:
        """Prints address and sign-in once the pages answer."""
        for _ in range(600):
            if self.supervisor.stopping:
                return
            if _answers(self.url):
                break
            time.sleep(0.1)
        path = settings.LOCAL_DIR / "credentials.json"
        password = json.loads(path.read_text())["users"]["admin"]["password"] or "(as set before)"
        self.stdout.write(
            f"\n  Switchyard is at   {self.url}/\n"
            f"  sign in as         admin\n"
            f"  password           {password}\n"
            f"  other roles, token {path}\n"
            f"  stop               Ctrl-C\n"
        )
        self.stdout.flush()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/healthz", timeout=10).close()  # noqa: S310
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
