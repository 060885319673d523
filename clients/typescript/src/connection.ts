/** When to connect, to hang up, to wait: a machine without timers and without I/O. Signals in, orders out. */
import { delay, LONGEST } from "./pause"

/** A server says something at least this often. */
export const KEEP_ALIVE = 15_000
/** Silence after which a connection is taken for dead. */
export const SILENCE = 2.5 * KEEP_ALIVE
/** A connection that lived this long was a good one: the next failure is the first in a row. */
const GOOD = 10_000

/**
 * `idle`: nobody asked. `opening`: no byte yet. `live`. `waiting`: for the next try. `asleep`: the page is frozen.
 * `refused`: by status 401, 403 or 404. `over`: nothing will follow. The last two leave only by `start`.
 */
export type Phase = "idle" | "opening" | "live" | "waiting" | "asleep" | "refused" | "over"

export interface State {
  readonly phase: Phase
  /** The number of the connection that counts; 0: none. */
  readonly line: number
  /** The one that is to take its place, while both are open; 0: none. */
  readonly next: number
  /** The highest number given so far. */
  readonly last: number
  /** Failures in a row. */
  readonly tries: number
  /** What the server told last to wait between two tries. */
  readonly retry: number | null
  /** The server told not to come back before. */
  readonly notBefore: number
  /** Since when `line` is live. */
  readonly since: number
  /** The last byte. */
  readonly heard: number
  /** Whether silence can be heard: a native EventSource hides keep-alives. */
  readonly audible: boolean
  /** Since when nobody looks; null: somebody does. */
  readonly hidden: number | null
  readonly offline: boolean
  /** Since when `next` is opening. */
  readonly trying: number
  /** A change of line is wanted, from then on. */
  readonly swapAt: number | null
  /** When to send `tick`; null: never. */
  readonly wake: number | null
}

export type Signal =
  /** Connect, whatever was before. `hidden`: nobody looks. */
  | { readonly is: "start" }
  | { readonly is: "stop" }
  /** What is asked for has changed: open a new connection before the old one is closed. */
  | { readonly is: "swap" }
  /** Hang up and come back, after a wait: what was sent made no sense. */
  | { readonly is: "reopen" }
  | { readonly is: "bytes"; readonly line: number; readonly audible?: boolean }
  /** The stream told how long to wait between two tries, or to go and not to be back before. */
  | { readonly is: "retry" | "draining"; readonly line: number; readonly ms: number }
  | { readonly is: "closed"; readonly line: number; readonly over?: boolean }
  /** An answer that is no stream. */
  | { readonly is: "status"; readonly line: number; readonly status: number; readonly retryAfter: number | null }
  | { readonly is: "tick" | "visible" | "hidden" | "online" | "offline" | "freeze" | "resume" }

/** `at` is any steady clock in milliseconds; `random` is in [0, 1). */
export type Timed = Signal & { readonly at: number; readonly random: number }

export interface Order {
  readonly is: "open" | "close"
  readonly line: number
}

export const IDLE: State = {
  phase: "idle",
  line: 0,
  next: 0,
  last: 0,
  tries: 0,
  retry: null,
  notBefore: 0,
  since: 0,
  heard: 0,
  audible: true,
  hidden: null,
  offline: false,
  trying: 0,
  swapAt: null,
  wake: null,
}

/** The next state, and which connections to open and to close. */
export function step(state: State, signal: Timed): [State, Order[]] {
  const after = timed(react(state, signal), signal)
  const before = [state.line, state.next]
  const now = [after.line, after.next]
  const orders = (is: Order["is"], lines: number[], others: number[]) =>
    lines.filter((line) => line && !others.includes(line)).map((line) => ({ is, line }))
  return [after, [...orders("open", now, before), ...orders("close", before, now)]]
}

const isOurs = (state: State, line: number): boolean => line !== 0 && (line === state.line || line === state.next)

/** Without any connection. */
const off = (state: State, phase: Phase): State => ({ ...state, phase, line: 0, next: 0, swapAt: null })

