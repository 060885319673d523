/** Reading one stream: by `fetch`, or by a native EventSource with the same words. */
import { createParser } from "eventsource-parser"
import { problemOf } from "./commands"
import type { Block } from "./frames"
import type { Problem } from "./types"

/** Characters of one frame at most. A resync carries a whole bootstrap. */
const FRAME = 64 << 20

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
  return transport.kind === "eventsource" ? openNative(url, listener) : openFetch(url, transport, listener)
}

function openFetch(url: URL, transport: Transport, listener: Listener): () => void {
  const cut = new AbortController()
  const say =
    <A extends unknown[]>(tell: (...said: A) => void) =>
    (...said: A) => {
      if (!cut.signal.aborted) tell(...said)
    }
  const parser = createParser({
    onEvent: say((block) => listener.block(block)),
    onRetry: say((ms) => listener.retry(ms)),
    maxBufferSize: FRAME,
  })
  const read = async () => {
    const headers = await transport.headers()
    headers.set("Accept", "text/event-stream; client=playhead")
    const answer = await transport.fetch(url, { headers, cache: "no-store", signal: cut.signal })
    if (!answer.ok || answer.status === 204) {
      const error = await problemOf(answer)
      return say(listener.status)(answer.status, error.retryAfter, error.problem)
    }
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || !answer.body) throw new TypeError()
    const reader = answer.body.getReader()
    const decoder = new TextDecoder()
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      parser.feed(decoder.decode(value, { stream: true }))
      say(listener.bytes)(true)
    }
    say(listener.closed)(false)
  }
  read().catch(() => {
    say(listener.closed)(false)
    cut.abort() // of an answer that is no stream, nothing more is wanted
  })
  return () => cut.abort()
}

const NAMES = ["message", "state", "text", "resync_required", "end", "draining", "refused"]

function openNative(url: URL, listener: Listener): () => void {
  const source = new EventSource(url)
  source.onopen = () => listener.bytes(false)
  source.onerror = () => {
    // It would come back by itself, but where to and when is for the machine to say.
    const doubt = source.readyState === source.CLOSED
    source.close()
    listener.closed(doubt)
  }
  for (const name of NAMES)
    source.addEventListener(name, ({ data, lastEventId }: MessageEvent) => {
      listener.block({ event: name, data, id: lastEventId })
      listener.bytes(false)
    })
  return () => source.close()
}
