// The timeline as a person reads it: one row for what began and ended, with a mark for how it stands.
import type { RunEvent, RunView, Status } from "@playhead/client"
import { Payload } from "./payload"
import { span } from "./times"
import { t, words } from "./words"

export type RowState = "done" | "running" | "asks" | "failed" | "off"

export interface Row {
  /** The id of the event that the row began with. */
  readonly key: string
  readonly began: RunEvent
  /** What ended it, where a pair of events makes one row. */
  readonly ended: RunEvent | null
  readonly state: RowState
  /** Its question is open. */
  readonly waits: boolean
}

const FINAL: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled", "interrupted"])
const OPENS = new Set(["run_queued", "run_started", "attempt_started", "cancel_requested"])
const KEEPS = new Set(["approval_required", "run_started", "tool_call_started"]) // their name, when they have ended
const OWN = /^(?:run|attempt|approval|tool|turn|message|thread)_/ // built-in types pair by their own rules
const DIGEST = /^[0-9a-f]{32,}$/ // is there to be compared by machines
const BEGUN = /^(.+)_(?:started|begun|begin)$/
const OVER = /^(.+)_(?:applied|completed|done|ended|executed|failed|finished|succeeded)$/

export const isFinal = (status: string): boolean => FINAL.has(status)

/** A final status in the record beats whatever a snapshot says. */
export function statusOf(view: RunView): string {
  if (view.run && isFinal(view.run.status)) return view.run.status
  return view.snapshot?.status ?? view.run?.status ?? "queued"
}

/** Fold the events of a run, oldest first, into rows. `open` are the ids of the open questions. */
export function rows(events: readonly RunEvent[], open: ReadonlySet<string>, status: Status | string): Row[] {
  const going = !isFinal(status)
  const newest = events.reduce((most, event) => Math.max(most, event.attempt), 0)
  const found: Pair[] = []
  const begun = new Map<string, Pair>()
  for (const event of events) {
    const ends = endOf(event)
    const place = ends === null ? undefined : begun.get(ends)
    if (place && ends !== null) {
      place.ended = event
      begun.delete(ends)
      continue
    }
    const last = found.at(-1)
    if (event.type === "attempt_started" && last?.began.type === "run_started" && !last.ended) {
      last.ended = event // the first attempt, which every run has
      continue
    }
    const row: Pair = { began: event, ended: null, again: false }
    found.push(row)
    const name = beginOf(event)
    if (name === null) continue
    const before = begun.get(name)
    if (before) before.again = true
    begun.set(name, row)
  }
  return found.map((pair, i) => {
    const { began, ended } = pair
    const asks = began.type === "approval_required" && ended === null
    const waits = asks && open.has(new Payload(began.payload).text("interrupt_id"))
    const place = { waits, going, status, last: i === found.length - 1, newest }
    return { key: began.id, began, ended, waits, state: stateOf(pair, place) }
  })
}

interface Pair {
  readonly began: RunEvent
  ended: RunEvent | null
  /** The same began once more, so this one is over. */
  again: boolean
}

/** What a row is called: by how it ended, but a question keeps its name. */
export function titleOf(row: Row): string {
  return told(row.ended && !KEEPS.has(row.began.type) ? row.ended : row.began)[0]
}

/** One line of what the payload adds. */
export function detailOf(row: Row): string {
  const asked = row.began.type === "approval_required"
  const parts = [asked && row.ended ? told(row.ended)[0] : "", told(row.ended ?? row.began)[1]]
  if (row.ended && !asked && row.began.type !== "run_started") parts.push(lasted(row.began, row.ended))
  return parts.filter(Boolean).join(" · ").slice(0, 400)
}

/** The title and detail of one event. A type that the catalogue does not have is told by its own name. */
export function told(event: RunEvent): [title: string, detail: string] {
  const payload = new Payload(event.payload)
  const known = Object.hasOwn(t.event, event.type) ? t.event[event.type as keyof typeof t.event] : null
  const title = known ? known(payload) : words(event.type)
  switch (event.type) {
    case "approval_decided":
      return [title, payload.decision().text("note")]
    case "run_failed":
    case "run_interrupted":
      return [title, payload.text("message") || payload.text("code")]
    case "run_cancelled":
    case "cancel_requested":
      return [title, payload.text("reason")]
    case "tool_executed":
      return [title, payload.text("summary")]
    case "retry":
      return [
        title,
        [payload.text("step") && words(payload.text("step")), payload.text("reason")].filter(Boolean).join(" · "),
      ]
    case "event_unreadable":
      return [title, payload.text("type")]
  }
  if (OWN.test(event.type)) return [title, ""]
  return [
    title,
    payload
      .rest()
      .filter(([, value]) => !DIGEST.test(value))
      .map(([name, value]) => `${field(name)} ${value}`)
      .join(" · "),
  ]
}

function beginOf(event: RunEvent): string | null {
  if (event.type === "approval_required") return `question ${new Payload(event.payload).text("interrupt_id")}`
  if (event.type === "tool_call_started") return `tool ${event.attempt} ${new Payload(event.payload).text("call_id")}`
  const stem = OWN.test(event.type) ? null : BEGUN.exec(event.type)
  return stem && `${event.attempt} ${stem[1]}`
}

function endOf(event: RunEvent): string | null {
  if (/^approval_(decided|expired|cancelled)$/.test(event.type))
    return `question ${new Payload(event.payload).text("interrupt_id")}`
  if (event.type === "tool_executed") return `tool ${event.attempt} ${new Payload(event.payload).text("call_id")}`
  const stem = OWN.test(event.type) ? null : OVER.exec(event.type)
  return stem && `${event.attempt} ${stem[1]}`
}

interface Place {
  readonly waits: boolean
  readonly going: boolean
  readonly status: string
  readonly last: boolean
  readonly newest: number
}

function stateOf({ began, ended, again }: Pair, { waits, going, status, last, newest }: Place): RowState {
  if (waits) return "asks"
  const end = ended ?? began
  switch (end.type) {
    case "run_failed":
    case "run_interrupted":
    case "approval_expired":
      return "failed"
    case "run_cancelled":
    case "approval_cancelled":
      return "off"
    case "approval_decided":
      return new Payload(end.payload).approved() ? "done" : "off"
    case "approval_required":
      return going ? "running" : "off"
    case "tool_executed": {
      const outcome = new Payload(end.payload).text("outcome")
      return outcome === "failed" ? "failed" : outcome === "unknown" ? "off" : "done"
    }
    case "cancel_requested":
      return going ? "running" : "off"
  }
  if (ended && began.type !== "run_started") return ended.type.endsWith("_failed") ? "failed" : "done"
  if (beginOf(began) !== null) {
    if (again) return "done"
    if (began.attempt !== newest) return "off"
    return going ? "running" : status === "succeeded" ? "done" : "off"
  }
  return going && last && OPENS.has(began.type) ? "running" : "done"
}

function lasted(began: RunEvent, ended: RunEvent): string {
  const given = new Payload(ended.payload).get("duration_ms")
  const ms = typeof given === "number" ? given : Date.parse(ended.occurred_at) - Date.parse(began.occurred_at)
  return ms >= 1000 ? t.timeline.took(span(ms)) : ""
}

function field(name: string): string {
  return Object.hasOwn(t.field, name) ? (t.field[name] as string) : name.replaceAll("_", " ")
}
