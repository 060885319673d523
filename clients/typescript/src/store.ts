/** One run, kept up to date: read everything, follow from there, and come back as often as it takes. */

import type { Environment } from "./environment"
import { type Frame, isBootstrap } from "./frames"
import type { Feed, Feeds, Said } from "./lines"
import { delay } from "./pause"
import { isForGood, type ProblemError, refusal } from "./problem"
import { Reducer } from "./reducer"
import type { Shelf } from "./storage"
import type { Bootstrap, EventsPage, Problem, RunStore, RunView } from "./types"

/** What a change costs on the shelf is paid this seldom. */
const SAVE = 2_000
/** For a line of a list the newest event is enough; the others are read when somebody looks. */
const GLANCE = 1
const EVENTS = 50
/** Fresh starts in a row, without an event between them, that are made at once. */
const RESTARTS = 3

export interface Surroundings {
  bootstrap(run: string, limit: number): Promise<Bootstrap>
  earlier(run: string, before: string | null, limit: number): Promise<EventsPage>
  /** Who brings what is followed. It may take a while to be there; rejects while it cannot be had. */
  feeds(): Promise<Feeds>
  /** It may be another tab, which is let in while this one is not. */
  readonly shared: boolean
  readonly env: Environment
  readonly shelf: Shelf
}

export interface FollowedRun extends RunStore {
  /** Somebody looks at the whole run, and not only at a line of it. */
  whole(): void
}

