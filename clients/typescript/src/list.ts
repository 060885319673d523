/** The runs, a page at a time, live: the newest that go on are followed, and the first page is read again and again. */

import type { Environment } from "./environment"
import { FEEDS, isFinal } from "./frames"
import { delay } from "./pause"
import { isForGood, type ProblemError } from "./problem"
import type { Send } from "./requests"
import { call, listen } from "./store"
import type { Interrupt, Problem, Run, RunRow, RunStore, RunsFilter, RunsStore, RunsView } from "./types"

/** How often the first page is read, while somebody looks. */
const EVERY = 5_000
/** Questions that came up are read together. */
const COLLECT = 200

interface RunsPage {
  runs: Run[]
  next: string | null
}

export class FollowedRuns implements RunsStore {
  readonly #send: Send
  readonly #env: Environment
  readonly #filter: RunsFilter
  readonly #follow: (run: string) => RunStore
  readonly #changed = new Set<() => void>()
  readonly #followed = new Map<string, RunStore>()
  readonly #rows = new Map<string, RunRow>()
  readonly #unwatch: () => void
  #runs: readonly Run[] = []
  #next: string | null = null
  #interrupts: readonly Interrupt[] = []
  #loading = true
  #problem: Problem | null = null
  #view: RunsView | null = null
  #closed = false
  #tries = 0
  #notBefore = 0
  #reading = false
  #alarm: (() => void) | null = null
  #asking: (() => void) | null = null

