/** What a block of a stream says. Pure. */
import {
  type Block,
  type Frame,
  has,
  isBootstrap,
  isEvent,
  isFinal,
  isObject,
  isPiece,
  isSnapshot,
  type Json,
} from "./frames"

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

/** A place that may be kept; the two ids that only say "do not return" may not. */
const cursorOf = (id: unknown): string | null =>
  typeof id === "string" && id !== "" && id !== "end" && id !== "stop" ? id : null

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