function react(state: State, signal: Timed): State {
  const { at } = signal
  const { phase, line } = state
  // What a connection says that does not count any more is not heard.
  if ("line" in signal && !isOurs(state, signal.line)) return state
  switch (signal.is) {
    case "start":
      return line || phase === "waiting" ? state : open(state, at)
    case "stop":
      return off(state, "idle")
    case "swap":
      return phase === "live" ? swap(state, at) : phase === "opening" ? open(state, at) : state
    case "reopen":
      return line ? fail(state, signal) : state
    case "bytes":
      return heard(state, at, signal.line, signal.audible ?? state.audible)
    case "retry":
      return { ...state, retry: Math.min(LONGEST, signal.ms) }
    case "draining":
      return away(state, signal, signal.line, signal.ms)
    case "closed":
      return signal.over && signal.line === line ? off(state, "over") : lose(state, signal, signal.line)
    case "status":
      if (isRefusal(signal.status)) return off(state, "refused")
      return signal.status === 204 ? off(state, "over") : away(state, signal, signal.line, signal.retryAfter)
    case "hidden":
      return { ...state, hidden: state.hidden ?? at }
    case "freeze":
      return line || phase === "waiting" ? off(state, "asleep") : state
    case "offline":
      return { ...state, offline: true }
    case "visible":
    case "online":
    case "resume":
      return wake(signal.is === "online" ? { ...state, offline: false } : { ...state, hidden: null }, state.hidden, at)
    case "tick":
      return tick(state, signal)
  }
}

/** Statuses that say: not you, not here, and not later either. */
export const isRefusal = (status: number): boolean => [401, 403, 404].includes(status)

function open(state: State, at: number): State {
  const line = state.last + 1
  return { ...off(state, "opening"), line, last: line, heard: at }
}

function swap(state: State, at: number): State {
  const next = state.last + 1
  return { ...state, next, last: next, trying: at, swapAt: null }
}

function heard(state: State, at: number, line: number, audible: boolean): State {
  const again = state.phase === "live" && line === state.line
  const next = line === state.next ? 0 : state.next
  return { ...state, phase: "live", line, next, since: again ? state.since : at, heard: at, audible }
}

/** One of the connections is gone. */
function lose(state: State, signal: Timed, line: number): State {
  if (line === state.next) return { ...state, next: 0, tries: state.tries + 1, swapAt: again(state, signal) }
  if (state.next) return { ...state, phase: "opening", line: state.next, next: 0, heard: state.trying }
  return fail(state, signal)
}

function fail(state: State, signal: Timed): State {
  const good = state.phase === "live" && signal.at - state.since >= GOOD
  const counted = good ? { ...state, tries: 0 } : state
  return { ...off(counted, "waiting"), tries: counted.tries + 1, wake: again(counted, signal) }
}

/** When to try again. */
function again(state: State, { at, random }: Timed): number {
  const told = Math.max(state.retry ?? 0, state.notBefore - at) || null
  return at + delay(state.offline ? 16 : state.tries, random, told)
}

/** The server does not want this client before so long. */
function away(state: State, signal: Timed, line: number, ms: number | null): State {
  return lose(ms === null ? state : { ...state, notBefore: signal.at + Math.min(LONGEST, ms) }, signal, line)
}

/** Somebody looks again, or the network is back: what was live before is not believed any more. */
function wake(state: State, hidden: number | null, at: number): State {
  if (state.phase === "asleep") return open(state, at)
  if (state.phase === "waiting") return at < state.notBefore ? { ...state, wake: state.notBefore } : open(state, at)
  if (state.phase !== "live") return state
  if (state.audible && at - state.heard > KEEP_ALIVE) return open(state, at)
  return hidden !== null && at - hidden > KEEP_ALIVE && !state.next ? swap(state, at) : state
}

function tick(state: State, signal: Timed): State {
  const { at } = signal
  if (state.phase === "waiting") return state.wake !== null && at >= state.wake ? open(state, at) : state
  if (!state.line) return state
  if ((state.audible || state.phase === "opening") && at - state.heard >= SILENCE) return fail(state, signal)
  if (state.next) return at - state.trying >= SILENCE ? lose(state, signal, state.next) : state
  return state.swapAt !== null && at >= state.swapAt ? swap(state, at) : state
}

/** Put the alarm where it belongs. */
function timed(state: State, { at }: Timed): State {
  if (state.phase === "waiting") return state
  const silence = state.line && (state.audible || state.phase === "opening") ? state.heard + SILENCE : Infinity
  const change = state.next ? state.trying + SILENCE : (state.swapAt ?? Infinity)
  const due = Math.max(at, Math.min(silence, change))
  return { ...state, wake: due === Infinity ? null : due }
}