export function followRun(id: string, around: Surroundings, glance: boolean): FollowedRun {
  const { env, shelf } = around
  let known = new Reducer(id)
  const changed = new Set<() => void>()
  let view: RunView | null = null
  let line = glance
  let closed = false
  let feeds: Feeds | null = null
  let following = false
  let seen = false // live
  let tries = 0
  let restarts = 0
  let turn = 0
  let paging: Promise<void> | null = null
  let hurry = () => {}
  let saving: (() => void) | null = null

  const feed: Feed = {
    get cursor() {
      return known.cursor
    },
    get texts() {
      return known.texts
    },
    begin: (texts) => known.texts.begin(texts),
    hear,
  }

  function hear(said: Said): void {
    if (!following) return
    if (said.is === "link") {
      seen ||= said.link === "live"
      if (said.link === "live") known.opened()
      known.link = said.link === "connecting" && seen ? "reconnecting" : said.link
    } else if (said.is === "frames") {
      tries = 0
      take(said.frames)
    } else if (said.is === "check" && said.problem) refuse(said.problem)
    else {
      if (said.is === "gone") {
        known.nothing()
        leave()
      }
      void load()
    }
    tell()
  }

  function take(frames: readonly Frame[]): void {
    for (const frame of frames) {
      if (frame.is === "refused") return refuse(refusal(frame.code))
      known.frame(frame)
      if (frame.is === "event") restarts = 0
    }
    const stopped = frames.some((frame) => frame.is === "resync" && frame.bootstrap === null)
    if (stopped || (known.over && !known.settled)) {
      if (stopped) known.link = "resyncing"
      leave()
      // A server that only tells to start anew is not asked in a tight loop.
      restarts = stopped ? restarts + 1 : 0
      return void load(restarts > RESTARTS ? delay(restarts, env.random()) : 0)
    }
    if (known.finished) leave()
    if (known.reopen) feeds?.again(id)
    known.reopen = false
    if (known.curious) void load()
  }

  function join(): void {
    if (following || closed) return
    following = true
    // Whoever asked for this store has it before anything is heard.
    void around.feeds().then(
      (there) => {
        if (!following || feeds) return
        hear({ is: "link", link: "connecting" })
        feeds = there
        feeds.join(id, feed)
      },
      () => {
        // Until somebody can follow, it is read now and then.
        if (!following) return
        following = false
        void load(delay(tries++, env.random()))
      },
    )
  }

  function leave(): void {
    following = false
    feeds?.leave(id)
    feeds = null
  }

  /** Read the whole, however often it has to be asked for, and follow from there. The last who asks is answered. */
  async function load(wait = 0): Promise<void> {
    const mine = ++turn
    const limit = line ? GLANCE : EVENTS
    known.curious = false
    let told = 0
    for (let pause = wait; ; ) {
      if (pause > 0) await sleep(pause, told)
      if (mine !== turn) return
      try {
        const { era } = known
        const screen = await around.bootstrap(id, limit)
        if (mine !== turn) return
        begin(screen, era)
        if (limit === GLANCE && !line) older().catch(() => {})
        return
      } catch (caught) {
        const error = caught as ProblemError
        if (mine !== turn || failed(error)) return
        told = error.retryAfter ?? 0
        pause = delay(tries++, env.random(), error.retryAfter)
        if (!following && known.link === "live") known.link = "reconnecting"
        tell()
      }
    }
  }

  function begin(screen: Bootstrap, era: number): void {
    if (!isBootstrap(screen, id)) throw new TypeError("no bootstrap")
    turn += 1 // whoever else is asking need not
    known.bootstrap(screen, era)
    if (known.settled && known.finished) leave()
    else {
      if (!known.over && !known.problem) join()
      // The record has not told yet, or the hot view that the stream reads could not be read for this.
      if (known.over || (screen.degraded && !known.lost)) void load(delay(tries++, env.random()))
    }
    tell()
  }

  /** Whether it is no use to ask again. */
  function failed(error: ProblemError): boolean {
    const final = isForGood(error)
    if (final) refuse(error.problem)
    return final
  }

  /** Nothing is known any more but why. */
  function refuse(problem: Problem): void {
    turn += 1
    known = new Reducer(id)
    known.problem = problem
    shelf.remove(id)
    leave()
    tell()
  }

  /** Cut short when somebody looks again, or the network is back; but not to less than the server told. */
  function sleep(ms: number, told: number): Promise<void> {
    return new Promise((done) => {
      const least = env.now() + told
      let cancel = env.after(ms, done)
      hurry = () => {
        cancel()
        cancel = env.after(closed ? 0 : Math.max(0, least - env.now()), done)
      }
    })
  }

  function older(): Promise<void> {
    paging ??= page().finally(() => {
      paging = null
    })
    return paging
  }

  async function page(): Promise<void> {
    const { timeline, events } = get()
    if (!timeline.has_older && events.length > 0) return
    known.older(await around.earlier(id, timeline.oldest, EVENTS))
    tell()
  }

  function get(): RunView {
    view ??= known.view()
    return view
  }

  function save(): void {
    saving?.()
    saving = null
    if (!line && !known.problem && !closed) shelf.save(known)
  }

  function tell(): void {
    if (closed) return
    view = null
    if (!line) saving ??= env.after(SAVE, save)
    call(changed)
  }

  const unwatch = env.watch((signal) => {
    if (signal === "hidden" || signal === "freeze") save()
    else if (signal !== "offline") hurry()
  })
  const kept = shelf.load(id)
  if (kept) known.bootstrap(kept)
  if (known.cursor !== null && !known.settled && !around.shared) join()
  void load() // also beside the stream: what no frame tells may have changed meanwhile

  return {
    id,
    get,
    older,
    subscribe: (one) => listen(changed, one),
    whole() {
      if (!line) return
      line = false
      if (get().run) older().catch(() => {})
    },
    async refresh() {
      const before = known
      const { era } = known
      try {
        const screen = await around.bootstrap(id, EVENTS)
        if (known !== before) return this.refresh() // refused meanwhile
        known.problem = null
        begin(screen, era)
      } catch (error) {
        failed(error as ProblemError)
        throw error
      }
    },
    close() {
      if (closed) return
      save()
      closed = true
      turn += 1
      unwatch()
      hurry()
      leave()
      changed.clear()
    },
  }
}

/** The same function may listen twice, and each ends for itself. */
export function listen(changed: Set<() => void>, told: () => void): () => void {
  const one = () => told()
  changed.add(one)
  return () => changed.delete(one)
}

/** Tell each of them; whatever one makes of it is no affair of the others, nor of the connection. */
export function call(changed: ReadonlySet<() => void>): void {
  for (const one of [...changed]) {
    try {
      one()
    } catch (error) {
      const report = globalThis.reportError ?? console.error
      report(error)
    }
  }
}
