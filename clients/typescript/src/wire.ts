// Made from spec/ by `npm run types`. Not to be edited.

/**
 * An agent that runs can be started of.
 */
export interface Agent {
  name: string
  title: string | null
  description: string | null
  /**
   * JSON Schema of the input.
   */
  input_schema: {
    [k: string]: unknown
  }
  /**
   * A run whose process died gets another attempt.
   */
  resumable: boolean
}
/**
 * Everything a screen shows of a run, and the cursor from which to follow. The cursor is never newer than what is shown.
 */
export interface Bootstrap {
  run: Run
  snapshot: Snapshot
  /**
   * The latest, oldest first.
   */
  events: RunEvent[]
  /**
   * Null: there is nothing to follow, or not now (`degraded`).
   */
  cursor: string | null
  timeline: {
    /**
     * No event is known to be missing up to the newest.
     */
    complete: boolean
    /**
     * `/events?before=oldest` has more.
     */
    has_older: boolean
    /**
     * The id of the first event shown.
     */
    oldest: string | null
  }
  text: TextPiece[]
  /**
   * The open ones, oldest first.
   */
  interrupts: Interrupt[]
  /**
   * A code for what cannot be read now, or null.
   */
  degraded: string | null
}
/**
 * A run as the record holds it: this decides existence, status and outcome.
 */
export interface Run {
  id: string
  agent: string
  status: "queued" | "running" | "waiting" | "succeeded" | "failed" | "cancelled" | "interrupted"
  labels: {
    [k: string]: string
  }
  /**
   * The caller's own name for the run.
   */
  key: string | null
  /**
   * The fencing token of the latest attempt; 0 before the first.
   */
  attempt: number
  /**
   * Facts of the run so far.
   */
  rev: number
  resumable: boolean
  created_at: string
  updated_at: string
  started_at: string | null
  ended_at: string | null
  heartbeat_at: string | null
  cancel_requested: {
    at: string
    by: string | null
    reason: string | null
  } | null
  /**
   * Why the run failed or was interrupted.
   */
  error: {
    code: string
    message: string
  } | null
  /**
   * As it was stored, defaults filled in.
   */
  input: unknown
  /**
   * Null unless the run succeeded; then whatever the agent returned.
   */
  result: unknown
  /**
   * The text that the run had said by part, when it ended without success; or null.
   */
  partial: unknown
}
/**
 * What is true of a run now: small, absolute, overwritten. A reader keeps the newest by `version` within an epoch.
 */
export interface Snapshot {
  status: "queued" | "running" | "waiting" | "succeeded" | "failed" | "cancelled" | "interrupted"
  /**
   * The fencing token of the latest attempt; 0 before the first.
   */
  attempt: number
  /**
   * Writes applied to this feed in its epoch.
   */
  version: number
  /**
   * The feed's facts that this snapshot includes.
   */
  rev: number
  started_at: string | null
  /**
   * The last sign of life of the process that works on the run, by the server's clock.
   */
  heartbeat_at: string | null
  /**
   * Server time of the last write.
   */
  updated_at: string
  title: string | null
  subtitle: string | null
  current_step: string | null
  step_started_at: string | null
  /**
   * Null: not known.
   */
  progress: number | null
  done: number | null
  total: number | null
  detail: string | null
  scope: string | null
  as_of: string | null
  next_action: string | null
}
/**
 * Something that happened in a run. The same `id` in every epoch and in the archive.
 */
export interface RunEvent {
  /**
   * Of the snapshot that this event led to; 0 where that is not known any more.
   */
  version: number
  /**
   * `<run>:<attempt>:<n>`, or `run:<run>:<rev>` for a fact. Opaque.
   */
  id: string
  type: string
  run_id: string
  thread_id: string | null
  /**
   * The fencing token of the attempt; 0 before the first.
   */
  attempt: number
  /**
   * For display. Order is by position.
   */
  occurred_at: string
  schema_version: number
  /**
   * By type. Cut payloads have `truncated: true`.
   */
  payload: unknown
}
/**
 * A piece of a growing text part. From offset 0 it is the whole part so far, and replaces what was shown.
 */
export interface TextPiece {
  part: string
  attempt: number
  /**
   * Where `text` begins, in UTF-8 bytes. Opaque: compare for equality with the `end` you have.
   */
  offset: number
  /**
   * Where it ends.
   */
  end: number
  text: string
  /**
   * Nothing follows in this part.
   */
  final: boolean
  /**
   * Text beyond the part's bound was left out; absent otherwise.
   */
  truncated?: true
}
/**
 * A durable question to a person, and the one answer that counts.
 */
export interface Interrupt {
  id: string
  run_id: string
  /**
   * Names the question within its run.
   */
  key: string
  kind: string
  status: "open" | "decided" | "expired" | "cancelled"
  /**
   * The attempt that asked last.
   */
  attempt: number
  /**
   * Of what is asked; the decision is bound to it.
   */
  digest: string
  created_at: string
  deadline: string | null
  closed_at: string | null
  decided_by: string | null
  /**
   * What the person is shown.
   */
  payload: unknown
  decision: {
    approved: boolean
    note?: string | null
    value?: unknown
  } | null
}
/**
 * An error by RFC 9457. `code` is stable and for machines.
 */
export interface Problem {
  type: string
  title: string
  status: number
  code: string
  detail: string
  /**
   * The same call may succeed later; Retry-After says when.
   */
  retryable: boolean
  /**
   * More, by code.
   */
  details?: {
    [k: string]: unknown
  }
}
