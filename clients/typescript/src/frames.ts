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

/** A frame and the run that it is about. */
export interface Heard {
  readonly run: string
  readonly frame: Frame
}

/** The server goes away or has no room. */
export interface Draining {
  readonly run: null
  readonly retry: number
}

/** A block of a stream, as a parser of server-sent events gives it. */
export interface Block {
  readonly event?: string | undefined
  readonly id?: string | undefined
  readonly data: string
}

type Json = Record<string, unknown>

const FINAL: unknown[] = ["succeeded", "failed", "cancelled", "interrupted"] satisfies Status[]

export const isFinal = (status: unknown): status is Status => FINAL.includes(status)

/** A place that may be kept; the two ids that only say "do not return" may not. */
export const cursorOf = (id: unknown): string | null =>
  typeof id === "string" && id !== "" && id !== "end" && id !== "stop" ? id : null

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

/** Whether it is an object that has these strings, and these numbers that count something. */
export const has = (value: unknown, strings: string[], counts: string[] = []): value is Json =>
  isObject(value) &&
  strings.every((name) => typeof value[name] === "string") &&
  counts.every((name) => typeof value[name] === "number" && value[name] >= 0)

const isEvent = (event: unknown, run: string): event is RunEvent => has(event, ["id", "type"]) && event.run_id === run
const isSnapshot = (snapshot: unknown): snapshot is Snapshot => has(snapshot, ["status"], ["version"])
const isAll = (list: unknown, is: (one: unknown) => boolean) => Array.isArray(list) && list.every((one) => is(one))
const isPiece = (piece: unknown): piece is TextPiece => has(piece, ["part", "text"], ["attempt", "offset", "end"])

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

/** `single` names the run of a stream that is about one. Null: malformed, unknown, or nothing for a client. */
export function read(block: Block, single: string | null): Heard | Draining | null {
  let data: unknown
  try {
    data = JSON.parse(block.data)
  } catch {}
  if (!isObject(data)) return null
  if (block.event === "draining")
    return has(data, [], ["retry_ms"]) ? { run: null, retry: data.retry_ms as number } : null
  const run = single ?? /^run:(.*)$/s.exec(String(data.feed))?.[1]
  const frame = run !== undefined && frameOf(block, data, run, single === null)
  return frame ? { run, frame } : null
}

function frameOf(block: Block, data: Json, run: string, many: boolean): Frame | false {
  const cursor = cursorOf(many ? data.cursor : block.id)
  const { snapshot, degraded, bootstrap = null, status } = data
  const event = many ? data.event : data
  switch (block.event || "message") {
    case "message":
      return isEvent(event, run) && { is: "event", event, cursor }
    case "state":
      return (
        isSnapshot(snapshot) && {
          is: "state",
          snapshot,
          degraded: typeof degraded === "string" ? degraded : null,
        }
      )
    case "text":
      return isPiece(data) && { is: "text", piece: data }
    case "resync_required":
      return (bootstrap === null || isBootstrap(bootstrap, run)) && { is: "resync", bootstrap, cursor }
    case "end":
      return isFinal(status) && { is: "end", status }
    case "refused":
      return has(data, ["code"]) && { is: "refused", code: data.code as string }
    default:
      return false
  }
}
