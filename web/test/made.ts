// Events, runs and views for tests: only what matters in each is given.
import type { Run, RunEvent, RunView, Snapshot } from "@playhead/client"

export const RUN = "019b0000-0000-7000-8000-000000000001"
export const AT = "2026-01-01T00:00:00.000Z"

export function event(n: number, type: string, payload: unknown = {}, more: Partial<RunEvent> = {}): RunEvent {
  const occurred_at = new Date(Date.parse(AT) + n * 1000).toISOString()
  return {
    version: n,
    id: `${RUN}:1:${n}`,
    type,
    run_id: RUN,
    thread_id: null,
    attempt: 1,
    occurred_at,
    schema_version: 1,
    payload,
    ...more,
  } as RunEvent
}

export function run(more: Partial<Run> = {}): Run {
  const times = { created_at: AT, updated_at: AT, started_at: AT, ended_at: null, heartbeat_at: AT }
  const plain = { labels: {}, key: null, attempt: 1, rev: 1, resumable: false, cancel_requested: null }
  const outcome = { error: null, input: {}, result: null, partial: null }
  return { id: RUN, agent: "scripted", status: "running", ...plain, ...times, ...outcome, ...more } as Run
}

export function view(more: Partial<RunView> = {}): RunView {
  return {
    id: RUN,
    run: run(),
    snapshot: { title: "Scripted", status: "running" } as Snapshot,
    events: [],
    timeline: { complete: true, has_older: false, oldest: null },
    text: [],
    interrupts: [],
    cursor: null,
    degraded: null,
    connection: "live",
    problem: null,
    ...more,
  }
}
