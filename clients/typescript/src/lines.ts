/** The connections of one tab, or of one browser: which runs they carry, and who hears what they say. */
import { IDLE, isRefusal, type Signal, type State, step } from "./connection"
import type { Environment } from "./environment"
import { FEEDS, type Frame } from "./frames"
import { read } from "./read"
import type { Link } from "./reducer"
import { type Listener, open, type Transport } from "./sse"
import type { Texts } from "./texts"
import type { Problem, TextPart } from "./types"

/** What one who follows a run is told. */
export type Said =
  | { readonly is: "frames"; readonly frames: readonly Frame[] }
  | { readonly is: "link"; readonly link: Link }
  /** Look whether the run is still there for you. `problem`: it is not. */
  | { readonly is: "check"; readonly problem: Problem | null }
  /** Nothing follows at this place: read what there is. */
  | { readonly is: "gone" }

/** One who follows a run. */
export interface Feed {
  /** Where a new connection goes on, and what of the texts it need not send again. */
  readonly cursor: string | null
  readonly texts: Texts
  /** A connection begins to speak that was asked for this. */
  begin(texts: ReadonlyMap<string, TextPart>, cursor: string | null): void
  hear(said: Said): void
}

/** Who brings what is followed: connections of this tab, or of another one. */
export interface Feeds {
  /** Begin to follow; at most one does, for each run. */
  join(run: string, feed: Feed): void
  /** Something is missing at the place of this run. */
  again(run: string): void
  leave(run: string): void
}

/** Connections at most. Runs beyond what they carry wait until there is room. */
export const LINES = 3
/** Changes are collected for this long, so that a list of runs makes one connection. */
const COLLECT = 40
/** A machine that slept is found out this soon. */
const LOOK = 5_000
/** A query may have 4,096 bytes. */
const QUERY = 3_800

/** A connection and what it is for. */
interface Slot {
  state: State
  /** It is to carry other runs than those that were asked for when it was opened. */
  changed: boolean
  readonly lines: Map<number, Line>
  alarm: () => void
}

/** Each joining is another one: what an old request brings is not heard by a new one. */
interface Joined {
  readonly run: string
  readonly feed: Feed
  /** Null: it waits for room. */
  slot: Slot | null
  /** Nothing more comes. */
  over: boolean
}

/** What a connection was asked for. */
interface Asked {
  readonly joined: Joined
  readonly cursor: string | null
  readonly texts: Map<string, TextPart>
  /** What came and was not handed on yet. */
  readonly frames: Frame[]
}

interface Line {
  readonly close: () => void
  readonly asked: ReadonlyMap<string, Asked>
}

export class Lines implements Feeds {
  readonly #base: URL
  readonly #transport: Transport
  readonly #env: Environment
  readonly #joined = new Map<string, Joined>()
  readonly #slots: Slot[] = []
  readonly #unwatch: () => void
  #pending: (() => void) | null = null

  constructor(base: URL, transport: Transport, env: Environment) {
    this.#base = base
    this.#transport = transport
    this.#env = env
    this.#unwatch = env.watch((is) => this.#all({ is }))
  }

  join(run: string, feed: Feed): void {
    this.#joined.set(run, { run, feed, slot: null, over: false })
    this.#soon()
  }

  /** Hang up and come back, after a wait. */
  again(run: string): void {
    this.#signal(run, { is: "reopen" })
  }

  /** Open another connection from where the feed is now, and let this one go when that one speaks. */
  swap(run: string): void {
    this.#signal(run, { is: "swap" })
  }

  leave(run: string): void {
    const { slot, over } = this.#joined.get(run) ?? {}
    if (slot && !over) slot.changed = true
    if (this.#joined.delete(run)) this.#soon()
  }

  stop(): void {
    this.#joined.clear()
    this.#unwatch()
    this.#pending?.()
    this.#all({ is: "stop" })
  }

  #all(signal: Signal): void {
    for (const slot of this.#slots) this.#step(slot, signal)
  }

  #signal(run: string, signal: Signal): void {
    const slot = this.#joined.get(run)?.slot
    if (slot) this.#step(slot, signal)
  }

