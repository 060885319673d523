/** The connections of one browser, or of one tab: which feeds they carry, and what comes of what they say. */
import { IDLE, type Signal, type State, step } from "./connection"
import type { Environment } from "./environment"
import { type Block, type Frame, read } from "./frames"
import { problem } from "./problem"
import type { Link } from "./reducer"
import { type Listener, open, type Transport } from "./sse"
import { type Batch, type Place, Tape } from "./tape"
import type { Problem, TextPart } from "./types"

/** What one who follows a run is told. */
export type Said =
  | ({ readonly is: "frames" } & Batch)
  | { readonly is: "link"; readonly link: Link }
  /** Look whether the run is still there for you. `problem`: it is not. */
  | { readonly is: "check"; readonly problem: Problem | null }
  /** Nothing follows at this place: read what there is. */
  | { readonly is: "gone" }

/** Feeds of one connection, and connections. Feeds beyond that wait until there is room. */
export const FEEDS = 32
export const LINES = 3
/** Changes are collected for this long, so that a list of feeds makes one connection. */
const COLLECT = 40
/** How long a reader's place that is not known may take to come by. */
const UNPLACED = 500
/** A machine that slept is found out this soon. */
const LOOK = 5_000
/** A query may have 4,096 bytes. */
const QUERY = 3_800

interface Line {
  readonly close: () => void
  /** What was asked for. A tape that is no longer the one of its run hears nothing more. */
  readonly places: ReadonlyMap<string, Asked>
}

interface Asked {
  readonly tape: Tape
  readonly cursor: string | null
  readonly texts: ReadonlyMap<string, TextPart>
}

/** A connection and the feeds that it carries or is about to. */
interface Slot {
  state: State
  link: Link
  readonly feeds: Set<string>
  readonly lines: Map<number, Line>
  /** When it is looked at next. */
  due: number | null
  alarm: () => void
}

export class Lines {
  readonly #base: URL
  readonly #transport: Transport
  readonly #env: Environment
  readonly #tell: (run: string, said: Said) => void
  readonly #tapes = new Map<string, Tape>()
  readonly #slots: Slot[] = []
  readonly #unwatch: () => void
  #pending: (() => void) | null = null

