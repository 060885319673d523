import { createClient } from "./client"
import { Reducer } from "./reducer"
import type { Client, ClientOptions, RunStore, RunView } from "./types"

const byOptions = new WeakMap<ClientOptions, Client>()
const byWords = new Map<string, Client>()

/** One client for the same options, so that all parts of a page share what it knows. */
export function clientOf(given: Client | ClientOptions): Client {
  if ("follow" in given) return given
  const { headers, fetch, storage, ...words } = given
  const plain = headers === undefined && fetch === undefined && storage === undefined
  const key = plain ? JSON.stringify(words) : null
  const known = key === null ? byOptions.get(given) : byWords.get(key)
  if (known) return known
  const client = createClient(given)
  if (key === null) byOptions.set(given, client)
  else byWords.set(key, client)
  return client
}

/** What is shown of a run of which nothing is known yet. */
export const nothingOf = (run: string): RunView => new Reducer(run).view()

/** A store that is opened by the first who subscribes, and closed by the last who does not any more. */
export function lazily(client: Client, run: string): RunStore {
  const nothing = nothingOf(run)
  let store: RunStore | null = null
  let users = 0
  const opened = () => {
    if (!store) throw new Error("Nobody follows this run.")
    return store
  }
  return {
    id: run,
    get: () => store?.get() ?? nothing,
    subscribe(changed) {
      store ??= client.follow(run)
      users += 1
      const end = store.subscribe(changed)
      let subscribed = true
      return () => {
        if (!subscribed) return
        subscribed = false
        end()
        users -= 1
        if (users > 0) return
        store?.close()
        store = null
      }
    },
    older: async () => opened().older(),
    refresh: async () => opened().refresh(),
    close: () => store?.close(),
  }
}
