/** One run, kept up to date: read everything, follow from there, and come back as often as it takes. */
import type { Calls } from "./commands"
import { delay } from "./connection"
import type { Environment } from "./environment"
import { isBootstrap } from "./frames"
import { refusal, type Said } from "./lines"
import type { ProblemError } from "./problem"
import { Reducer } from "./reducer"
import type { Feeds, Subscriber } from "./share"
import type { Shelf } from "./storage"
import type { Place } from "./tape"
import type { Bootstrap, Problem, RunStore, RunView } from "./types"

/** What a change costs on the shelf is paid this seldom. */
const SAVE = 2_000
/** Frames that do not follow what is known here are awaited this long. */
const DETACHED = 1_500
/** For a line of a list the newest event is enough; the others are read when somebody looks. */
const GLANCE = 1
const EVENTS = 50
/** Fresh starts in a row, without an event between them, that are made at once. */
const RESTARTS = 3

export interface Surroundings {
  readonly calls: Calls
  readonly feeds: Feeds
  readonly env: Environment
  readonly shelf: Shelf
}

export class FollowedRun implements RunStore, Subscriber {
  readonly id: string
  readonly #around: Surroundings
  readonly #known: Reducer
  readonly #changed = new Set<() => void>()
  readonly #unwatch: () => void
  #view: RunView | null = null
  #glance: boolean
  #read = false
  #joined = false
  #closed = false
  #seen = false
  #tries = 0
  #restarts = 0
  #turn = 0
  #looking = false
  #paging: Promise<void> | null = null
  #hurry: () => void = () => undefined
  #saving: (() => void) | null = null
  #detached: (() => void) | null = null

