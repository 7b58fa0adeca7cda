"""The engine: what happens to a run, in use cases that every face shares. No HTTP, no RQ.

Begin with four files, in this order: :mod:`settle` closes an attempt, :mod:`advance` decides what becomes ready by it,
:mod:`edit` holds what was decided, :mod:`transitions` writes it, by the statements in ``sql/``. Everything else leads
up to these four or looks at what they wrote. ``docs/code.md`` follows one step through all of the code.

- **A run starts**: submit, submission (the request), exclusive, schedules.
- **A step is claimed and runs**: claims, gates (topics and locks), leases, pace (how many at once), work, context
  (``ctx``), ambient (whose child a submit is), outputs, artifacts, artifact_keys, artifact_storage, reports, pauses.
- **An attempt ends**: settle, closing (what it means for the run), advance, unwind (stop, undo, end), edit,
  transitions, parameters, history (attempts, dead letters, audit, counters), plans (compiled definitions).
- **Time passes**: recover (lost workers, retries, deadlines), waits (timers, approvals, joins), children, retention,
  rollup, beats (who leads).
- **A person acts**: operate (the door), operate_runs, operate_steps, operate_dead_letters, operate_start,
  operate_notes, retry, reopen, retry_preview; bulk, bulk_choice, bulk_preview, bulk_work, bulk_watch, bulk_report;
  stale (what a page showed must still be so), limits, incidents, retire, tokens, audit.
- **A person looks**: explain, explain_facts, explain_live, explain_waits, explain_end, explain_brief, explain_reply,
  explain_words; describe (the run of the API), find, find_dead_letters, lookup, subjects, estimate, progress,
  step_times, catalogue, versions, topics, contention, gauges (metrics), reading, clock.
- **doctor** works out again what must agree. **db** and **arrays** are how all of it speaks to PostgreSQL.
"""
