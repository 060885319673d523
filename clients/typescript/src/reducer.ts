/** What is known of one run, from whatever arrives in whatever order. Without clock, chance or I/O. */
import { type Frame, isFinal } from "./frames"
import { Texts } from "./texts"
import { bound, Timeline } from "./timeline"
import type { Bootstrap, Connection, EventsPage, Interrupt, Problem, Run, RunEvent, RunView, Snapshot } from "./types"

/** Answered questions remembered at most, so that a late answer of the server does not ask them again. */
const ANSWERED = 1_024

/** How the run is reached, as far as the frames do not say it themselves. */
export type Link = "connecting" | "live" | "reconnecting" | "resyncing"

export class Reducer {
  readonly id: string
  /** Where a connection goes on. */
  cursor: string | null = null
  link: Link = "connecting"
  problem: Problem | null = null
  /** Nothing follows. */
  over = false
  /** The record's outcome is known: no frame can tell more. */
  settled = false
  /** A piece of text was missed: a new connection is wanted, which does not name that part. */
  reopen = false
  /** The next bootstrap is where things begin anew. Otherwise one may be older than what the stream has brought since. */
  lost = true
  /** Something is known in outline only, a question or all that a degraded bootstrap could not tell: another has it. */
  curious = false
  /** Grows whenever things begin anew: a bootstrap that was asked for before that tells of another epoch. */
  era = 0
  readonly texts = new Texts()
  readonly #timeline: Timeline
  #run: Run | null = null
  #snapshot: Snapshot | null = null
  #version = -1 // the highest one seen in this epoch
  #anyEpoch = true // the next state is taken, whatever its version
  #outcome: Run["status"] | null = null // as `end` told it
  #interrupts = new Map<string, Interrupt>()
  #answered = new Set<string>()
  #degraded: string | null = null

  constructor(id: string, limit?: number) {
    this.id = id
    this.#timeline = new Timeline(limit)
  }

