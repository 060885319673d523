/** What a client takes from the place where it runs. Tests bring their own. */
import type { SavedStates } from "./types"

export type PageSignal = "visible" | "hidden" | "online" | "offline" | "freeze" | "resume"

export interface Environment {
  /** Milliseconds of a clock that only goes forward. */
  now(): number
  /** In [0, 1). */
  random(): number
  /** Calls `then` once, after so many milliseconds. The answer prevents that. */
  after(ms: number, then: () => void): () => void
  /** What the page goes through. The answer ends that. */
  watch(heard: (signal: PageSignal) => void): () => void
  hidden(): boolean
  readonly locks: LockManager | null
  readonly channel: ((name: string) => BroadcastChannel) | null
  readonly storage: SavedStates | null
}

/** A machine that slept: the steady clock of some stands still meanwhile, and the one on the wall tells. */
const SLEPT = 5_000

export function browser(): Environment {
  let wall = Date.now()
  let steady = performance.now()
  let slept = 0
  return {
    now() {
      const extra = Date.now() - wall - (performance.now() - steady)
      if (extra > SLEPT) slept += extra
      wall = Date.now()
      steady = performance.now()
      return steady + slept
    },
    random: Math.random,
    after(ms, then) {
      const timer = setTimeout(then, ms)
      return () => clearTimeout(timer)
    },
    watch,
    hidden: () => globalThis.document?.visibilityState === "hidden",
    // Only pages come and go as tabs; a server process has nobody to share with.
    locks: (globalThis.document && globalThis.navigator?.locks) ?? null,
    channel: globalThis.BroadcastChannel ? (name) => new BroadcastChannel(name) : null,
    storage: storage(),
  }
}

function watch(heard: (signal: PageSignal) => void): () => void {
  const { window, document } = globalThis
  if (!window || !document) return () => undefined
  const seen = new AbortController()
  const on = (target: EventTarget, name: string, signal: (event: Event) => PageSignal | null) =>
    target.addEventListener(name, (event) => said(signal(event)), { signal: seen.signal })
  const said = (signal: PageSignal | null) => signal && heard(signal)
  on(document, "visibilitychange", () => (document.visibilityState === "hidden" ? "hidden" : "visible"))
  on(document, "freeze", () => "freeze")
  on(document, "resume", () => "resume")
  on(window, "pagehide", () => "freeze")
  on(window, "pageshow", (event) => ((event as PageTransitionEvent).persisted ? "resume" : null))
  on(window, "online", () => "online")
  on(window, "offline", () => "offline")
  return () => seen.abort()
}

function storage(): SavedStates | null {
  try {
    return globalThis.window?.sessionStorage ?? null // asking alone is refused where cookies are
  } catch {
    return null
  }
}
