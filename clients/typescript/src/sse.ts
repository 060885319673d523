/** Reading one stream: by `fetch`, or by a native EventSource with the same words. */
import { parser } from "./blocks"
import type { Block } from "./frames"
import { problemOf } from "./requests"
import type { Problem } from "./types"

export interface Listener {
  /** Something arrived; the blocks in it have been told. `audible`: whether keep-alives can be heard as well. */
  bytes(audible: boolean): void
  block(block: Block): void
  retry(ms: number): void
  /** An answer that is no stream. `problem` is what it said, or null. */
  status(status: number, retryAfter: number | null, problem: Problem | null): void
  /** The connection is gone. `doubt`: perhaps for good, but a native EventSource does not say why. */
  closed(doubt: boolean): void
}

export interface Transport {
  fetch: typeof fetch
  headers(): Promise<Headers>
  kind: "fetch" | "eventsource"
}

/** Opens a stream. After the answer is called, the listener hears nothing more. */
export function open(url: URL, transport: Transport, listener: Listener): () => void {
  const cut = new AbortController()
  const { signal } = cut
  const say = (tell: () => void) => signal.aborted || tell()
  const parse = parser(
    (block) => say(() => listener.block(block)),
    (ms) => say(() => listener.retry(ms)),
  )
  const read = async () => {
    // Only where `fetch` cannot stream: a page that does not ask for it does not load it.
    if (transport.kind === "eventsource") return (await import("./native")).openNative(url, listener, signal)
    const headers = await transport.headers()
    headers.set("Accept", "text/event-stream; client=playhead")
    const answer = await transport.fetch(url, { headers, cache: "no-store", signal })
    if (!answer.ok || answer.status === 204) {
      const { retryAfter, problem } = await problemOf(answer)
      return say(() => listener.status(answer.status, retryAfter, problem))
    }
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || !answer.body) throw new TypeError()
    const reader = answer.body.getReader()
    const decoder = new TextDecoder()
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      parse(decoder.decode(value, { stream: true }))
      say(() => listener.bytes(true))
    }
    say(() => listener.closed(false))
  }
  read().catch(() => {
    say(() => listener.closed(false))
    cut.abort() // of an answer that is no stream, nothing more is wanted
  })
  return () => cut.abort()
}
