/** One connection for all tabs: one of them holds it, and hands what it brings to the others. */
import type { Environment } from "./environment"
import type { Frame } from "./frames"
import { Election, type Office } from "./leader"
import type { Feed, Feeds, Lines } from "./lines"
import { Relay, type Told } from "./relay"
import type { Place } from "./tape"

/** Frames that do not follow what is known here are awaited this long. */
const DETACHED = 1_500

type Message =
  | { readonly is: "lead" | "hello" | "bye"; readonly from: string }
  | { readonly is: "want"; readonly from: string; readonly run: string; readonly place: Place }
  | { readonly is: "drop"; readonly from: string; readonly run: string }
  /** `to` null: for all. `refused`: the one who leads may not read it; look for yourself. */
  | {
      readonly is: "told"
      readonly from: string
      readonly to: string | null
      readonly run: string
      readonly told: Told | { readonly is: "refused" }
    }

/** What this tab follows, told by the one that holds the connection. */
class Reader {
  readonly feed: Feed
  readonly #env: Environment
  readonly #again: () => void
  #detached: (() => void) | null = null

  constructor(feed: Feed, env: Environment, again: () => void) {
    this.feed = feed
    this.#env = env
    this.#again = again
  }

  hear(told: Told): void {
    if (told.is === "frames") this.#read(told.from, told.frames)
    else this.feed.hear(told)
  }

  close(): void {
    this.#detached?.()
    this.#detached = null
  }

  /** An event continues what is known iff it follows the one that is the newest here. */
  #read(from: string | null, told: readonly Frame[]): void {
    let behind = from
    let { cursor } = this.feed
    const frames = told.filter((frame) => {
      if (frame.is === "resync") behind = cursor = frame.cursor
      if (frame.is !== "event" || frame.cursor === null) return true
      const follows = behind === cursor
      behind = frame.cursor
      if (follows) cursor = behind
      return follows
    })
    if (behind === cursor) this.close()
    // What lies between may still come by; if it does not, it is asked for.
    else
      this.#detached ??= this.#env.after(DETACHED, () => {
        this.#detached = null
        this.#again()
      })
    this.feed.hear({ is: "frames", frames })
  }
}

/** Each tab keeps what it follows, its place and what it knows; only frames are shared. */
export class Together implements Feeds, Office {
  readonly #env: Environment
  readonly #locks: LockManager
  readonly #open: (name: string) => BroadcastChannel
  readonly #name: string
  readonly #connect: () => Lines
  readonly #readers = new Map<string, Reader>()
  readonly #election: Election
  #self = ""
  #channel: BroadcastChannel | null = null
  #release: (() => void) | null = null
  #started = false
  /** While this tab leads. */
  #relay: Relay | null = null
  readonly #tabs = new Map<string, Set<string>>()
  /** Who leads, while another one does. */
  #leader: string | null = null
  /** What that one may not read: this tab asks with its own rights, on connections of its own. */
  readonly #aside = new Set<string>()
  #own: Lines | null = null

  constructor(env: Environment, name: string, connect: () => Lines) {
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

  join(run: string, feed: Feed): void {
    this.#readers.set(run, new Reader(feed, this.#env, () => this.again(run)))
    this.#started = true
    if (this.#self === "") this.#enter()
    else this.again(run)
  }

  again(run: string): void {
    const reader = this.#readers.get(run)
    if (!reader) return
    if (this.#aside.has(run)) return this.#own?.again(run)
    const { cursor, texts } = reader.feed
    if (this.#relay) for (const told of this.#relay.want(run, { cursor, text: texts.pieces() })) reader.hear(told)
    else this.#post({ is: "want", from: this.#self, run, place: { cursor } })
  }

  leave(run: string): void {
    this.#readers.get(run)?.close()
    if (!this.#readers.delete(run)) return
    if (this.#aside.delete(run)) this.#own?.leave(run)
    else if (this.#relay) this.#prune(run)
    else this.#post({ is: "drop", from: this.#self, run })
  }

  lead(): void {
    this.#leader = null
    this.#relay = new Relay(this.#connect(), this.#env, (run, told, refused) => {
      this.#post({ is: "told", from: this.#self, to: null, run, told: refused ? { is: "refused" } : told })
      this.#readers.get(run)?.hear(told)
      if (told.is === "check" && told.problem?.status === 401) this.#election.cede()
    })
    this.beat()
    this.#ask()
  }

  follow(): void {
    this.#relay?.stop()
    this.#relay = null
    this.#tabs.clear()
    this.#gather()
    for (const reader of this.#readers.values()) reader.hear({ is: "link", link: "reconnecting" })
  }

  beat(): void {
    this.#post({ is: "lead", from: this.#self })
  }

  /** All of it, of another one who leads. */
  #ask(): void {
    this.#gather()
    for (const run of this.#readers.keys()) this.again(run)
  }

  #gather(): void {
    this.#own?.stop()
    this.#own = null
    this.#aside.clear()
  }

  #tell(run: string, told: Told | { readonly is: "refused" }): void {
    const reader = this.#readers.get(run)
    if (!reader || this.#aside.has(run)) return
    if (told.is !== "refused") return reader.hear(told)
    reader.close()
    this.#post({ is: "drop", from: this.#self, run })
    this.#aside.add(run)
    reader.hear({ is: "link", link: "connecting" })
    this.#own ??= this.#connect()
    this.#own.join(run, reader.feed)
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
        if (this.#relay || this.#leader === from) break
        this.#leader = from
        this.#ask()
        break
      case "hello":
        if (this.#relay) this.beat()
        break
      case "told":
        if (from !== this.#leader) break
        this.#election.heard()
        if ((message.to ?? this.#self) === this.#self) this.#tell(message.run, message.told)
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
    const relay = this.#relay
    if (!relay) return
    let runs = this.#tabs.get(tab)
    if (!runs) {
      runs = new Set()
      this.#tabs.set(tab, runs)
      this.#locks
        .request(`${this.#name} ${tab}`, () => this.#relay === relay && this.#forget(tab))
        .catch(() => undefined)
    }
    runs.add(run)
    for (const told of relay.want(run, place)) this.#post({ is: "told", from: this.#self, to: tab, run, told })
  }

  #forget(tab: string): void {
    const runs = this.#tabs.get(tab) ?? []
    this.#tabs.delete(tab)
    for (const run of runs) this.#prune(run)
  }

  #prune(run: string): void {
    const wanted = this.#readers.has(run) || [...this.#tabs.values()].some((runs) => runs.has(run))
    if (!wanted) this.#relay?.drop(run)
  }
}
