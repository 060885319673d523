/** Parts that only some pages need, loaded when they are asked for. */
import { delay } from "./connection"
import type { Environment } from "./environment"
import type { Feeds, Lines } from "./lines"
import { unreachable } from "./problem"
import type { Send } from "./requests"
import { call, listen } from "./store"
import type { RunStore, RunsFilter, RunsStore, RunsView } from "./types"

/** What is not there by then is done without. */
const PATIENCE = 5_000

/** One connection for all tabs; where the part that shares cannot be had, one for this tab. */
export async function together(env: Environment, name: string, connect: () => Lines): Promise<Feeds> {
  const late = new Promise<null>((done) => env.after(PATIENCE, () => done(null)))
  const part = await Promise.race([import("./share"), late]).catch(() => null)
  return part ? new part.Together(env, name, connect) : connect()
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
