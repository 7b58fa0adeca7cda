"""Hand-rolled fan-in for PostgreSQL job queues without workflows: a counter row
per run, decremented by every shard in one UPDATE ... RETURNING."""

DDL = """
drop table if exists bench_fanin;
create table bench_fanin (run_id text primary key, left_over int not null);
"""
DEC = "update bench_fanin set left_over = left_over - 1 where run_id = %s returning left_over"
