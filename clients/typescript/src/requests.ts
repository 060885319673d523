/** One request, and what its answer says. */
import { has } from "./frames"
import { LONGEST } from "./pause"
import { ProblemError, problem, unreachable } from "./problem"
import type { Transport } from "./sse"
import type { Problem } from "./types"

/** Sends a request below the base and gives what was answered. Rejects with a ProblemError. */
export type Send = <T>(method: string, path: string, body?: unknown, more?: Record<string, string>) => Promise<T>

/** After so much silence the answer, or the rest of it, is not waited for. */
const PATIENCE = 30_000

export function sender(base: URL, transport: Transport): Send {
  return async (method, path, body, more) => {
    const cut = new AbortController()
    const { signal } = cut
    let alarm: ReturnType<typeof setTimeout> | undefined
    const wait = () => {
      clearTimeout(alarm)
      alarm = setTimeout(() => cut.abort(), PATIENCE)
    }
    const ask = async () => {
      const headers = await transport.headers()
      headers.set("Accept", "application/json")
      if (method === "POST") headers.set("Content-Type", "application/json")
      for (const name in more) headers.set(name, more[name] ?? "")
      const init = { method, headers, body: JSON.stringify(body), cache: "no-store", signal } as const
      const answer = heard(await transport.fetch(new URL(path, base), init), wait)
      if (!answer.ok) throw await problemOf(answer)
      return answer.status === 204 ? null : answer.json()
    }
    try {
      wait()
      // Not everything that is waited for heeds the signal.
      return await Promise.race([ask(), new Promise<never>((_, late) => signal.addEventListener("abort", late))])
    } catch (cause) {
      if (cause instanceof ProblemError) throw cause
      throw Object.assign(new ProblemError(unreachable("The server cannot be reached now.")), { cause })
    } finally {
      clearTimeout(alarm)
    }
  }
}

/** The same answer, which tells of each piece of its body. */
function heard(answer: Response, tell: () => void): Response {
  tell()
  const transform = (piece: Uint8Array, to: TransformStreamDefaultController) => {
    tell()
    to.enqueue(piece)
  }
  return answer.body ? new Response(answer.body.pipeThrough(new TransformStream({ transform })), answer) : answer
}

/** What an answer that is no good says; also for one that came from something in between. */
export async function problemOf(answer: Response): Promise<ProblemError> {
  const told = await answer.json().catch(() => null)
  const { status } = answer
  const again = status >= 500 || status === 429 || status === 408
  return new ProblemError(
    {
      ...problem(status, "unknown", `The server answered ${status}.`, again),
      ...(has(told, ["code", "detail"]) ? (told as unknown as Problem) : null),
    },
    waitOf(answer),
  )
}

/** Seconds, or a date by the clock of the one who tells it. */
function waitOf({ headers }: Response): number | null {
  const told = headers.get("retry-after") || "none"
  const seconds = Number(told)
  const now = Date.parse(headers.get("date") ?? "") || Date.now()
  const ms = Number.isNaN(seconds) ? Date.parse(told) - now : seconds * 1000
  return Number.isNaN(ms) ? null : Math.min(LONGEST, Math.max(0, ms))
}
