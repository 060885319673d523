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

const FEED = "run:"
const FINAL: ReadonlySet<unknown> = new Set<Status>(["succeeded", "failed", "cancelled", "interrupted"])

export const isFinal = (status: Status | undefined): boolean => FINAL.has(status)

/** A place that may be kept; the two ids that only say "do not return" may not. */
export const cursorOf = (id: unknown): string | null =>
  typeof id === "string" && id !== "" && id !== "end" && id !== "stop" ? id : null

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)
const isCount = (value: unknown): value is number => typeof value === "number" && value >= 0
const orNull = (value: unknown): string | null => (typeof value === "string" ? value : null)

/** `single` names the run of a stream that is about one. Null: malformed, unknown, or nothing for a client. */
export function read(block: Block, single: string | null): Heard | Draining | null {
  let data: unknown
  try {
    data = JSON.parse(block.data)
  } catch {
    return null
  }
  if (!isObject(data)) return null
  if (block.event === "draining") return isCount(data.retry_ms) ? { run: null, retry: data.retry_ms } : null
  const run =
    single ?? (typeof data.feed === "string" && data.feed.startsWith(FEED) ? data.feed.slice(FEED.length) : null)
  const frame = run === null ? null : frameOf(block, data, run, single === null)
  return run === null || frame === null ? null : { run, frame }
}

function frameOf(block: Block, data: Json, run: string, many: boolean): Frame | null {
  switch (block.event || "message") {
    case "message": {
      const event = many ? data.event : data
      return isEvent(event, run) ? { is: "event", event, cursor: cursorOf(many ? data.cursor : block.id) } : null
    }
    case "state":
      return isSnapshot(data.snapshot)
        ? { is: "state", snapshot: data.snapshot, degraded: orNull(data.degraded) }
        : null
    case "text":
      return isPiece(data) ? { is: "text", piece: pieceOf(data) } : null
    case "resync_required": {
      if (data.bootstrap !== undefined && !isBootstrap(data.bootstrap, run)) return null
      return { is: "resync", bootstrap: data.bootstrap ?? null, cursor: cursorOf(many ? data.cursor : block.id) }
    }
    case "end":
      return isFinal(data.status as Status) ? { is: "end", status: data.status as Status } : null
    case "refused":
      return typeof data.code === "string" ? { is: "refused", code: data.code } : null
    default:
      return null
  }
}

function isEvent(event: unknown, run: string): event is RunEvent {
  return isObject(event) && typeof event.id === "string" && typeof event.type === "string" && event.run_id === run
}

function isSnapshot(snapshot: unknown): snapshot is Snapshot {
  return isObject(snapshot) && typeof snapshot.status === "string" && isCount(snapshot.version)
}

function isPiece(piece: unknown): piece is TextPiece {
  if (!isObject(piece) || typeof piece.part !== "string" || typeof piece.text !== "string") return false
  return isCount(piece.attempt) && isCount(piece.offset) && isCount(piece.end)
}

function pieceOf({ part, attempt, offset, end, text, final, truncated }: TextPiece): TextPiece {
  return { part, attempt, offset, end, text, final: final === true, ...(truncated && { truncated }) }
}

/** Whether an answer, or what was kept of one, can be shown. */
export function isBootstrap(screen: unknown, run: string): screen is Bootstrap {
  if (!isObject(screen) || !isObject(screen.run) || screen.run.id !== run || !isSnapshot(screen.snapshot)) return false
  const { events, text, interrupts, timeline } = screen
  if (!Array.isArray(events) || !Array.isArray(text) || !Array.isArray(interrupts) || !isObject(timeline)) return false
  return events.every((event) => isEvent(event, run)) && text.every(isPiece) && interrupts.every(isObject)
}
