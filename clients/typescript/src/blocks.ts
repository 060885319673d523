/** The blocks of a stream of server-sent events, out of text that comes in pieces. Pure. */
import type { Block } from "./frames"

/** Characters of one block at most. A resync carries a whole bootstrap. */
export const LIMIT = 64 << 20

/**
 * Takes the text as it comes, wherever it is cut, and tells of each block once it is whole, and of each `retry`.
 * Throws when a block is too large.
 */
export function parser(tell: (block: Block) => void, retry: (ms: number) => void): (text: string) => void {
  let line = "" // what there is of the one that has not ended
  let returned = false // the last character was a carriage return: a line feed would belong to it
  let block: { event?: string; id?: string; data: string } = { data: "" } // each line of data behind a line feed

  function take(whole: string): void {
    const [, field, value = ""] = /^([^:]*):? ?(.*)$/s.exec(whole) ?? []
    if (field === "data") block.data += `\n${value}`
    else if (field === "event") block.event = value
    else if (field === "id" && !value.includes("\0")) block.id = value
    else if (field === "retry" && /^\d+$/.test(value)) retry(Number(value))
    else if (whole === "") {
      if (block.data) tell({ ...block, data: block.data.slice(1) })
      block = { data: "" }
    }
  }

  return (text) => {
    const more = returned && text.startsWith("\n") ? text.slice(1) : text
    if (text) returned = text.endsWith("\r")
    // Engines join long strings lazily: a line that comes in many pieces is looked at once.
    const lines = /[\r\n]/.test(more) ? (line + more).split(/\r\n?|\n/) : [line + more]
    line = lines.pop() ?? ""
    for (const whole of lines) take(whole)
    if (line.length + block.data.length > LIMIT) throw new RangeError("too large")
  }
}
