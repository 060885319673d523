/** What was seen of a run, kept for the next load of the page: the state and its place together, or neither. */
import { isBootstrap } from "./frames"
import type { Reducer } from "./reducer"
import type { Bootstrap, SavedStates } from "./types"

/** Of what is kept. Anything of another version is as good as nothing. */
const VERSION = 1
const RUNS = 8
const EVENTS = 200
/** Characters of one run at most. Then text goes first, since a server sends it again, and then the run itself. */
const LIMIT = 256 << 10

export interface Shelf {
  load(run: string): Bootstrap | null
  save(state: Reducer): void
  remove(run: string): void
}

export function shelfIn(storage: SavedStates | null, base: URL): Shelf {
  const index = `playhead ${base.href}`
  const keyOf = (run: string) => `${index} ${run}`

  /** What cannot be read was not kept. */
  function read(key: string): unknown {
    try {
      return JSON.parse(storage?.getItem(key) ?? "")
    } catch {
      return null
    }
  }

  function remove(run: string): void {
    try {
      storage?.removeItem(keyOf(run))
    } catch {
      // what cannot be reached cannot be shown either
    }
  }

  return {
    remove,
    load(run) {
      const { version, screen } = (read(keyOf(run)) ?? {}) as Record<string, unknown>
      return version === VERSION && isBootstrap(screen, run) ? screen : null
    },
    save(state) {
      const { id } = state
      const screen = state.screen(EVENTS)
      if (!screen || !storage) return
      const form = (less: Partial<Bootstrap>) => JSON.stringify({ version: VERSION, screen: { ...screen, ...less } })
      try {
        const whole = form({})
        const kept = whole.length > LIMIT ? form({ text: [] }) : whole
        if (kept.length > LIMIT) return remove(id)
        storage.setItem(keyOf(id), kept)
        // Those that were saved last; those before them are let go.
        const known = read(index)
        const others = Array.isArray(known) ? known.filter((one) => typeof one === "string" && one !== id) : []
        if (others.length >= RUNS) remove(others.shift())
        storage.setItem(index, JSON.stringify([...others.slice(1 - RUNS), id]))
      } catch {
        remove(id) // no room: better nothing than something old
      }
    },
  }
}
