-- Tickets to publish once this transaction has committed, and never otherwise.
-- Lock order: none: the rows are new, and nobody sees them before the commit.
-- Index: none is read.
INSERT INTO workflow_outbox (run_id, definition_id, step, queue, tickets, gated)
SELECT * FROM unnest(%(runs)s::uuid[], %(definitions)s::bigint[], %(steps)s::text[], %(queues)s::text[],
                     %(tickets)s::int[], %(gated)s::bool[])
