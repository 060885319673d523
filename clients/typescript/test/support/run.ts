/** A run as a server holds it: the truth that clients have to arrive at. */
import type { Bootstrap, EventsPage, Interrupt, Run, RunEvent, Snapshot, Status, TextPiece } from "../../src/types"

interface Entry {
  cursor: string
  event: RunEvent
}

interface Part {
  attempt: number
  part: string
  text: string
  final: boolean
  ends: Set<number>
}

export const FINAL = ["succeeded", "failed", "cancelled", "interrupted"]
const AT = "2026-01-31T09:30:00.250Z"
const bytes = (text: string) => new TextEncoder().encode(text).length

let made = 0
export const freshId = () => `01a20000-0000-7000-8000-${String(++made).padStart(12, "0")}`

/** Frames are named as on the wire; `cursor` is set for timeline events. */
export type Told = { name: string; data: Record<string, unknown>; cursor?: string | null }

export class ServedRun {
  readonly id: string
  run: Run
  snapshot: Snapshot
  entries: Entry[] = []
  archive: RunEvent[] = []
  parts: Part[] = []
  interrupts: Interrupt[] = []
  epoch = 1_000
  position = 0
  /** Position of the newest entry that was removed. */
  floor = 0
  floorTag = "000000000000"
  tag = "000000000000"
  gone = false
  ended = false
  readonly viewers = new Set<(told: Told[]) => void>()
  #facts = 0
  #published = 0

  constructor(agent = "reader", id = freshId()) {
    this.id = id
    const base = {
      status: "queued" as Status,
      attempt: 0,
      rev: 0,
      updated_at: AT,
      started_at: null,
      heartbeat_at: null,
    }
    this.run = {
      id,
      agent,
      labels: {},
      key: null,
      resumable: false,
      created_at: AT,
      ended_at: null,
      cancel_requested: null,
      error: null,
      input: {},
      result: null,
      partial: null,
      ...base,
    }
    this.snapshot = {
      version: 0,
      title: null,
      subtitle: null,
      current_step: null,
      step_started_at: null,
      progress: null,
      done: null,
      total: null,
      detail: null,
      scope: null,
      as_of: null,
      next_action: null,
      ...base,
    }
    this.fact("run_queued", {})
  }

  get cursor(): string {
    return `${this.epoch}-${this.position}.${this.tag}`
  }

  get isFinal(): boolean {
    return FINAL.includes(this.run.status)
  }

  start(): this {
    this.run = { ...this.run, attempt: this.run.attempt + 1, started_at: AT }
    this.snapshot = { ...this.snapshot, attempt: this.run.attempt }
    this.parts = []
    this.fact("attempt_started", { attempt: this.run.attempt, voids_attempts_before: this.run.attempt }, "running")
    return this
  }