  /** Whether a connection would bring nothing any more. */
  get finished(): boolean {
    if (this.over || !this.settled || this.#degraded !== null) return this.over
    return this.cursor === null || isFinal(this.#timeline.last?.type.replace("run_", ""))
  }

  /** A connection begins to speak, from `cursor` on. */
  opened(): void {
    this.reopen = false
    if (this.cursor !== null) return
    this.#timeline.rewind()
    this.#anyEpoch = true
  }

  /** A connection was answered 204. */
  nothing(): void {
    this.over = true
  }

  /**
   * Take a bootstrap: the first, or after a resync, or of the run that has ended, for all there is; any other beside it.
   * `asked` is the era in which it was asked for.
   */
  bootstrap(screen: Bootstrap, asked = this.era): void {
    if (asked !== this.era) return
    const { run, snapshot, interrupts, degraded } = screen
    const final = isFinal(run.status)
    if (this.lost || this.over) this.#degraded = degraded // otherwise the stream tells
    if (degraded !== null && this.#snapshot) {
      this.#askAll(interrupts, run.rev >= Math.max(this.#run?.rev ?? 0, this.#snapshot?.rev ?? 0))
    } else if (this.lost || (this.over && final)) {
      this.era += 1
      this.#snapshot = snapshot
      this.#version = snapshot.version
      this.cursor = screen.cursor
      this.lost = this.#anyEpoch = degraded !== null
      this.reopen = false
      this.texts.replace(screen.text)
      this.#take(screen, true)
      this.#askAll(interrupts, true)
    } else {
      const newer = snapshot.version >= this.#version
      if (!this.#snapshot || snapshot.version >= this.#snapshot.version) this.#snapshot = snapshot
      this.#version = Math.max(this.#version, snapshot.version)
      this.texts.complete(screen.text)
      this.#take(screen, false)
      this.#askAll(interrupts, newer)
    }
    if (!this.settled && run.rev >= (this.#run?.rev ?? 0)) this.#run = run
    this.settled ||= final
    this.curious = false
    this.#followStatus()
    if (this.settled) this.texts.replace([])
  }

  frame(frame: Frame): void {
    switch (frame.is) {
      case "event":
        if (frame.cursor !== null) this.cursor = frame.cursor
        if (!this.#timeline.add(frame.event)) break
        this.#version = Math.max(this.#version, frame.event.version || 0)
        this.#heed(frame.event)
        this.#outline(frame.event)
        break
      case "state":
        this.#state(frame.snapshot, frame.degraded)
        break
      case "text":
        if (!this.settled && !this.texts.apply(frame.piece)) this.reopen = true
        break
      case "resync":
        this.lost = true
        if (frame.bootstrap) this.bootstrap({ ...frame.bootstrap, cursor: frame.cursor })
        break
      case "end":
        this.over = true
        this.#outcome = frame.status
        this.#followStatus()
    }
  }

  /** Take a page of older events. */
  older(page: EventsPage): void {
    this.#timeline.prepend(page.events, page.timeline)
  }

  view(): RunView {
    const down = this.link === "live" && this.#degraded !== null
    const connection: Connection = this.problem ? "refused" : this.finished ? "ended" : down ? "degraded" : this.link
    return {
      id: this.id,
      run: this.#run,
      snapshot: this.#snapshot,
      events: this.#timeline.list(),
      timeline: this.#timeline.info(),
      text: this.texts.list(),
      interrupts: [...this.#interrupts.values()],
      cursor: this.cursor,
      degraded: this.#degraded,
      connection,
      problem: this.problem,
    }
  }

  /** All that is known, with the newest of the events, in the form of a bootstrap. Null: not enough for one. */
  screen(limit: number): Bootstrap | null {
    const { run, snapshot, events: all, timeline, interrupts, cursor, degraded } = this.view()
    if (!run || !snapshot || this.lost) return null
    const events = all.slice(-limit)
    const has_older = timeline.has_older || events.length < all.length
    return {
      run,
      snapshot,
      events,
      cursor,
      timeline: { ...timeline, has_older, oldest: events[0]?.id ?? null },
      text: this.texts.pieces(),
      interrupts: [...interrupts],
      degraded,
    }
  }

  #state(snapshot: Snapshot, degraded: string | null): void {
    this.#degraded = degraded
    const known = this.#snapshot
    // What the record alone knows is less than what is shown.
    if (known && degraded !== null) return
    if (known && !this.#anyEpoch && snapshot.version < known.version) return
    this.#version = Math.max(this.#anyEpoch ? -1 : this.#version, snapshot.version)
    this.#snapshot = snapshot
    if (degraded === null) {
      // What the record took down while it was alone need not be on a timeline that was rebuilt.
      this.curious ||= this.lost
      this.#anyEpoch = this.lost = false
    }
    this.#followStatus()
  }

  #take(screen: Bootstrap, fresh: boolean): void {
    this.#timeline.merge(screen.events, screen.timeline, fresh)
    for (const event of screen.events) this.#heed(event)
  }

  /** The status of the newer of record and snapshot; a final one of the record stands. */
  #followStatus(): void {
    const run = this.#run
    if (!run || this.settled) return
    const newer = this.#snapshot && this.#snapshot.rev > run.rev ? this.#snapshot.status : run.status
    const status = this.#outcome ?? newer
    if (status !== run.status) this.#run = { ...run, status }
  }

  /** What an event voids or closes, wherever it was told. */
  #heed(event: RunEvent): void {
    const payload = (event.payload ?? {}) as Record<string, unknown>
    const { interrupt_id: id, voids_attempts_before: before } = payload
    if (event.type === "attempt_started" && typeof before === "number") this.texts.voidBefore(before)
    if (/^approval_(decided|expired|cancelled)$/.test(event.type) && typeof id === "string") {
      this.#interrupts.delete(id)
      this.#answered.add(id)
      bound(this.#answered, ANSWERED)
    }
  }

  /** A question, as far as the event that opens it tells of it. */
  #outline(event: RunEvent): void {
    if (event.type !== "approval_required") return
    const { run_id, attempt, occurred_at: created_at } = event
    const payload = (event.payload ?? {}) as Partial<Record<string, string>>
    const { interrupt_id: id, key = "", kind = "", digest = "", deadline = null, title = null } = payload
    if (id === undefined || this.#answered.has(id) || this.#interrupts.has(id)) return
    const open = { status: "open", closed_at: null, decided_by: null, decision: null } as const
    this.#interrupts.set(id, {
      id,
      run_id,
      key,
      kind,
      attempt,
      digest,
      created_at,
      deadline,
      payload: { title },
      ...open,
    })
    this.curious = true
  }

  #askAll(told: readonly Interrupt[], all: boolean): void {
    if (all) this.#interrupts.clear()
    for (const one of told) if (!this.#answered.has(one.id)) this.#interrupts.set(one.id, one)
  }
}
