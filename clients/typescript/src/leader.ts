/** Which tab holds the connection. A lock decides; a leader that is not heard any more loses it. */
import type { Environment } from "./environment"

/** How often a leader is heard at least. */
export const BEAT = 500
/** How often the others look whether it was. */
const LOOK = 250
/** Silence after which somebody else leads. Hidden pages are slowed down so much that among them it means little. */
const SILENT = 1_800
const SILENT_HIDDEN = 130_000
/** Those who lose patience do not do so together. */
const SPREAD = 200

export interface Office {
  /** This tab leads now. */
  lead(): void
  /** Not any more: another one took over, or this one went. */
  follow(): void
  /** To be said to the others. */
  beat(): void
}

export class Election {
  readonly #env: Environment
  readonly #locks: LockManager
  readonly #name: string
  readonly #office: Office
  #leave: (() => void) | null = null // in office
  #queue: AbortController | null = null // waiting for it
  #heard = 0
  #alarm: () => void = () => undefined

  constructor(env: Environment, locks: LockManager, name: string, office: Office) {
    this.#env = env
    this.#locks = locks
    this.#name = name
    this.#office = office
  }

  start(): void {
    this.heard()
    this.#enter(false)
    this.#watch()
  }

  /** Somebody who leads was heard. */
  heard(): void {
    this.#heard = this.#env.now()
  }

  /** Look now whether there is a leader, without waiting for the next alarm. */
  look(): void {
    if (this.#leave || !this.#queue) return
    const patience = this.#env.hidden() ? SILENT_HIDDEN : SILENT + SPREAD * this.#env.random()
    if (this.#env.now() - this.#heard < patience) return
    this.heard()
    this.#queue.abort()
    this.#enter(true)
  }

  /** Leave it to the one who waited longest, and wait behind the others. */
  cede(): void {
    this.#leave?.()
  }

  /** Leave it to the others, at once. */
  resign(): void {
    this.#alarm()
    this.#queue?.abort()
    this.#queue = null
    this.#step()
  }

  #step(): void {
    const leave = this.#leave
    this.#leave = null
    if (!leave) return
    leave()
    this.#office.follow()
  }

  /** Queue for the lock, or take it from a leader that is silent. */
  #enter(steal: boolean): void {
    const queue = new AbortController()
    this.#queue = queue
    const held = () =>
      new Promise<void>((leave) => {
        if (queue.signal.aborted) return leave()
        this.#leave = leave
        this.#office.lead()
      })
    this.#locks
      .request(this.#name, steal ? { steal } : { signal: queue.signal }, held)
      .catch(() => undefined) // given up, or taken by somebody who heard nothing from here
      .then(() => {
        if (this.#queue !== queue) return
        this.heard()
        this.#step()
        this.#enter(false)
      })
  }

  #watch(): void {
    this.#alarm = this.#env.after(this.#leave ? BEAT : LOOK, () => {
      if (this.#leave) this.#office.beat()
      else this.look()
      this.#watch()
    })
  }
}
