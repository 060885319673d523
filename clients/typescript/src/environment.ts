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

export function browser(): Environment {
  let wall = Date.now()
  let passed = 0
  return {
    // The steady clock of some machines stands still while they sleep; the one on the wall may be put back.
    now() {
      const before = wall
      wall = Date.now()
      passed += Math.max(0, wall - before)
      return passed
    },
    random: Math.random,
    after(ms, then) {
      const timer = setTimeout(then, ms)
      return () => clearTimeout(timer)
    },
    watch,
    hidden: () => globalThis.document?.hidden ?? false,
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
  const tell = ({ type, persisted }: Event & { persisted?: boolean }) => {
    if (type === "visibilitychange") heard(document.hidden ? "hidden" : "visible")
    else if (type === "pagehide") heard("freeze")
    else if (type !== "pageshow") heard(type as PageSignal)
    else if (persisted) heard("resume")
  }
  const listen = (target: EventTarget, names: string[]) => {
    for (const name of names) target.addEventListener(name, tell, { signal: seen.signal })
  }
  listen(document, ["visibilitychange", "freeze", "resume"])
  listen(window, ["pagehide", "pageshow", "online", "offline"])
  return () => seen.abort()
}

function storage(): SavedStates | null {
  try {
    return globalThis.window?.sessionStorage ?? null // asking alone is refused where cookies are
  } catch {
    return null
  }
}
