"""What PostgreSQL makes of the statements that are asked all the time."""

import asyncio
import json

import psycopg
import pytest

from playhead.backends.postgres.rows import SQL
from playhead.testing.harness.postgres import drop_database, make_database
from playhead.testing.ports.given import AGENT, TENANT
from tests.support.postgres import fresh_name, upgrade

HOT = {
    "get_run": {"id": "x", "tenant": TENANT},
    "lock_run": {"id": "x", "tenant": "*"},
    "get_deduped": {"tenant": "tenant7", "scope": b"s", "dedupe": "d7"},
    "free_runs": {"agents": [AGENT, "other"], "after": 0, "low": 0, "high": 0, "look": 20, "limit": 5},
    "owned_by": {"process": "p1"},
    "runs_without_lease": {"held": ["p1", "p2"], "limit": 100},
    "facts_after": {"feed": "run:x", "rev": 3, "limit": 100},
    "oldest_rev": {"feed": "run:x"},
    "unsettled": {"after": 0, "limit": 100},
    "settle": {"feed": "run:x", "rev": 3, "id": "x", "epoch": 1},
    "unheard": {"types": ["run_queued"], "limit": 10, "holder": "p1", "now": 5},
    "hold": {"feeds": ["run:x"], "revs": [3], "holder": "p1", "now": 5, "until": 6},
    "heard": {"feeds": ["run:x"], "revs": [3]},
    "interrupts_of_run": {"id": "x"},
    "runs_due": {"at": 5, "limit": 10},
    "prune_facts": {"before": 5, "limit": 100},
    "archived_before": {"feed": "run:x", "limit": 50},
    "audit_of_run": {"run_id": "x", "tenant": "*", "limit": 10},
}
LISTS: dict[str, dict[str, dict[str, object]]] = {
    "of all": {},
    "by tenant": {"of_tenant": {"tenant": "tenant7"}},
    "by status": {"of_tenant": {"tenant": "tenant7"}, "of_status": {"status": "failed"}},
    "by agent": {"of_tenant": {"tenant": "tenant7"}, "of_agent": {"agent": "rare"}},
    "by key": {"of_tenant": {"tenant": "tenant7"}, "of_key": {"key": "k7"}},
    "by label": {"of_label": {"name": "team", "value": b"red7"}},
}


def statements():
    for name, values in HOT.items():
        yield pytest.param(SQL[name], values, id=name)
    for name, conditions in LISTS.items():
        parts = [SQL[condition] for condition in conditions]
        sought = {"before": 2**53, "limit": 50} | {k: v for more in conditions.values() for k, v in more.items()}
        whole = f"{' AND '.join([SQL['list_runs'], *parts])} {SQL['newest_first']}"
        yield pytest.param(whole, sought, id=f"list {name}")
        weighed = f"{' AND '.join([SQL['weigh_runs'], *parts])} {SQL['newest_first']}"
        within = SQL["lightest_runs"].replace("WEIGHED", weighed)
        yield pytest.param(within, sought | {"most_bytes": 4 << 20}, id=f"bounded list {name}")


@pytest.fixture(scope="module")
def filled(postgres_server):
    """A record with more runs than anybody reads through."""
    name = fresh_name()
    dsn = make_database(postgres_server, name)
    asyncio.run(upgrade(dsn))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO playhead.run SELECT n, 'id' || n, 'tenant' || n % 50, 'agent' || n % 20,"
            " CASE n % 100 WHEN 0 THEN 'queued' WHEN 1 THEN 'running' ELSE 'succeeded' END, false, 3, NULL, '{}',"
            " 'k' || n, 's', 'd' || n, 'd', n, n, n, n, 1, 0, CASE n % 100 WHEN 1 THEN 'p' || n % 7 END, 0, NULL, NULL,"
            " NULL, NULL, NULL, NULL, 3, n, n FROM generate_series(1, 20000) n"
        )
        connection.execute("INSERT INTO playhead.run_input SELECT n, '{}' FROM generate_series(1, 20000) n")
        connection.execute("INSERT INTO playhead.run_end SELECT n, '{}' FROM generate_series(1, 20000) n")
        connection.execute(
            "INSERT INTO playhead.label SELECT 'team', convert_to('red' || n % 1000, 'UTF8'), n"
            " FROM generate_series(1, 20000) n"
        )
        connection.execute(
            "INSERT INTO playhead.fact (feed, rev, tenant, type, status, token, at, settled, heard, body)"
            " SELECT 'run:id' || n, r, 't', 'run_queued', 'queued', 1, n, n % 100 > 0, n % 100 > 0, '{}'"
            " FROM generate_series(1, 10000) n, generate_series(1, 3) r"
        )
        connection.execute(
            "INSERT INTO playhead.interrupt (id, run_id, tenant, key, kind, payload, digest, token, created_at,"
            " deadline, status) SELECT 'i' || n, 'id' || n, 't', 'k', 'approval', '{}', 'd', 1, n, n,"
            " CASE n % 100 WHEN 0 THEN 'open' ELSE 'decided' END FROM generate_series(1, 10000) n"
        )
        connection.execute(
            "INSERT INTO playhead.archive (feed, event_id, type, version, body)"
            " SELECT 'run:id' || n % 500, 'e' || n, 't', n, '{}' FROM generate_series(1, 10000) n"
        )
        connection.execute(
            "INSERT INTO playhead.audit (tenant, run_id, at, kind, actor, data)"
            " SELECT 't', 'id' || n % 500, n, 'k', 'a', '{}' FROM generate_series(1, 10000) n"
        )
        connection.execute("INSERT INTO playhead.process SELECT 'p' || n, 1, 1, 1 FROM generate_series(1, 7) n")
        connection.execute("ANALYZE")
    yield dsn
    drop_database(postgres_server, name)


@pytest.mark.parametrize(("statement", "values"), list(statements()))
def test_no_hot_statement_reads_a_table_through(filled, statement, values):
    plan = explained(filled, statement, values)
    assert read_through(plan[0]["Plan"]) - {"process"} == set(), json.dumps(plan, indent=1)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("free_runs", "run_free"),
        ("runs_without_lease", "run_owned"),
        ("owned_by", "run_owned"),
        ("get_deduped", "run_dedupe"),
        ("unsettled", "fact_unsettled"),
        ("unheard", "fact_unheard"),
        ("prune_facts", "fact_settled"),
        ("runs_due", "interrupt_due"),
        ("interrupts_of_run", "interrupt_by_run"),
        ("audit_of_run", "audit_by_run"),
    ],
)
def test_what_is_looked_for_all_the_time_has_an_index_of_its_own(filled, name, index):
    plan = explained(filled, SQL[name], HOT[name])
    assert index in indexes(plan[0]["Plan"]), json.dumps(plan, indent=1)


def explained(dsn, statement, values):
    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as connection:
        ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", values).fetchall()
    return plan


def indexes(node):
    return {node.get("Index Name")}.union(*(indexes(child) for child in node.get("Plans", ())))


def read_through(node):
    found = {node["Relation Name"]} if node["Node Type"] == "Seq Scan" else set()
    return found.union(*(read_through(child) for child in node.get("Plans", ())))
