/** Parts that a first screen does not need, and those that only some pages need, loaded when they are asked for. */
import type { Environment } from "./environment"
import type { Feeds } from "./lines"
import { delay } from "./pause"
import { unreachable } from "./problem"
import type { Send } from "./requests"
import type { Transport } from "./sse"
import { call, listen } from "./store"
import type { RunStore, RunsFilter, RunsStore, RunsView } from "./types"

/** What is not there by then is done without, or asked for again. */
const PATIENCE = 5_000

/**
 * Who brings what is followed: one connection for all tabs or, where sharing is not wanted or its part cannot be had, one
 * for this tab. What follows comes beside whatever the page does first. Rejects while it cannot be had.
 */
export function feedsLater(env: Environment, base: URL, transport: Transport, share: boolean): () => Promise<Feeds> {
  const follow = once(() => import("./lines"))
  follow().catch(() => {})

  async function connect(): Promise<Feeds> {
    const late = new Promise<null>((done) => env.after(PATIENCE, () => done(null)))
    const sharing = share && Promise.race([import("./share"), late]).catch(() => null)
    const following = await Promise.race([follow(), late])
    if (!following) throw new TypeError()
    const lines = () => new following.Lines(base, transport, env)
    const shared = await sharing
    return shared ? new shared.Together(env, `playhead 2 ${base.href}`, lines) : lines()
  }

  return once(connect)
}

/** What this makes is made once, as soon as that is possible. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | null = null
  return () => {
    made ??= make().catch((error) => {
      made = null
      throw error
    })
    return made
  }
}

/** A list that is empty until the part for lists has come. It is asked for until then. */
export function listLater(
  send: Send,
  env: Environment,
  filter: RunsFilter,
  follow: (run: string) => RunStore,
): RunsStore {
  const changed = new Set<() => void>()
  let view: RunsView = { runs: [], next: null, interrupts: [], loading: true, problem: null }
  let list: RunsStore | null = null
  let closed = false

  async function load(tries: number): Promise<void> {
    try {
      const { FollowedRuns } = await import("./list")
      if (closed) return
      list = new FollowedRuns(send, env, filter, follow)
      list.subscribe(() => call(changed))
    } catch {
      view = { ...view, loading: false, problem: unreachable("Not all of this page is here.") }
      env.after(delay(tries, env.random()), () => closed || load(tries + 1))
    }
    call(changed)
  }

  void load(0)
  return {
    get: () => list?.get() ?? view,
    subscribe: (one) => listen(changed, one),
    more: async () => list?.more(),
    close() {
      closed = true
      changed.clear()
      list?.close()
    },
  }
}
