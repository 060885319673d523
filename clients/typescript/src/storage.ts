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

export class Shelf {
  readonly #storage: SavedStates | null
  readonly #prefix: string

  constructor(storage: SavedStates | null, base: URL) {
    this.#storage = storage
    this.#prefix = `playhead ${base.href}`
  }

  load(run: string): Bootstrap | null {
    try {
      const { version, screen } = JSON.parse(this.#storage?.getItem(`${this.#prefix} ${run}`) ?? "")
      return version === VERSION && isBootstrap(screen, run) ? screen : null
    } catch {
      return null
    }
  }

  save(state: Reducer): void {
    const screen = state.screen(EVENTS)
    if (!screen || !this.#storage) return
    try {
      const whole = JSON.stringify({ version: VERSION, screen })
      const less = whole.length > LIMIT ? JSON.stringify({ version: VERSION, screen: { ...screen, text: [] } }) : whole
      if (less.length > LIMIT) return this.remove(state.id)
      this.#storage.setItem(`${this.#prefix} ${state.id}`, less)
      this.#remember(state.id)
    } catch {
      this.remove(state.id) // no room: better nothing than something old
    }
  }

  remove(run: string): void {
    try {
      this.#storage?.removeItem(`${this.#prefix} ${run}`)
    } catch {
      // what cannot be reached cannot be shown either
    }
  }

  /** The runs that were saved last; those before them are let go. */
  #remember(run: string): void {
    let known: unknown = null
    try {
      known = JSON.parse(this.#storage?.getItem(this.#prefix) ?? "")
    } catch {
      // as if nothing was kept
    }
    const others = Array.isArray(known) ? known.filter((one) => typeof one === "string" && one !== run) : []
    if (others.length >= RUNS) this.remove(others.shift())
    this.#storage?.setItem(this.#prefix, JSON.stringify([...others.slice(1 - RUNS), run]))
  }
}