  #soon(): void {
    this.#pending ??= this.#env.after(COLLECT, () => {
      this.#pending = null
      this.#arrange()
    })
  }

  /** Give each run a connection, and each connection its runs. */
  #arrange(): void {
    for (const joined of this.#joined.values()) {
      if (joined.over || joined.slot) continue
      joined.slot = this.#slots.find((slot) => this.#going(slot).length < FEEDS) ?? this.#another()
      if (joined.slot) joined.slot.changed = true
    }
    for (const slot of this.#slots) {
      const { phase, line } = slot.state
      if (this.#going(slot).length === 0) this.#step(slot, { is: "stop" })
      else if (slot.changed && phase !== "asleep") this.#step(slot, { is: line ? "swap" : "start" })
    }
  }

  #another(): Slot | null {
    if (this.#slots.length >= LINES) return null
    const slot: Slot = { state: IDLE, changed: false, lines: new Map(), alarm() {} }
    this.#slots.push(slot)
    if (this.#env.hidden()) this.#step(slot, { is: "hidden" })
    return slot
  }

  /** The runs of a connection of which there is more to come. */
  #going(slot: Slot): Joined[] {
    return [...this.#joined.values()].filter((joined) => joined.slot === slot && !joined.over)
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
    else if (before.phase === "live" && ["opening", "waiting", "asleep"].includes(state.phase))
      for (const { feed } of this.#going(slot)) feed.hear({ is: "link", link: "reconnecting" })
    this.#arm(slot, at)
  }

  #arm(slot: Slot, at: number): void {
    slot.alarm()
    if (slot.state.wake === null) return
    slot.alarm = this.#env.after(Math.min(LOOK, Math.max(0, slot.state.wake - at)), () =>
      this.#step(slot, { is: "tick" }),
    )
  }

  #begin(slot: Slot): void {
    for (const { joined, cursor, texts } of slot.lines.get(slot.state.line)?.asked.values() ?? []) {
      joined.feed.begin(texts, cursor)
      joined.feed.hear({ is: "link", link: "live" })
    }
  }

  #open(slot: Slot, line: number): void {
    const going = this.#going(slot)
    const single = going.length === 1 ? (going[0]?.run ?? null) : null
    const asked = new Map<string, Asked>()
    slot.changed = false
    const url = this.#address(going, single, asked)
    const tell = (said: Said) => {
      for (const { feed } of going) feed.hear(said)
    }
    const listener: Listener = {
      retry: (ms) => this.#step(slot, { is: "retry", line, ms }),
      block: (block) => {
        const told = read(block, single)
        if (told?.run === null) this.#step(slot, { is: "draining", line, ms: told.retry })
        else if (told) asked.get(told.run)?.frames.push(told.frame)
      },
      bytes: (audible) => {
        this.#step(slot, { is: "bytes", line, audible })
        for (const one of asked.values()) this.#pass(one)
      },
      status: (status, retryAfter, told) => {
        const final = isRefusal(status)
        // Of several runs, the answer is about the first that cannot be served, unless nobody is let in.
        // Each finds out for itself.
        const shared = final && single === null && status !== 401
        this.#step(slot, shared ? { is: "closed", line } : { is: "status", line, status, retryAfter })
        if (final) tell({ is: "check", problem: shared ? null : told })
        else if (status === 204) tell({ is: "gone" })
      },
      closed: (doubt) => {
        const over = this.#going(slot).length === 0
        if (doubt && !over) tell({ is: "check", problem: null })
        this.#step(slot, { is: "closed", line, over })
      },
    }
    slot.lines.set(line, { close: open(url, this.#transport, listener), asked })
  }

  /** What came in one piece goes on in one piece. */
  #pass({ joined, frames: heard }: Asked): void {
    const frames = heard.splice(0)
    if (frames.length === 0 || this.#joined.get(joined.run) !== joined) return
    joined.over ||= frames.some(({ is }) => is === "end" || is === "refused")
    joined.feed.hear({ is: "frames", frames })
  }

  /** Where to ask, with the place of each and, as far as there is room, the texts that need not be sent again. */
  #address(going: readonly Joined[], single: string | null, asked: Map<string, Asked>): URL {
    const path = single === null ? "stream" : `runs/${encodeURIComponent(single)}/stream`
    const query: string[] = single === null ? [] : ["resync=inline"]
    for (const joined of going) {
      const { run, feed } = joined
      const { cursor } = feed
      asked.set(run, { joined, cursor, texts: new Map(), frames: [] })
      const place = cursor && encodeURIComponent(cursor)
      if (single === null) query.push(`run=${encodeURIComponent(run)}${place ? `@${place}` : ""}`)
      else if (place) query.push(`cursor=${place}`)
    }
    let length = query.join("&").length
    for (const [run, { joined, texts }] of asked)
      for (const [name, part] of joined.feed.texts.whole()) {
        const more = `text=${single === null ? `run:${run}.` : ""}${name}:${part.end}`
        length += more.length + 1
        if (length > QUERY) break
        query.push(more)
        texts.set(name, part)
      }
    return new URL(`${path}?${query.join("&")}`, this.#base)
  }
}
