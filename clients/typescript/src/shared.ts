import { createClient } from "./client"
import { Reducer } from "./reducer"
import type { Client, ClientOptions, RunStore, RunView } from "./types"

/** A client, and the options whose functions it calls now. */
export interface Kept {
  readonly client: Client
  now: ClientOptions
}

const byOptions = new WeakMap<ClientOptions, Kept>()
const byWords = new Map<string, Kept>()

/** What options say, as far as that can be compared: of a function, that there is one. */
export function wordsOf({ headers, fetch, storage, ...plain }: ClientOptions): string {
  const said = typeof headers === "object" ? [...new Headers(headers)] : typeof headers
  return JSON.stringify([plain, said, typeof fetch, storage === null || typeof storage])
}

/** One client for the same options, so that all parts of a page share what it knows. */
export function keep(given: ClientOptions): Kept {
  const { headers, fetch, storage } = given
  const words = typeof headers === "function" || fetch || storage ? null : wordsOf(given)
  const known = words === null ? byOptions.get(given) : byWords.get(words)
  if (known) return known
  const options = { ...given }
  if (typeof headers === "function") options.headers = () => (kept.now.headers as typeof headers)()
  if (fetch) options.fetch = (...asked) => (kept.now.fetch ?? fetch)(...asked)
  const kept: Kept = { now: given, client: createClient(options) }
  if (words === null) byOptions.set(given, kept)
  else byWords.set(words, kept)
  return kept
}

export const clientOf = (given: Client | ClientOptions): Client => ("follow" in given ? given : keep(given).client)

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
