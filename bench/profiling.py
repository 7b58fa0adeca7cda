"""``python -m bench.profiling W1``: where Switchyard's own time goes under one workload.

Runs the measurement of ``bench_switchyard.py`` with cProfile in the dispatcher and in every worker process, and with
pg_stat_statements in PostgreSQL, and prints the dearest functions and statements. The profiler slows Python down by
about a half, so read shares here and rates in ``python -m bench``.
"""

from __future__ import annotations

import argparse
import json
import pstats
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg

from bench import measure
from bench.__main__ import say
from bench.plan import CONTESTANTS, WORKLOADS, arguments
from bench.servers import Servers

RUNNER = Path(__file__).resolve().parent / "profiled.py"
_STATEMENTS = """
SELECT calls, total_exec_time, total_plan_time, rows, shared_blks_hit, wal_bytes::float8 AS wal_bytes, query
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = 'bench_switchyard' AND query NOT ILIKE '%%pg_stat%%'
ORDER BY total_exec_time + total_plan_time DESC LIMIT %s
"""
_TABLES = """
SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, seq_scan, seq_tup_read, idx_scan
FROM pg_stat_user_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 ORDER BY n_tup_ins + n_tup_upd DESC LIMIT 8
"""


def main() -> None:
    """Prints to stdout; the measurement itself goes to stderr."""
    about = (__doc__ or "").partition("\n")[0]
    p = argparse.ArgumentParser(prog="python -m bench.profiling", description=about)
    p.add_argument("workloads", nargs="+", choices=list(WORKLOADS), metavar="WORKLOAD", help=", ".join(WORKLOADS))
    p.add_argument("--many", action="store_true", help="submit_many instead of one call a run")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies the number of runs")
    p.add_argument("--top", type=int, default=25, help="lines of each table")
    p.add_argument("--python", action="store_true", help="cProfile as well, not only the statements")
    args = p.parse_args()
    with Servers() as servers:
        _prepare(servers)
        for name in args.workloads:
            _profile(name, args, servers)


def _prepare(servers: Servers) -> None:
    """Loads pg_stat_statements, and into the template that every new database copies."""
    with _admin(servers) as connection:
        connection.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        connection.execute("ALTER SYSTEM SET pg_stat_statements.track_planning = on")
        connection.execute("ALTER SYSTEM SET pg_stat_statements.track = 'all'")
        connection.execute("ALTER SYSTEM SET track_io_timing = on")
    servers.postgres.stop()
    servers.postgres.start()
    with _admin(servers) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")


def _admin(servers: Servers, database: str = "switchyard") -> psycopg.Connection[Any]:
    return psycopg.connect(servers.postgres.url.rsplit("/", 1)[0] + f"/{database}", autocommit=True)


def _profile(name: str, args: argparse.Namespace, servers: Servers) -> None:
    contestant = CONTESTANTS["switchyard-many" if args.many else "switchyard"]
    workload = WORKLOADS[name]
    given = arguments(contestant, workload, quick=False, scale=args.scale)
    if given is None:
        sys.exit(f"error: {name} has no submit_many")
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as folder:
        environment = dict(servers.environment)
        if args.python:
            environment |= {"BENCH_SWITCHYARD_RUNNER": str(RUNNER), "BENCH_PROFILES": folder}
        with _admin(servers) as connection:
            connection.execute("SELECT pg_stat_statements_reset()")
            row = measure.run(measure.Task(contestant, workload, given), environment)
            print(f"\n## {name}: {measure.figure_text(row, workload)}\n\n{json.dumps(row)}")
            _print_statements(connection, args.top)
        with _admin(servers, "bench_switchyard") as connection:
            _print_tables(connection)
        for kind in ("worker", "dispatcher"):
            _print_python(kind, sorted(Path(folder).glob(f"{kind}-*.prof")), args.top)
    say(f"{name} profiled")


def _print_statements(connection: psycopg.Connection[Any], top: int) -> None:
    print("\n### Statements: calls, ms in all, of which planning, ms a call, rows, buffers a call, WAL bytes a call\n")
    for calls, execution, planning, rows, hits, wal, query in connection.execute(_STATEMENTS, [top]).fetchall():
        total = execution + planning
        words = " ".join(line for line in query.splitlines() if not line.startswith("--")).split()
        print(f"{calls:7} {total:9.1f} {planning:8.1f} {total / calls:8.3f} {rows:8} {hits / calls:8.0f} "
              f"{wal / calls:8.0f}  {' '.join(words)[:110]}")  # fmt: skip


def _print_tables(connection: psycopg.Connection[Any]) -> None:
    print("\n### Tables: inserts, updates, of which HOT, deletes, sequential scans, rows they read, index scans\n")
    for row in connection.execute(_TABLES).fetchall():
        print(f"{row[0]:28}" + "".join(f"{value or 0:10}" for value in row[1:]))


def _print_python(kind: str, files: list[Path], top: int) -> None:
    if not files:
        return
    for order in ("tottime", "cumulative"):
        out = StringIO()
        stats = pstats.Stats(*map(str, files), stream=out)
        stats.strip_dirs().sort_stats(order).print_stats(top)
        print(f"\n### {kind}, {len(files)} processes, by {order}\n{out.getvalue()}")


if __name__ == "__main__":
    main()
