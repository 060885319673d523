/** One request, and what its answer says. */
import { has } from "./frames"
import { ProblemError, problem, unreachable } from "./problem"
import type { Transport } from "./sse"
import type { Problem } from "./types"

/** Sends a request below the base and gives what was answered. Rejects with a ProblemError. */
export type Send = <T>(method: string, path: string, body?: unknown, more?: Record<string, string>) => Promise<T>

export function sender(base: URL, transport: Transport): Send {
  return async (method, path, body, more) => {
    let answer: Response
    try {
      const headers = await transport.headers()
      headers.set("Accept", "application/json")
      if (method === "POST") headers.set("Content-Type", "application/json")
      for (const name in more) headers.set(name, more[name] ?? "")
      answer = await transport.fetch(new URL(path, base), {
        method,
        headers,
        body: JSON.stringify(body),
        cache: "no-store",
      })
      if (answer.ok) return answer.status === 204 ? null : await answer.json()
    } catch (cause) {
      throw Object.assign(new ProblemError(unreachable("The server cannot be reached now.")), { cause })
    }
    throw await problemOf(answer)
  }
}

/** What an answer that is no good says; also for one that came from something in between. */
export async function problemOf(answer: Response): Promise<ProblemError> {
  const told = await answer.json().catch(() => null)
  const { status } = answer
  const again = status >= 500 || status === 429
  return new ProblemError(
    has(told, ["code", "detail"])
      ? (told as unknown as Problem)
      : problem(status, "unknown", `The server answered ${status}.`, again),
    waitOf(answer),
  )
}

/** Seconds, or a date. */
function waitOf({ headers }: Response): number | null {
  const told = headers.get("retry-after") || "none"
  const seconds = Number(told)
  const ms = Number.isNaN(seconds) ? Date.parse(told) - Date.now() : seconds * 1000
  return Number.isNaN(ms) ? null : Math.max(0, ms)
}
