import { commands } from "./commands"
import { browser, type Environment } from "./environment"
import { feedsLater, listLater } from "./later"
import { sender } from "./requests"
import type { Transport } from "./sse"
import { shelfIn } from "./storage"
import { type FollowedRun, followRun, type Surroundings } from "./store"
import type { Client, ClientOptions, RunStore } from "./types"

/** A run that nobody follows any more is kept this long: pages let go and ask again from one screen to the next. */
const LINGER = 1_000

/** A client of the server at `base`. Nothing is sent to it before the client is asked for something. */
export function createClient(options: ClientOptions = {}): Client {
  return createClientIn(browser(), options)
}

/** The same in another environment. */
export function createClientIn(env: Environment, options: ClientOptions): Client {
  const base = baseOf(options.base)
  const transport = transportOf(options)
  const send = sender(base, transport)
  const calls = commands(send, env)
  const shelf = shelfIn(options.storage === undefined ? env.storage : options.storage, base)
  // What a page sends by itself may be of another person in each tab.
  const own = options.headers ?? options.fetch
  const shared = (options.share ?? own === undefined) && env.locks !== null && env.channel !== null
  const around: Surroundings = {
    ...calls,
    env,
    shelf,
    shared,
    feeds: feedsLater(env, base, transport, shared),
  }
  const followed = new Map<string, { store: FollowedRun; users: number }>()

  function follow(run: string, glance: boolean): RunStore {
    const known = followed.get(run)
    const entry = known ?? { store: followRun(run, around, glance), users: 0 }
    if (!known) followed.set(run, entry)
    entry.users += 1
    if (!glance) entry.store.whole()
    return handle(entry.store, () => {
      entry.users -= 1
      env.after(LINGER, () => {
        if (entry.users > 0 || followed.get(run) !== entry) return
        followed.delete(run)
        entry.store.close()
      })
    })
  }

  return {
    ...calls,
    follow: (run) => follow(run, false),
    list: (filter = {}) => listLater(send, env, filter, (run) => follow(run, true)),
  }
}

/** What one of several has of a store. */
function handle(store: FollowedRun, leave: () => void): RunStore {
  const mine = new Set<() => void>()
  let closed = false
  return {
    ...store,
    subscribe(changed) {
      if (closed) return () => undefined
      const leaves = store.subscribe(changed)
      const end = () => {
        mine.delete(end)
        leaves()
      }
      mine.add(end)
      return end
    },
    close() {
      if (closed) return
      closed = true
      for (const end of mine) end()
      leave()
    },
  }
}

function baseOf(given: string | URL | undefined): URL {
  const page = globalThis.location?.href ?? "http://page.invalid/" // on a server, nothing is reached without an address
  const base = given === undefined ? new URL(".", page) : new URL(given, page)
  base.search = base.hash = ""
  if (!base.pathname.endsWith("/")) base.pathname += "/"
  return base
}

function transportOf({ headers, transport = "fetch", fetch: given }: ClientOptions): Transport {
  if (transport === "eventsource" && headers !== undefined)
    throw new TypeError("A native EventSource sends no headers.")
  return {
    kind: transport,
    fetch: given ?? ((input, init) => fetch(input, init)),
    headers: async () => new Headers(typeof headers === "function" ? await headers() : headers),
  }
}
