/** Reading one stream by the browser's own EventSource, in the words of a stream that is read with `fetch`. */
import type { Listener } from "./sse"

const NAMES = ["message", "state", "text", "resync_required", "end", "draining", "refused"]

export function openNative(url: URL, listener: Listener, signal: AbortSignal): void {
  if (signal.aborted) return
  const source = new EventSource(url)
  signal.onabort = () => source.close()
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
}
