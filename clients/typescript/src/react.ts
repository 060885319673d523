"use client"

/**
 * Runs in React.
 *
 *     const { view } = useRun(client, id)
 *     return <progress value={view.snapshot?.progress ?? 0} max={100} />
 */
import { useEffect, useMemo, useRef, useSyncExternalStore } from "react"
import { type Kept, keep, lazily, wordsOf } from "./shared"
import type { Client, ClientOptions, RunStore, RunsFilter, RunsStore, RunsView, RunView } from "./types"

/** One client for what the options say, also where they are written anew in each render. Their functions are the newest. */
function useClient(given: Client | ClientOptions): Client {
  const words = "follow" in given ? given : wordsOf(given)
  const last = useRef<{ words: unknown; kept: Kept } | null>(null)
  if (last.current?.words !== words)
    last.current = { words, kept: "follow" in given ? { client: given, now: {} } : keep(given) }
  const { kept } = last.current
  useEffect(() => {
    if (!("follow" in given)) kept.now = given
  })
  return kept.client
}

/** Follow a run as long as the component is there. `store` is for `older`, `refresh` and `useText`. */
export function useRun(client: Client | ClientOptions, id: string): { view: RunView; store: RunStore } {
  const own = useClient(client)
  const store = useMemo(() => lazily(own, id), [own, id])
  return { view: useSyncExternalStore(store.subscribe, store.get, store.get), store }
}

const EMPTY: RunsView = { runs: [], next: null, interrupts: [], loading: true, problem: null }

/** The runs that match, live. */
export function useRuns(
  client: Client | ClientOptions,
  filter: RunsFilter = {},
): { view: RunsView; more: () => Promise<void> } {
  const own = useClient(client)
  const words = JSON.stringify(filter)
  const list = useMemo(() => {
    let store: RunsStore | null = null
    const get = () => store?.get() ?? EMPTY
    const subscribe = (changed: () => void) => {
      const opened = own.list(JSON.parse(words) as RunsFilter)
      store = opened
      opened.subscribe(changed)
      return () => {
        opened.close()
        if (store === opened) store = null
      }
    }
    return { get, subscribe, more: async () => store?.more() }
  }, [own, words])
  return { view: useSyncExternalStore(list.subscribe, list.get, () => EMPTY), more: list.more }
}

/** What one part of a run's text says so far; of several attempts, the latest. A component that shows only this is spared all else. */
export function useText(store: RunStore, part: string): string {
  const get = () => store.get().text.findLast((one) => one.part === part)?.text ?? ""
  return useSyncExternalStore(store.subscribe, get, get)
}
