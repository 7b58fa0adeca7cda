import common


def step(i):
    return f"s{i}"


def last(run_id):
    common.mark(run_id)
    return "done"


def join(run_id, n, read):
    """Fan-in; with read, fetches the results of all dependencies first."""
    if read:
        from rq import get_current_job

        job = get_current_job()
        deps = job.fetch_dependencies()
        if len(deps) != n or any(d.return_value() is None for d in deps):
            raise RuntimeError("fan-in lost a part")
    if run_id:
        common.mark(run_id)
    return "joined"