  constructor(id: string, around: Surroundings, { glance = false } = {}) {
    this.id = id
    this.#around = around
    this.#glance = glance
    this.#known = new Reducer(id)
    this.#unwatch = around.env.watch((signal) => {
      if (signal === "hidden" || signal === "freeze") this.#save()
      else if (signal !== "offline") this.#hurry()
    })
    this.#begin()
  }

  get(): RunView {
    this.#view ??= this.#known.view()
    return this.#view
  }

  subscribe(changed: () => void): () => void {
    const one = () => changed()
    this.#changed.add(one)
    return () => this.#changed.delete(one)
  }

  /** Somebody looks at the whole run, and not only at a line of it. */
  whole(): void {
    if (!this.#glance) return
    this.#glance = false
    if (this.#read) this.older().catch(() => undefined)
  }

  older(): Promise<void> {
    this.#paging ??= this.#page().finally(() => {
      this.#paging = null
    })
    return this.#paging
  }

  async refresh(): Promise<void> {
    const { era } = this.#known
    try {
      const screen = await this.#around.calls.bootstrap(this.id, EVENTS)
      this.#known.problem = null
      this.#take(screen, era)
    } catch (error) {
      this.#failed(error as ProblemError)
      throw error
    }
  }

  close(): void {
    if (this.#closed) return
    this.#save()
    this.#closed = true
    this.#turn += 1
    this.#unwatch()
    this.#hurry()
    this.#detached?.()
    this.#leave()
    this.#changed.clear()
  }

  place(): Place {
    return { cursor: this.#known.cursor, text: this.#known.texts.pieces() }
  }

  hear(said: Said): void {
    if (!this.#joined || this.#closed) return
    switch (said.is) {
      case "link":
        this.#seen ||= said.link === "live"
        if (said.link === "live") this.#known.opened()
        this.#known.link = said.link === "connecting" && this.#seen ? "reconnecting" : said.link
        break
      case "frames":
        this.#tries = 0
        this.#follow(said.from, said.frames)
        break
      case "check":
        if (said.problem) this.#refuse(said.problem)
        else void this.#look()
        break
      case "gone":
        this.#known.nothing()
        this.#leave()
        void this.#load()
    }
    this.#tell()
  }

  /** An event continues what is known iff it follows the one that is the newest here. */
  #follow(from: string | null, frames: Extract<Said, { is: "frames" }>["frames"]): void {
    let behind = from
    for (const frame of frames) {
      if (frame.is === "refused") return this.#refuse(refusal(frame.code))
      const follows = frame.is !== "event" || frame.cursor === null || behind === this.#known.cursor
      if ((frame.is === "event" && frame.cursor !== null) || frame.is === "resync") behind = frame.cursor
      if (follows) this.#known.frame(frame)
    }
    if (frames.some((frame) => frame.is === "event")) this.#restarts = 0
    this.#attach(behind === this.#known.cursor)
    const { over, settled, finished, reopen, curious } = this.#known
    const stopped = frames.some((frame) => frame.is === "resync" && frame.bootstrap === null)
    if (stopped || (over && !settled)) {
      if (stopped) this.#known.link = "resyncing"
      this.#leave()
      // A server that only tells to start anew is not asked in a tight loop.
      this.#restarts = stopped ? this.#restarts + 1 : 0
      void this.#load(this.#restarts > RESTARTS ? delay(this.#restarts, this.#around.env.random()) : 0)
    } else if (finished) this.#leave()
    else if (reopen) this.#again()
    if (curious) void this.#look(true)
  }

  /** What lies between may still come by; if it does not, it is asked for. */
  #attach(attached: boolean): void {
    if (attached) {
      this.#detached?.()
      this.#detached = null
    } else
      this.#detached ??= this.#around.env.after(DETACHED, () => {
        this.#detached = null
        this.#again()
      })
  }

  #again(): void {
    this.#known.reopen = false
    if (this.#joined) this.#around.feeds.again(this.id)
  }

  #begin(): void {
    const kept = this.#around.shelf.load(this.id)
    if (kept) this.#known.bootstrap(kept)
    this.#read = kept !== null
    if (kept === null || this.#known.cursor === null || this.#known.settled) return void this.#load()
    this.#join()
    void this.#look() // what no frame tells may have changed meanwhile
  }

  #join(): void {
    if (this.#joined || this.#closed) return
    this.#joined = true
    // Whoever asked for this store has it before anything is heard.
    queueMicrotask(() => this.#joined && this.#around.feeds.join(this.id, this))
  }

  #leave(): void {
    if (!this.#joined) return
    this.#joined = false
    this.#attach(true)
    this.#around.feeds.leave(this.id)
  }

  /** Read the whole, however often it has to be asked for, and follow from there. */
  async #load(wait = 0): Promise<void> {
    const { calls, env } = this.#around
    const turn = ++this.#turn
    const limit = this.#glance ? GLANCE : EVENTS
    let told = false
    for (let pause = wait; turn === this.#turn; ) {
      if (pause > 0) await this.#pause(pause, told)
      if (turn !== this.#turn) return
      try {
        const { era } = this.#known
        const screen = await calls.bootstrap(this.id, limit)
        if (turn !== this.#turn) return
        this.#take(screen, era)
        if (limit === GLANCE && !this.#glance) this.older().catch(() => undefined)
        return
      } catch (caught) {
        const error = caught as ProblemError
        if (turn !== this.#turn || this.#failed(error)) return
        told = error.retryAfter !== null
        pause = delay(this.#tries++, env.random(), error.retryAfter)
        if (this.#known.link === "live") this.#known.link = "reconnecting"
        this.#tell()
      }
    }
  }

  #take(screen: Bootstrap, era: number): void {
    if (!isBootstrap(screen, this.id)) throw new TypeError("This is no bootstrap of the run.")
    this.#turn += 1 // whoever else is asking need not
    this.#known.bootstrap(screen, era)
    this.#read = true
    const { settled, over, finished, problem } = this.#known
    if (settled && finished) this.#leave()
    else if (over)
      void this.#load(delay(this.#tries++, this.#around.env.random())) // the record has not told yet
    else if (!problem) this.#join()
    this.#tell()
  }

  /** Whether it is no use to ask again. */
  #failed(error: ProblemError): boolean {
    const { problem, status, retryable } = error
    const final = problem !== undefined && status >= 400 && status < 500 && !retryable
    if (final) this.#refuse(problem)
    return final
  }

  #refuse(problem: Problem): void {
    this.#turn += 1
    this.#known.problem = problem
    this.#around.shelf.remove(this.id)
    this.#leave()
    this.#tell()
  }

  /** Read what the frames do not say, beside the stream. */
  async #look(insist = false): Promise<void> {
    this.#known.curious = false
    if (this.#looking || this.#closed) return
    this.#looking = true
    const { calls, env } = this.#around
    const { era } = this.#known
    try {
      const screen = await calls.bootstrap(this.id, this.#glance ? GLANCE : EVENTS)
      if (!this.#closed) this.#take(screen, era)
    } catch (caught) {
      const error = caught as ProblemError
      if (!this.#closed && !this.#failed(error) && insist)
        env.after(delay(0, env.random(), error.retryAfter), () => void this.#look(true))
    } finally {
      this.#looking = false
    }
  }

  async #page(): Promise<void> {
    const { timeline, events } = this.get()
    if (!timeline.has_older && events.length > 0) return
    this.#known.older(await this.#around.calls.earlier(this.id, timeline.oldest, EVENTS))
    this.#tell()
  }

  /** Cut short when somebody looks again, or the network is back; but not if the server said how long. */
  #pause(ms: number, told: boolean): Promise<void> {
    return new Promise((done) => {
      const cancel = this.#around.env.after(ms, done)
      this.#hurry = () => {
        if (told && !this.#closed) return
        cancel()
        done()
      }
    })
  }

  #save(): void {
    this.#saving?.()
    this.#saving = null
    if (!this.#glance && !this.#known.problem && !this.#closed) this.#around.shelf.save(this.#known)
  }

  #tell(): void {
    if (this.#closed) return
    this.#view = null
    if (!this.#glance) this.#saving ??= this.#around.env.after(SAVE, () => this.#save())
    call(this.#changed)
  }
}

/** Tell each of them; whatever one makes of it is no affair of the others, nor of the connection. */
export function call(changed: ReadonlySet<() => void>): void {
  for (const one of [...changed]) {
    try {
      one()
    } catch (error) {
      const report = globalThis.reportError ?? console.error
      report(error)
    }
  }
}
