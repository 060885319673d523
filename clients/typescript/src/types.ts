/** The public types: what a client keeps of a run, and how it is asked for. */
import type { Agent, Bootstrap, Interrupt, Problem, Run, RunEvent, Snapshot, TextPiece } from "./wire"

export type { Agent, Bootstrap, Interrupt, Problem, Run, RunEvent, Snapshot, TextPiece }

export type Status = Run["status"]

/**
 * `connecting`: nothing was heard yet. `live`: what is shown is of now. `reconnecting`: it was, and will be again.
 * `resyncing`: the server could not go on from where this client was, and a fresh start is being read. `degraded`: the
 * server answers, but cannot read its hot view. `ended`: nothing will follow. `refused`: see `problem`.
 * None of them says anything about the run: that is `run.status`.
 */
export type Connection = "connecting" | "live" | "reconnecting" | "resyncing" | "degraded" | "ended" | "refused"

/** One growing piece of output. `end` is opaque. */
export interface TextPart {
  readonly part: string
  readonly attempt: number
  readonly end: number
  readonly text: string
  readonly final: boolean
  readonly truncated: boolean
}

/** What is known of a run. Never changed in place: each change makes a new one. */
export interface RunView {
  readonly id: string
  /** The record's document. Its status is kept up to date. Null until it was read. */
  readonly run: Run | null
  readonly snapshot: Snapshot | null
  /** Oldest first, each once. At most 2,000: then the oldest are let go, and `timeline.has_older` says so. */
  readonly events: readonly RunEvent[]
  readonly timeline: { readonly complete: boolean; readonly has_older: boolean; readonly oldest: string | null }
  /** By attempt, then in the order in which they appeared. Empty once the record has the outcome. */
  readonly text: readonly TextPart[]
  /** The open ones, oldest first. */
  readonly interrupts: readonly Interrupt[]
  /** Where a new connection goes on. */
  readonly cursor: string | null
  readonly degraded: string | null
  readonly connection: Connection
  readonly problem: Problem | null
}

/** A value that changes, in the form that React's `useSyncExternalStore` and most others take. */
export interface Store<T> {
  /** The same object until something changes. */
  get(): T
  /** `changed` is called after each change. The answer ends that. */
  subscribe(changed: () => void): () => void
  /** Let go of it. Calling it again does nothing. */
  close(): void
}

export interface RunStore extends Store<RunView> {
  readonly id: string
  /** Load a page of older events in front of those that are shown. Rejects with a ProblemError. */
  older(): Promise<void>
  /** Read everything anew. After a refusal: try again. Rejects with a ProblemError. */
  refresh(): Promise<void>
}

/** A line of a list. `run` and `snapshot` are live while the run goes on. */
export interface RunRow {
  readonly id: string
  readonly run: Run
  readonly snapshot: Snapshot | null
  readonly connection: Connection
}

export interface RunsView {
  /** Newest first. */
  readonly runs: readonly RunRow[]
  /** Not null: `more()` has more. */
  readonly next: string | null
  /** Everything that waits for a person, over all runs, oldest first. */
  readonly interrupts: readonly Interrupt[]
  /** Nothing was read yet, or a page is being read on request. */
  readonly loading: boolean
  /** Why the list could not be read last time, or null. It goes on trying unless this is final. */
  readonly problem: Problem | null
}

export interface RunsStore extends Store<RunsView> {
  /** Load the next page. Rejects with a ProblemError. */
  more(): Promise<void>
}

export interface RunsFilter {
  readonly status?: Status | readonly Status[]
  readonly agent?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly key?: string
  /** Runs of a page: 1 to 200, by default 50. */
  readonly limit?: number
}

export interface StartOptions {
  readonly labels?: Readonly<Record<string, string>>
  /** The caller's own name for the run. */
  readonly key?: string
  /** By default a random one: however often the request has to be sent, it makes one run. */
  readonly idempotencyKey?: string
}

export interface Decision {
  readonly approved: boolean
  readonly note?: string | null
  readonly value?: unknown
}

export interface EventsPage {
  readonly events: RunEvent[]
  readonly timeline: Bootstrap["timeline"]
}

/** Where what was seen is kept, so that a reload shows it at once: `sessionStorage` or the like. */
export interface SavedStates {
  getItem(key: string): string | null
  setItem(key: string, value: string): void
  removeItem(key: string): void
}

export interface ClientOptions {
  /** Where the server is mounted. By default the address of the page. */
  readonly base?: string | URL
  /** Sent with every request; a function is asked each time. They cannot be sent by `transport: "eventsource"`. */
  readonly headers?: HeadersInit | (() => HeadersInit | Promise<HeadersInit>)
  readonly fetch?: typeof fetch
  /** How streams are read. `eventsource` is for where `fetch` cannot stream. */
  readonly transport?: "fetch" | "eventsource"
  /**
   * One connection for all tabs of the browser. By default where the browser can do it, and neither `headers` nor a `fetch`
   * is given: with these, say `true` only if all tabs of this origin act for the same person.
   */
  readonly share?: boolean
  /** By default `sessionStorage`, where there is one; null: nothing is kept. */
  readonly storage?: SavedStates | null
}

export interface Client {
  /** Follow a run. All who follow the same one share what is known of it, until the last has closed its store. */
  follow(runId: string): RunStore
  /** The runs, live. */
  list(filter?: RunsFilter): RunsStore
  agents(): Promise<Agent[]>
  start(agent: string, input?: unknown, options?: StartOptions): Promise<Run>
  get(runId: string): Promise<Run>
  cancel(runId: string, reason?: string): Promise<Run>
  decide(runId: string, interruptId: string, decision: Decision): Promise<Interrupt>
  remove(runId: string): Promise<void>
  bootstrap(runId: string, limit?: number): Promise<Bootstrap>
  /** Events before this one, oldest first; without one the newest. */
  earlier(runId: string, before?: string | null, limit?: number): Promise<EventsPage>
}
