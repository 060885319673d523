/** What a stream says, checked and in one form, whichever kind of stream it came by. Pure. */
import type { Bootstrap, Problem, RunEvent, Snapshot, Status, TextPiece } from "./types"

export type Frame =
  | { readonly is: "event"; readonly event: RunEvent; readonly cursor: string | null }
  | { readonly is: "state"; readonly snapshot: Snapshot; readonly degraded: string | null }
  | { readonly is: "text"; readonly piece: TextPiece }
  /** `bootstrap` null: the stream closes, and the client has to read one. */
  | { readonly is: "resync"; readonly bootstrap: Bootstrap | null; readonly cursor: string | null }
  | { readonly is: "end"; readonly status: Status }
  | { readonly is: "refused"; readonly code: Problem["code"] }

/** A block of a stream, as a parser of server-sent events gives it. */
export interface Block {
  readonly event?: string | undefined
  readonly id?: string | undefined
  readonly data: string
}

/** Runs of one stream at most. */
export const FEEDS = 32

export type Json = Record<string, unknown>

const FINAL: unknown[] = ["succeeded", "failed", "cancelled", "interrupted"] satisfies Status[]

export const isFinal = (status: unknown): status is Status => FINAL.includes(status)

export const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Whether it is an object that has these strings, and these numbers that count something. */
export const has = (value: unknown, strings: string[], counts: string[] = []): value is Json =>
  isObject(value) &&
  strings.every((name) => typeof value[name] === "string") &&
  counts.every((name) => typeof value[name] === "number" && value[name] >= 0)

export const isEvent = (event: unknown, run: string): event is RunEvent =>
  has(event, ["id", "type"]) && event.run_id === run
export const isSnapshot = (snapshot: unknown): snapshot is Snapshot => has(snapshot, ["status"], ["version"])
const isAll = (list: unknown, is: (one: unknown) => boolean) => Array.isArray(list) && list.every((one) => is(one))
export const isPiece = (piece: unknown): piece is TextPiece =>
  has(piece, ["part", "text"], ["attempt", "offset", "end"])

/** Whether an answer, or what was kept of one, can be shown. */
export function isBootstrap(screen: unknown, id: string): screen is Bootstrap {
  const { run, snapshot, timeline, events, text, interrupts } = isObject(screen) ? screen : ({} as Json)
  return (
    isObject(run) &&
    run.id === id &&
    isSnapshot(snapshot) &&
    isObject(timeline) &&
    isAll(events, (event) => isEvent(event, id)) &&
    isAll(text, isPiece) &&
    isAll(interrupts, isObject)
  )
}