  fact(type: string, payload: unknown, status: Status = this.run.status): void {
    this.#facts += 1
    this.run = { ...this.run, rev: this.#facts, status }
    this.snapshot = { ...this.snapshot, rev: this.#facts, status }
    this.#append(`run:${this.id}:${this.#facts}`, type, payload)
  }

  publish(type: string, payload: unknown = {}, state: Partial<Snapshot> = {}): void {
    this.#published += 1
    this.snapshot = { ...this.snapshot, ...state }
    this.#append(`${this.id}:${this.run.attempt}:${this.#published}`, type, payload)
  }

  state(state: Partial<Snapshot>): void {
    this.snapshot = { ...this.snapshot, ...state, version: this.snapshot.version + 1 }
    this.#tell([this.stateFrame()])
  }

  say(text: string, part = "answer", final = false): void {
    const known = this.parts.find((one) => one.part === part && one.attempt === this.run.attempt)
    const one = known ?? { attempt: this.run.attempt, part, text: "", final: false, ends: new Set([0]) }
    if (!known) this.parts.push(one)
    const offset = bytes(one.text)
    one.text += text
    one.final = final
    one.ends.add(bytes(one.text))
    this.#tell([{ name: "text", data: { part, attempt: one.attempt, offset, end: bytes(one.text), text, final } }])
  }

  ask(key: string, title: string): Interrupt {
    const interrupt: Interrupt = {
      id: freshId(),
      run_id: this.id,
      key,
      kind: "approval",
      status: "open",
      attempt: this.run.attempt,
      digest: "d",
      created_at: AT,
      deadline: null,
      closed_at: null,
      decided_by: null,
      payload: { title, all: true },
      decision: null,
    }
    this.interrupts.push(interrupt)
    const payload = { interrupt_id: interrupt.id, kind: "approval", key, digest: "d", title, deadline: null }
    this.fact("approval_required", payload, "waiting")
    return interrupt
  }

  decide(id: string, decision: Interrupt["decision"]): Interrupt {
    const at = this.interrupts.findIndex((one) => one.id === id)
    const decided = { ...(this.interrupts[at] as Interrupt), status: "decided" as const, decided_by: "local", decision }
    this.interrupts[at] = decided
    const payload = { interrupt_id: id, kind: decided.kind, key: decided.key, digest: "d", by: "local", decision }
    this.fact("approval_decided", payload, "running")
    return decided
  }

  end(status: Status = "succeeded", result: unknown = { done: true }): void {
    for (const { id, kind, key } of this.open()) {
      this.interrupts = this.interrupts.map((one) => (one.id === id ? { ...one, status: "cancelled" } : one))
      this.fact("approval_cancelled", { interrupt_id: id, kind, key, digest: "d" }, "running")
    }
    this.run = { ...this.run, result: status === "succeeded" ? result : null, ended_at: AT }
    this.fact(`run_${status}`, {}, status)
    this.ended = true
    this.#tell([{ name: "end", data: { run_id: this.id, status } }])
  }

  /** The projection was lost and is made anew: another epoch, no events, smaller versions. */
  rebuild(): void {
    this.epoch += 1
    this.position = this.floor = 0
    this.tag = this.floorTag = "0000000000ff"
    this.entries = []
    this.snapshot = { ...this.snapshot, version: 1 }
    this.#tell([{ name: "rebuilt", data: {} }])
  }

  /** The oldest events go to the archive. */
  trim(count: number): void {
    for (const entry of this.entries.splice(0, count)) {
      this.floor += 1
      this.floorTag = entry.cursor.split(".")[1] ?? ""
    }
  }

  open(): Interrupt[] {
    return this.interrupts.filter((one) => one.status === "open")
  }

  stateFrame(): Told {
    return { name: "state", data: { snapshot: this.snapshot, degraded: null } }
  }

  pieces(named: ReadonlyMap<string, number> = new Map()): TextPiece[] {
    return this.parts.map(({ attempt, part, text, final, ends }) => {
      const from = named.get(`${attempt}.${part}`) ?? 0
      const offset = ends.has(from) ? from : 0
      const rest = new TextDecoder().decode(new TextEncoder().encode(text).subarray(offset))
      return { part, attempt, offset, end: bytes(text), text: rest, final }
    })
  }

  bootstrap(limit = 50): Bootstrap {
    const events = limit > 0 ? this.archive.slice(-limit) : []
    return structuredClone({
      run: this.run,
      snapshot: this.snapshot,
      events,
      cursor: this.cursor,
      timeline: { complete: true, has_older: events.length < this.archive.length, oldest: events[0]?.id ?? null },
      text: this.pieces(),
      interrupts: this.open(),
      degraded: null,
    })
  }

  page(before: string | null, limit: number): EventsPage {
    const end = before === null ? this.archive.length : this.archive.findIndex((event) => event.id === before)
    const start = Math.max(0, end - limit)
    const events = this.archive.slice(start, end)
    return { events, timeline: { complete: true, has_older: start > 0, oldest: events[0]?.id ?? null } }
  }

  /** The events after this place, or why there are none to be told. */
  after(cursor: string | null): Told[] | "malformed" | "epoch" | "ahead" | "expired" | "foreign" {
    if (cursor === null) return this.entries.map(told)
    const match = /^(\d+)-(\d+)\.([0-9a-f]{12})$/.exec(cursor)
    if (!match) return "malformed"
    const position = Number(match[2])
    if (Number(match[1]) !== this.epoch) return "epoch"
    if (position > this.position) return "ahead"
    if (position < this.floor) return "expired"
    const at = position === this.floor ? this.floorTag : this.entries[position - this.floor - 1]?.cursor.split(".")[1]
    if (position > 0 && at !== match[3]) return "foreign"
    return this.entries.slice(position - this.floor).map(told)
  }

  /** A view of the truth, as a client that has everything shows it. */
  truth() {
    return {
      run: this.run,
      snapshot: this.snapshot,
      events: this.archive.map((event) => event.id),
      text: this.isFinal ? [] : this.parts.map(({ part, attempt, text }) => ({ part, attempt, text })),
      interrupts: this.open().map((one) => one.id),
    }
  }

  #append(id: string, type: string, payload: unknown): void {
    this.snapshot = { ...this.snapshot, version: this.snapshot.version + 1 }
    this.position += 1
    this.tag = (this.position * 7919 + this.epoch).toString(16).padStart(12, "0").slice(-12)
    const event: RunEvent = {
      version: this.snapshot.version,
      id,
      type,
      run_id: this.id,
      thread_id: null,
      attempt: this.run.attempt,
      occurred_at: AT,
      schema_version: 1,
      payload,
    }
    const entry = { cursor: this.cursor, event }
    this.entries.push(entry)
    this.archive.push(event)
    this.#tell([this.stateFrame(), told(entry)])
  }

  #tell(frames: Told[]): void {
    for (const viewer of [...this.viewers]) viewer(frames)
  }
}

const told = ({ cursor, event }: Entry): Told => ({ name: "event", data: { ...event }, cursor })

/** A frame of a stream of one run. */
export function frame({ name, data, cursor }: Told): string {
  if (name === "event") return `${cursor ? `id: ${cursor}\n` : ""}data: ${JSON.stringify(data)}\n\n`
  const id = name === "end" ? "id: end\n" : cursor !== undefined ? `id: ${cursor}\n` : ""
  return `${id}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
}

/** The same on a stream of several. */
export function joined(run: string, { name, data, cursor }: Told): string {
  const feed = `run:${run}`
  if (name === "event") return `data: ${JSON.stringify({ feed, cursor: cursor ?? null, event: data })}\n\n`
  const more = name === "resync_required" ? { cursor } : {}
  return `event: ${name}\ndata: ${JSON.stringify({ feed, ...data, ...more })}\n\n`
}