  constructor(base: URL, transport: Transport, env: Environment, tell: (run: string, said: Said) => void) {
    this.#base = base
    this.#transport = transport
    this.#env = env
    this.#tell = tell
    this.#unwatch = env.watch((signal) => {
      for (const slot of this.#slots) this.#step(slot, { is: signal })
    })
  }

  /** Somebody at this place wants to follow. The answer is for that one alone; the rest is told as it comes. */
  want(run: string, place: Place): Said[] {
    const tape = this.#tapes.get(run)
    const slot = this.#slots.find((one) => one.feeds.has(run))
    const carried = slot?.lines.get(slot.state.line)?.places.get(run)?.tape === tape
    const link: Said = { is: "link", link: slot && carried ? slot.link : "connecting" }
    if (!tape) {
      this.#tapes.set(run, new Tape(place))
      this.#soon()
      return [link]
    }
    const lacking = tape.since(place.cursor)
    if (lacking) return [link, { is: "frames", ...lacking }]
    if (tape.over) return [{ is: "gone" }]
    this.#await(run, tape, place.cursor)
    return [link]
  }

  /** Nobody follows it any more. */
  drop(run: string): void {
    if (this.#tapes.delete(run)) this.#soon()
  }

  stop(): void {
    this.#tapes.clear()
    this.#unwatch()
    this.#pending?.()
    for (const slot of this.#slots) this.#step(slot, { is: "stop" })
  }

  /** A reader whose place is not on the tape may be ahead of it. If it stays unknown, a new connection begins there. */
  #await(run: string, tape: Tape, cursor: string | null): void {
    this.#env.after(UNPLACED, () => {
      if (this.#tapes.get(run) !== tape || tape.over || tape.since(cursor)) return
      const slot = this.#slots.find((one) => one.feeds.has(run))
      if (slot?.state.phase !== "live") return this.#await(run, tape, cursor)
      tape.rewind = cursor
      this.#step(slot, { is: "swap" })
    })
  }

  #soon(): void {
    this.#pending ??= this.#env.after(COLLECT, () => {
      this.#pending = null
      this.#arrange()
    })
  }

  /** Give each feed a connection, and each connection its feeds. */
  #arrange(): void {
    for (const slot of this.#slots) for (const run of slot.feeds) if (!this.#tapes.has(run)) slot.feeds.delete(run)
    for (const [run, tape] of this.#tapes) {
      if (tape.over || this.#slots.some((slot) => slot.feeds.has(run))) continue
      const slot = this.#slots.find((one) => one.feeds.size < FEEDS) ?? this.#another()
      if (!slot) break
      slot.feeds.add(run)
    }
    for (const slot of this.#slots) {
      const { phase, line, next } = slot.state
      const asked = new Set<Tape>()
      for (const { tape } of slot.lines.get(next || line)?.places.values() ?? []) if (!tape.over) asked.add(tape)
      const going = this.#going(slot)
      if (going.length === 0) this.#step(slot, { is: "stop" })
      else if (line === 0 && phase !== "waiting" && phase !== "asleep") this.#step(slot, { is: "start" })
      else if (line !== 0 && (asked.size !== going.length || going.some(([, tape]) => !asked.has(tape))))
        this.#step(slot, { is: "swap" })
    }
  }

  #another(): Slot | null {
    if (this.#slots.length >= LINES) return null
    const alarm = () => undefined
    const slot: Slot = { state: IDLE, link: "connecting", feeds: new Set(), lines: new Map(), due: null, alarm }
    this.#slots.push(slot)
    if (this.#env.hidden()) this.#step(slot, { is: "hidden" })
    return slot
  }

  /** The feeds of a connection of which there is more to come. */
  #going(slot: Slot): [string, Tape][] {
    const tapes = [...slot.feeds].map((run) => [run, this.#tapes.get(run)] as const)
    return tapes.filter((one): one is [string, Tape] => one[1]?.over === false)
  }

  #step(slot: Slot, signal: Signal): void {
    const at = this.#env.now()
    const before = slot.state
    const [state, orders] = step(before, { ...signal, at, random: this.#env.random() })
    slot.state = state
    for (const { is, line } of orders) {
      if (is === "open") this.#open(slot, line)
      else {
        slot.lines.get(line)?.close()
        slot.lines.delete(line)
      }
    }
    if (state.phase === "live" && (before.phase !== "live" || state.line !== before.line)) this.#begin(slot)
    this.#relink(slot)
    this.#arm(slot, at)
  }

  /** An alarm that is due early enough is left alone: bytes come often, and each one puts off the end of silence. */
  #arm(slot: Slot, at: number): void {
    if (slot.state.wake === null) return
    const due = Math.min(at + LOOK, slot.state.wake)
    if (slot.due !== null && slot.due <= due) return
    slot.alarm()
    slot.due = due
    slot.alarm = this.#env.after(Math.max(0, due - at), () => {
      slot.due = null
      this.#step(slot, { is: "tick" })
    })
  }

  #relink(slot: Slot): void {
    const { phase } = slot.state
    if (phase === "over" || phase === "refused" || phase === "idle") slot.link = "connecting"
    else if (phase === "live" || slot.link !== "connecting") this.#say(slot, phase === "live" ? "live" : "reconnecting")
  }

  #say(slot: Slot, link: Link): void {
    if (link === slot.link) return
    slot.link = link
    for (const [run] of this.#going(slot)) this.#tell(run, { is: "link", link })
  }

  #begin(slot: Slot): void {
    for (const [run, { tape, cursor, texts }] of slot.lines.get(slot.state.line)?.places ?? []) {
      tape.begin(cursor, texts)
      this.#tell(run, { is: "link", link: "live" })
    }
  }

  #open(slot: Slot, line: number): void {
    const places = new Map<string, Asked>()
    const going = this.#going(slot)
    const single = going.length === 1 ? (going[0]?.[0] ?? null) : null
    const url = this.#address(going, single, places)
    const runs = [...places.keys()]
    let heard = new Map<string, Frame[]>()
    const listener: Listener = {
      block: (block) => this.#hear(slot, line, block, single, heard),
      retry: (ms) => this.#step(slot, { is: "retry", line, ms }),
      bytes: (audible) => {
        this.#step(slot, { is: "bytes", line, audible })
        const frames = heard
        heard = new Map()
        if (slot.state.line === line) this.#pass(slot, places, frames)
      },
      status: (status, retryAfter, told) => this.#answered(slot, line, runs, status, retryAfter, told),
      closed: (doubt) => {
        const over = this.#going(slot).length === 0
        if (doubt && !over) for (const run of runs) this.#tell(run, { is: "check", problem: null })
        this.#step(slot, { is: "closed", line, over })
      },
    }
    slot.lines.set(line, { close: open(url, this.#transport, listener), places })
  }

  #hear(slot: Slot, line: number, block: Block, single: string | null, heard: Map<string, Frame[]>): void {
    const told = read(block, single)
    if (told === null) return
    if (told.run === null) this.#step(slot, { is: "draining", line, ms: told.retry })
    else {
      const frames = heard.get(told.run)
      if (frames) frames.push(told.frame)
      else heard.set(told.run, [told.frame])
    }
  }

  /** What came in one piece goes on in one piece. */
  #pass(slot: Slot, places: Line["places"], heard: Map<string, Frame[]>): void {
    let gap = false
    for (const [run, frames] of heard) {
      const tape = places.get(run)?.tape
      if (!tape || this.#tapes.get(run) !== tape) continue
      const batch = tape.push(frames)
      gap ||= tape.gap
      this.#tell(run, { is: "frames", ...batch })
      if (frames.some((frame) => frame.is === "refused")) this.#tapes.delete(run)
    }
    if (gap) this.#step(slot, { is: "reopen" })
  }

  #answered(
    slot: Slot,
    line: number,
    runs: string[],
    status: number,
    after: number | null,
    told: Problem | null,
  ): void {
    const final = status === 401 || status === 403 || status === 404
    const several = runs.length > 1
    // Of several feeds, the answer is about the first that cannot be served. Each finds out for itself.
    this.#step(slot, final && several ? { is: "closed", line } : { is: "status", line, status, retryAfter: after })
    if (!final && status !== 204) return
    for (const run of runs) {
      const tape = this.#tapes.get(run)
      if (tape && final && !several) tape.over = this.#tapes.delete(run)
      this.#tell(run, status === 204 ? { is: "gone" } : { is: "check", problem: several ? null : told })
    }
  }

  /** Where to ask, with the place of each and, as far as there is room, the texts that need not be sent again. */
  #address(going: readonly [string, Tape][], single: string | null, places: Map<string, Asked>): URL {
    const path = single === null ? "stream" : `runs/${encodeURIComponent(single)}/stream`
    const query: string[] = single === null ? [] : ["resync=inline"]
    const asked = going.map(([run, tape]) => {
      const cursor = tape.rewind === undefined ? tape.tip : tape.rewind
      const place = cursor === null ? "" : encodeURIComponent(cursor)
      if (single === null) query.push(`run=${encodeURIComponent(run)}${place && `@${place}`}`)
      else if (place) query.push(`cursor=${place}`)
      return { run, tape, cursor }
    })
    let length = query.join("&").length
    for (const { run, tape, cursor } of asked) {
      const texts = new Map<string, TextPart>()
      for (const [name, part] of tape.texts.whole()) {
        const more = `text=${single === null ? `run:${run}.` : ""}${name}:${part.end}`
        length += more.length + 1
        if (length > QUERY) break
        query.push(more)
        texts.set(name, part)
      }
      places.set(run, { tape, cursor, texts })
    }
    return new URL(`${path}?${query.join("&")}`, this.#base)
  }
}

/** The problem of a feed that a stream of several refuses. */
export function refusal(code: Problem["code"]): Problem {
  return code === "forbidden"
    ? problem(403, code, "This run may not be read.")
    : problem(404, code, "There is no such run.")
}
