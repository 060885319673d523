/** One request, and what its answer says. */
import { ProblemError, problem, UNREACHABLE } from "./problem"
import type { Transport } from "./sse"

/** Sends a request below the base and gives what was answered. Rejects with a ProblemError. */
export type Send = <T>(method: string, path: string, body?: unknown, more?: Record<string, string>) => Promise<T>

export function sender(base: URL, transport: Transport): Send {
  return async (method, path, body, more = {}) => {
    let answer: Response
    try {
      const headers = await transport.headers()
      headers.set("Accept", "application/json")
      if (method === "POST") headers.set("Content-Type", "application/json")
      for (const [name, value] of Object.entries(more)) headers.set(name, value)
      const init: RequestInit = { method, headers, cache: "no-store" }
      if (body !== undefined) init.body = JSON.stringify(body)
      answer = await transport.fetch(new URL(path, base), init)
      if (answer.ok) return answer.status === 204 ? null : await answer.json()
    } catch (cause) {
      const unreachable = problem(UNREACHABLE, "unreachable", "The server cannot be reached now.", true)
      throw Object.assign(new ProblemError(unreachable), { cause })
    }
    throw await problemOf(answer)
  }
}

/** What an answer that is no good says; also for one that came from something in between. */
export async function problemOf(answer: Response): Promise<ProblemError> {
  const told = await answer.json().catch(() => null)
  const { status } = answer
  const known = told !== null && typeof told.code === "string" && typeof told.detail === "string"
  const again = status >= 500 || status === 429
  return new ProblemError(
    known ? told : problem(status, "unknown", `The server answered ${status}.`, again),
    waitOf(answer),
  )
}

function waitOf(answer: Response): number | null {
  const told = answer.headers.get("retry-after")
  if (told === null) return null
  const seconds = Number(told)
  const ms = Number.isNaN(seconds) ? Date.parse(told) - Date.now() : seconds * 1000
  return Number.isNaN(ms) ? null : Math.max(0, ms)
}