  constructor(send: Send, env: Environment, filter: RunsFilter, follow: (run: string) => RunStore) {
    this.#send = send
    this.#env = env
    this.#filter = filter
    this.#follow = follow
    this.#unwatch = env.watch((signal) => {
      if (signal === "visible" || signal === "online" || signal === "resume")
        this.#again(Math.max(0, this.#notBefore - env.now()))
    })
    void this.#read()
  }

  get(): RunsView {
    this.#view ??= {
      runs: this.#runs.map((run) => this.#row(run)),
      next: this.#next,
      interrupts: this.#interrupts,
      loading: this.#loading,
      problem: this.#problem,
    }
    return this.#view
  }

  subscribe(changed: () => void): () => void {
    return listen(this.#changed, changed)
  }

  async more(): Promise<void> {
    if (this.#next === null || this.#loading) return
    this.#loading = true
    this.#tell()
    try {
      const after = this.#next
      const page = await this.#page(after)
      if (this.#next !== after) return // the list was begun anew meanwhile
      const known = new Set(this.#runs.map((run) => run.id))
      this.#runs = [...this.#runs, ...page.runs.filter((run) => !known.has(run.id))]
      this.#next = page.next
    } catch (caught) {
      const error = caught as ProblemError
      if (error.status === 400)
        this.#begin(await this.#page(null)) // its last run was erased
      else throw error
    } finally {
      this.#loading = false
      this.#arrange()
    }
  }

  close(): void {
    this.#closed = true
    this.#unwatch()
    this.#alarm?.()
    this.#asking?.()
    this.#changed.clear()
    for (const store of this.#followed.values()) store.close()
    this.#followed.clear()
  }

  #page(after: string | null): Promise<RunsPage> {
    return this.#send("GET", `runs?${queryOf(this.#filter, after)}`)
  }

  async #waiting(): Promise<Interrupt[]> {
    return (await this.#send<{ interrupts: Interrupt[] }>("GET", "interrupts")).interrupts
  }

  /** The first page, and everything that waits. */
  async #read(): Promise<void> {
    if (this.#reading || this.#closed) return
    this.#reading = true
    this.#alarm?.()
    let again: number | null = EVERY * (0.8 + 0.4 * this.#env.random())
    try {
      const [page, interrupts] = await Promise.all([this.#page(null), this.#waiting()])
      if (this.#runs.length === 0) this.#begin(page)
      else this.#renew(page)
      this.#interrupts = interrupts
      this.#problem = null
      this.#tries = 0
    } catch (caught) {
      const error = caught as ProblemError
      this.#problem = error.problem
      if (isForGood(error)) {
        this.#begin({ runs: [], next: null })
        this.#interrupts = []
        again = null
      } else {
        again = delay(this.#tries++, this.#env.random(), error.retryAfter)
        this.#notBefore = this.#env.now() + (error.retryAfter ?? 0)
      }
    }
    this.#reading = this.#loading = false
    if (this.#closed) return
    this.#arrange()
    if (again !== null) this.#again(again)
  }

  #again(wait: number): void {
    this.#alarm?.()
    this.#alarm = this.#env.after(wait, () => !this.#env.hidden() && void this.#read())
  }

  #begin(page: RunsPage): void {
    this.#runs = page.runs
    this.#next = page.next
  }

  /** A new first page stands for all that is as new as what it holds; older pages stay. */
  #renew(page: RunsPage): void {
    const last = page.runs.at(-1)
    const fresh = new Set(page.runs.map((run) => run.id))
    const at = last ? this.#runs.findIndex((run) => run.id === last.id) : -1
    // Without a run that both know, the list has moved on by a page: what lies between is not known.
    if (page.next === null || at < 0) return this.#begin(page)
    const older = this.#runs.slice(at + 1).filter((run) => !fresh.has(run.id))
    this.#runs = [...page.runs, ...older]
    if (older.length === 0) this.#next = page.next
  }

  /** Follow the newest that go on. */
  #arrange(): void {
    const going = this.#runs.filter((run) => !isFinal(run.status)).slice(0, FEEDS)
    const wanted = new Set(this.#closed ? [] : going.map((run) => run.id))
    for (const [run, store] of this.#followed)
      if (!wanted.has(run)) {
        store.close()
        this.#followed.delete(run)
      }
    for (const run of wanted)
      if (!this.#followed.has(run)) {
        const store = this.#follow(run)
        this.#followed.set(run, store)
        let open = store.get().interrupts
        store.subscribe(() => {
          const now = store.get().interrupts
          if (now.length !== open.length || now.some((one, index) => one.id !== open[index]?.id)) this.#ask()
          open = now
          this.#tell()
        })
      }
    const listed = new Set(this.#runs.map((run) => run.id))
    for (const run of this.#rows.keys()) if (!listed.has(run)) this.#rows.delete(run)
    this.#tell()
  }

  /** Something waits that did not, or the other way round. */
  #ask(): void {
    this.#asking ??= this.#env.after(COLLECT, async () => {
      this.#asking = null
      const interrupts = await this.#waiting().catch(() => null) // the next reading of all will tell
      if (interrupts === null || this.#closed) return
      this.#interrupts = interrupts
      this.#tell()
    })
  }

  /** The newer of what the list says and what is followed. The same object as long as nothing changes. */
  #row(listed: Run): RunRow {
    const view = this.#followed.get(listed.id)?.get()
    const live = view?.run && (isFinal(view.run.status) || (!isFinal(listed.status) && view.run.rev >= listed.rev))
    const run = live && view.run ? view.run : listed
    const before = this.#rows.get(listed.id)
    const snapshot = view?.problem ? null : (view?.snapshot ?? before?.snapshot ?? null)
    const connection = isFinal(run.status) ? "ended" : (view?.connection ?? "connecting")
    if (before && before.run === run && before.snapshot === snapshot && before.connection === connection) return before
    const row: RunRow = { id: run.id, run, snapshot, connection }
    this.#rows.set(run.id, row)
    return row
  }

  #tell(): void {
    if (this.#closed) return
    this.#view = null
    call(this.#changed)
  }
}

function queryOf({ status = [], agent, labels = {}, key, limit = 50 }: RunsFilter, after: string | null): string {
  const query = new URLSearchParams({ limit: String(limit) })
  for (const one of typeof status === "string" ? [status] : status) query.append("status", one)
  for (const [name, value] of Object.entries(labels)) query.append("label", `${name}:${value}`)
  if (agent !== undefined) query.set("agent", agent)
  if (key !== undefined) query.set("key", key)
  if (after !== null) query.set("after", after)
  return query.toString()
}
