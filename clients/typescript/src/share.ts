/** Who follows what, and who fetches it: this tab itself, or one tab for all. */

import type { Environment } from "./environment"
import { Election, type Office } from "./leader"
import type { Lines, Said } from "./lines"
import type { Place } from "./tape"

/** Follows one run. */
export interface Subscriber {
  place(): Place
  hear(said: Said): void
}

export interface Feeds {
  /** Begin to follow; at most one does, for each run. */
  join(run: string, subscriber: Subscriber): void
  /** Say again where it is: something is missing there. */
  again(run: string): void
  leave(run: string): void
}

type Tell = (run: string, said: Said) => void

/** For this tab alone. */
export function alone(connect: (tell: Tell) => Lines): Feeds {
  const subscribers = new Map<string, Subscriber>()
  const lines = connect((run, said) => subscribers.get(run)?.hear(said))
  const again = (run: string) => {
    const subscriber = subscribers.get(run)
    if (subscriber) for (const said of lines.want(run, subscriber.place())) subscriber.hear(said)
  }
  return {
    again,
    join(run, subscriber) {
      subscribers.set(run, subscriber)
      again(run)
    },
    leave(run) {
      if (subscribers.delete(run)) lines.drop(run)
    },
  }
}

type Message =
  | { readonly is: "lead" | "hello" | "bye"; readonly from: string }
  | { readonly is: "want"; readonly from: string; readonly run: string; readonly place: Place }
  | { readonly is: "drop"; readonly from: string; readonly run: string }
  /** `to` null: for all. */
  | {
      readonly is: "said"
      readonly from: string
      readonly to: string | null
      readonly run: string
      readonly said: Said
    }

/** One connection for all tabs. Each keeps what it follows, its place and what it knows; only frames are shared. */
export class Together implements Feeds, Office {
  readonly #env: Environment
  readonly #locks: LockManager
  readonly #open: (name: string) => BroadcastChannel
  readonly #name: string
  readonly #connect: (tell: Tell) => Lines
  readonly #subscribers = new Map<string, Subscriber>()
  readonly #election: Election
  #self = ""
  #channel: BroadcastChannel | null = null
  #release: (() => void) | null = null
  #started = false
  /** While this tab leads. */
  #lines: Lines | null = null
  readonly #tabs = new Map<string, Set<string>>()
  /** Who leads, while another one does. */
  #leader: string | null = null

  constructor(env: Environment, name: string, connect: (tell: Tell) => Lines) {
    if (!env.locks || !env.channel) throw new TypeError("This browser has no Web Locks or no BroadcastChannel.")
    this.#env = env
    this.#locks = env.locks
    this.#open = env.channel
    this.#name = name
    this.#connect = connect
    this.#election = new Election(env, env.locks, name, this)
    env.watch((signal) => {
      if (signal === "freeze") this.#suspend()
      else if (signal === "resume" && this.#started) this.#enter()
      else if (signal === "visible") this.#election.look()
    })
  }

  join(run: string, subscriber: Subscriber): void {
    this.#subscribers.set(run, subscriber)
    this.#started = true
    if (this.#self === "") this.#enter()
    else this.again(run)
  }

  again(run: string): void {
    const subscriber = this.#subscribers.get(run)
    if (!subscriber) return
    if (this.#lines) for (const said of this.#lines.want(run, subscriber.place())) subscriber.hear(said)
    else {
      const { cursor } = subscriber.place()
      this.#post({ is: "want", from: this.#self, run, place: { cursor } })
    }
  }

  leave(run: string): void {
    if (!this.#subscribers.delete(run)) return
    if (this.#lines) this.#prune(run)
    else this.#post({ is: "drop", from: this.#self, run })
  }

  lead(): void {
    this.#leader = null
    this.#lines = this.#connect((run, said) => {
      this.#post({ is: "said", from: this.#self, to: null, run, said })
      this.#subscribers.get(run)?.hear(said)
    })
    this.beat()
    for (const run of this.#subscribers.keys()) this.again(run)
  }

  follow(): void {
    this.#lines?.stop()
    this.#lines = null
    this.#tabs.clear()
    for (const subscriber of this.#subscribers.values()) subscriber.hear({ is: "link", link: "reconnecting" })
  }

  beat(): void {
    this.#post({ is: "lead", from: this.#self })
  }

  /** Take part. A lock that this tab holds as long as it lives tells the leader when it is gone. */
  #enter(): void {
    if (this.#self !== "") return
    const self = Array.from({ length: 3 }, () => this.#env.random().toString(36).slice(2)).join("")
    this.#self = self
    this.#leader = null
    const held = () => {
      if (this.#self !== self) return
      const channel = this.#open(this.#name)
      this.#channel = channel
      channel.onmessage = ({ data }) => this.#channel === channel && this.#hear(data as Message)
      this.#post({ is: "hello", from: self })
      this.#election.start()
      return new Promise<void>((release) => {
        this.#release = release
      })
    }
    // A page that may not use locks is on its own.
    this.#locks.request(`${this.#name} ${self}`, held).catch(() => this.#self === self && this.lead())
  }

  #suspend(): void {
    this.#post({ is: "bye", from: this.#self })
    this.#self = ""
    this.#election.resign()
    this.#release?.()
    this.#channel?.close()
    this.#channel = null
    this.follow()
  }

  #post(message: Message): void {
    this.#channel?.postMessage(message)
  }

  #hear(message: Message): void {
    const { from } = message
    switch (message.is) {
      case "lead":
        this.#election.heard()
        if (this.#lines || this.#leader === from) break
        this.#leader = from
        for (const run of this.#subscribers.keys()) this.again(run)
        break
      case "hello":
        if (this.#lines) this.beat()
        break
      case "said":
        if (from !== this.#leader) break
        this.#election.heard()
        if ((message.to ?? this.#self) === this.#self) this.#subscribers.get(message.run)?.hear(message.said)
        break
      case "want":
        this.#serve(from, message.run, message.place)
        break
      case "drop":
        if (this.#tabs.get(from)?.delete(message.run)) this.#prune(message.run)
        break
      case "bye":
        this.#forget(from)
    }
  }

  #serve(tab: string, run: string, place: Place): void {
    const lines = this.#lines
    if (!lines) return
    let runs = this.#tabs.get(tab)
    if (!runs) {
      runs = new Set()
      this.#tabs.set(tab, runs)
      this.#locks
        .request(`${this.#name} ${tab}`, () => this.#lines === lines && this.#forget(tab))
        .catch(() => undefined)
    }
    runs.add(run)
    for (const said of lines.want(run, place)) this.#post({ is: "said", from: this.#self, to: tab, run, said })
  }

  #forget(tab: string): void {
    const runs = this.#tabs.get(tab) ?? []
    this.#tabs.delete(tab)
    for (const run of runs) this.#prune(run)
  }

  #prune(run: string): void {
    const wanted = this.#subscribers.has(run) || [...this.#tabs.values()].some((runs) => runs.has(run))
    if (!wanted) this.#lines?.drop(run)
  }
}
