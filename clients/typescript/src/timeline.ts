/** The events that are shown: in the order of the timeline, each once, at most so many. Pure. */
import type { Bootstrap, RunEvent, RunView } from "./types"

/** Ids that were let go are remembered, so that none is taken for new when it is said again. */
const REMEMBERED = 10_000

type Info = Bootstrap["timeline"]

export class Timeline {
  #limit: number
  #events: RunEvent[] = []
  #ids = new Set<string>()
  #gone = new Set<string>()
  #at: string | null = null // what the stream told last; null: it is before the first
  #info: Info = { complete: false, has_older: false, oldest: null }
  #placed = false
  #list: readonly RunEvent[] | null = null

  constructor(limit = 2_000) {
    this.#limit = limit
  }

  /** The stream begins at the oldest event that there is. */
  rewind(): void {
    this.#at = null
  }

  /** Take an event that the stream told, behind the one that it told before. Whether it is new. */
  add(event: RunEvent): boolean {
    const { id } = event
    if (this.#gone.has(id)) return false
    const fresh = !this.#ids.has(id)
    if (fresh) {
      this.#ids.add(id)
      if (this.last?.id === this.#at) this.#events.push(event)
      else this.#events.splice(this.#events.findLastIndex((one) => one.id === this.#at) + 1, 0, event)
      this.#trim()
    }
    this.#at = id
    return fresh
  }

  /**
   * Take the events of a bootstrap, in their places. A fresh one tells where the stream goes on. Where the two do not
   * touch there may be a hole, and what is shown must not look whole: a fresh one then stands alone, a late one for nothing.
   */
  merge(page: readonly RunEvent[], info: Info, fresh: boolean): void {
    const shown = this.list()
    const touching = page.some((event) => this.#ids.has(event.id))
    const added = page.filter((event) => !this.#ids.has(event.id) && (fresh || !this.#gone.has(event.id)))
    const apart = shown.length > 0 && page.length > 0 && !touching && info.has_older
    if (apart && !fresh) return
    this.#set(apart ? added : fresh || touching ? woven(shown, page, this.#ids) : [...added, ...shown])
    if (fresh) this.#at = (page.at(-1) ?? this.last)?.id ?? null
    const oldest = !this.#placed || (page.length > 0 && this.#events[0]?.id === page[0]?.id)
    this.#info = {
      complete: fresh || page.length > 0 ? info.complete : this.#info.complete,
      has_older: oldest ? info.has_older : this.#info.has_older,
      oldest: null,
    }
    this.#placed = true
    this.#trim()
  }

  /** Put a page of `/events?before=` in front. The bound grows by it: it was asked for. */
  prepend(page: readonly RunEvent[], info: Info): void {
    const added = page.filter((event) => !this.#ids.has(event.id))
    this.#limit += added.length
    this.#set([...added, ...this.list()])
    this.#info = { ...this.#info, complete: this.#info.complete && info.complete, has_older: info.has_older }
  }

  get last(): RunEvent | undefined {
    return this.#events.at(-1)
  }

  list(): readonly RunEvent[] {
    this.#list ??= [...this.#events]
    return this.#list
  }

  info(): RunView["timeline"] {
    return { ...this.#info, oldest: this.#events[0]?.id ?? null }
  }

  #set(events: RunEvent[]): void {
    this.#events = events
    this.#ids = new Set(events.map((event) => event.id))
    for (const id of this.#gone) if (this.#ids.has(id)) this.#gone.delete(id)
    this.#list = null
  }

  #trim(): void {
    this.#list = null
    while (this.#ids.size > this.#limit) {
      const { id = "" } = this.#events.shift() ?? {}
      this.#ids.delete(id)
      this.#gone.add(id)
      if (!this.#info.has_older) this.#info = { ...this.#info, has_older: true }
    }
    bound(this.#gone, REMEMBERED)
  }
}

/** Let those go that were added first, until no more are left than this. */
export function bound(kept: Set<string>, most: number): void {
  for (const oldest of kept) {
    if (kept.size <= most) break
    kept.delete(oldest)
  }
}

/**
 * Both, in the order that those known to both give them; between two of those, what was shown comes first. What both
 * know is as the page has it: a record that lost an end has another event in its place.
 */
function woven(shown: readonly RunEvent[], page: readonly RunEvent[], known: ReadonlySet<string>): RunEvent[] {
  const anchors = new Set(page.map((event) => event.id).filter((id) => known.has(id)))
  const behind = new Map<string, RunEvent[]>()
  const out: RunEvent[] = []
  let place = out
  for (const event of shown) {
    if (anchors.has(event.id)) {
      place = []
      behind.set(event.id, place)
    } else place.push(event)
  }
  for (const event of page) out.push(event, ...(behind.get(event.id) ?? []))
  return out
}
