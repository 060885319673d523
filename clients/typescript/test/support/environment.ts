/** A browser in a nutshell: a clock that stands until it is moved, tabs that freeze and crash, locks, channels. */
import type { Environment, PageSignal } from "../../src/environment"
import type { SavedStates } from "../../src/types"

interface Alarm {
  at: number
  order: number
  tab: Tab
  then: () => void
}

/** Random, but the same in each run. */
export function chance(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

export class Browser {
  time = 1_000
  readonly tabs: Tab[] = []
  readonly locks = new Locks()
  readonly channels = new Map<string, Set<Channel>>()
  readonly random: () => number
  alarms: Alarm[] = []
  #order = 0

  constructor(seed = 1) {
    this.random = chance(seed)
  }

  tab(): Tab {
    const tab = new Tab(this)
    this.tabs.push(tab)
    return tab
  }

  after(tab: Tab, ms: number, then: () => void): () => void {
    const alarm = { at: this.time + ms, order: this.#order++, tab, then }
    this.alarms.push(alarm)
    return () => {
      this.alarms = this.alarms.filter((one) => one !== alarm)
    }
  }

  /** Move the clock, and let everything happen that is due by then, in its order. */
  advance(ms: number): void {
    const until = this.time + ms
    for (;;) {
      const due = this.alarms.filter((one) => one.at <= until && one.tab.state === "awake")
      if (due.length === 0) break
      const next = due.reduce((one, other) => ((other.at - one.at || other.order - one.order) < 0 ? other : one))
      this.time = Math.max(this.time, next.at)
      this.alarms = this.alarms.filter((one) => one !== next)
      next.then()
    }
    this.time = until
  }

  /** Let messages, answers and time pass until it is so. The clock goes about twenty times as fast as it would. */
  async until(so: () => boolean, what = String(so), step = 20): Promise<void> {
    for (let turn = 0; turn < 5_000; turn += 1) {
      if (so()) return
      await new Promise((done) => setTimeout(done, 1))
      this.advance(step)
    }
    throw new Error(`it never came to be that ${what}`)
  }

  /** Let this much time pass, with what happens meanwhile. */
  async pass(ms: number): Promise<void> {
    const end = this.time + ms
    await this.until(() => this.time >= end, "time passes", Math.max(20, ms / 100))
  }
}

type TabState = "awake" | "frozen" | "dead"

export class Tab implements Environment {
  readonly browser: Browser
  state: TabState = "awake"
  isHidden = false
  storage: SavedStates | null = new Memory()
  locks: LockManager | null
  channel: ((name: string) => BroadcastChannel) | null
  readonly fetches: string[] = []
  /** Streams that are open now, and how many were at once at most. */
  streams = 0
  most = 0
  readonly #watchers = new Set<(signal: PageSignal) => void>()
  readonly #dead = new AbortController()
  #thawed: Promise<void> = Promise.resolve()
  #thaw: () => void = () => undefined

  constructor(browser: Browser) {
    this.browser = browser
    this.locks = browser.locks.of(this)
    this.channel = (name) => new Channel(browser, this, name) as unknown as BroadcastChannel
  }

  now = () => this.browser.time
  random = () => this.browser.random()
  after = (ms: number, then: () => void) => this.browser.after(this, ms, then)
  hidden = () => this.isHidden

  watch = (heard: (signal: PageSignal) => void) => {
    this.#watchers.add(heard)
    return () => this.#watchers.delete(heard)
  }

  signal(signal: PageSignal): void {
    if (signal === "hidden" || signal === "visible") this.isHidden = signal === "hidden"
    for (const heard of [...this.#watchers]) heard(signal)
  }

  /** No code of the tab runs until it is thawed; it is not told. */
  freeze(): void {
    this.state = "frozen"
    this.#thawed = new Promise((done) => {
      this.#thaw = done
    })
  }

  thaw(): void {
    this.state = "awake"
    for (const alarm of this.browser.alarms) if (alarm.tab === this) alarm.at = Math.max(alarm.at, this.browser.time)
    this.#thaw()
    for (const channels of this.browser.channels.values()) for (const one of channels) if (one.tab === this) one.flush()
  }

  /** Gone without a word. */
  crash(): void {
    this.state = "dead"
    this.#dead.abort()
    this.browser.locks.forget(this)
    for (const channels of this.browser.channels.values()) for (const one of channels) if (one.tab === this) one.close()
  }

  fetch: typeof fetch = async (input, init = {}) => {
    if (this.state === "dead") return new Promise(() => undefined)
    const url = new URL(String(input))
    this.fetches.push(url.pathname + url.search)
    const signal = AbortSignal.any([this.#dead.signal, ...(init.signal ? [init.signal] : [])])
    const answer = await fetch(url, { ...init, signal })
    await this.#thawed
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || !answer.body) return answer
    this.streams += 1
    this.most = Math.max(this.most, this.streams)
    const reader = answer.body.getReader()
    let open = true
    const closed = () => {
      if (open) this.streams -= 1
      open = false
    }
    signal.addEventListener("abort", closed)
    const body = new ReadableStream({
      pull: async (to) => {
        const { done, value } = await reader.read().finally(() => this.#thawed)
        await this.#thawed
        if (!done) return to.enqueue(value)
        closed()
        to.close()
      },
      cancel: (reason) => {
        closed()
        return reader.cancel(reason)
      },
    })
    return new Response(body, { status: answer.status, headers: answer.headers })
  }
}

export class Memory implements SavedStates {
  readonly items = new Map<string, string>()
  getItem = (key: string) => this.items.get(key) ?? null
  setItem(key: string, value: string): void {
    this.items.set(key, value)
  }
  removeItem(key: string): void {
    this.items.delete(key)
  }
}

class Channel {
  onmessage: ((event: { data: unknown }) => void) | null = null
  readonly tab: Tab
  readonly #peers: Set<Channel>
  #queue: unknown[] = []

  constructor(browser: Browser, tab: Tab, name: string) {
    this.tab = tab
    this.#peers = browser.channels.get(name) ?? new Set()
    browser.channels.set(name, this.#peers)
    this.#peers.add(this)
  }

  postMessage(message: unknown): void {
    if (this.tab.state === "dead") return
    if (!this.#peers.has(this)) throw new Error("closed")
    for (const peer of this.#peers) if (peer !== this) peer.#queue.push(structuredClone(message))
    for (const peer of this.#peers) setImmediate(() => peer.flush())
  }

  flush(): void {
    if (this.tab.state !== "awake" || !this.#peers.has(this)) return
    const queue = this.#queue
    this.#queue = []
    for (const data of queue) this.onmessage?.({ data })
  }

  close(): void {
    this.#peers.delete(this)
  }
}

interface Request {
  tab: Tab
  run: () => Promise<unknown>
  lost: (reason: unknown) => void
}

/** Web Locks, as far as they are used: exclusive ones, a queue for each name, stealing, giving up. */
class Locks {
  readonly #held = new Map<string, Request>()
  readonly #queues = new Map<string, Request[]>()

  holder(name: string): Tab | undefined {
    return this.#held.get(name)?.tab
  }

  of(tab: Tab): LockManager {
    const request = (name: string, ...rest: [LockOptions, () => unknown] | [() => unknown]): Promise<unknown> => {
      const [options, held] = rest.length === 2 ? rest : [{} as LockOptions, rest[0]]
      return new Promise((done, lost) => {
        const one: Request = { tab, run: async () => held(), lost }
        const gaveUp = () => lost(new DOMException("given up", "AbortError"))
        const start = () => {
          this.#held.set(name, one)
          void one
            .run()
            .then(done, lost)
            .finally(() => this.#release(name, one))
        }
        const queue = this.#queues.get(name) ?? []
        this.#queues.set(name, queue)
        if (options.steal) {
          this.#held.get(name)?.lost(new DOMException("stolen", "AbortError"))
          setImmediate(start)
          this.#held.set(name, one)
          return
        }
        queue.push({ ...one, run: async () => start() })
        options.signal?.addEventListener("abort", () => {
          this.#queues.set(
            name,
            (this.#queues.get(name) ?? []).filter((other) => other.lost !== lost),
          )
          if (this.#held.get(name)?.lost !== lost) gaveUp()
        })
        setImmediate(() => this.#next(name))
      })
    }
    return { request, query: async () => ({}) } as unknown as LockManager
  }

  forget(tab: Tab): void {
    for (const [name, queue] of this.#queues)
      this.#queues.set(
        name,
        queue.filter((one) => one.tab !== tab),
      )
    for (const [name, one] of [...this.#held]) if (one.tab === tab) this.#release(name, one)
  }

  #release(name: string, one: Request): void {
    if (this.#held.get(name)?.lost !== one.lost) return
    this.#held.delete(name)
    setImmediate(() => this.#next(name))
  }

  #next(name: string): void {
    if (this.#held.has(name)) return
    const next = this.#queues.get(name)?.shift()
    if (next) void next.run()
  }
}
