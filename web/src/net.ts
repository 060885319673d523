// The one client of the page, and what every answer of the server tells besides its body.
import { createClient, type Problem, ProblemError } from "@playhead/client"
import { noteServerDate } from "./times"
import { noteWire } from "./wire"
import { t } from "./words"

// Its requests carry what the browser sends by itself, which is the same in all tabs.
export const client = createClient({ base: new URL(".", location.href), fetch: observed, share: true })

async function observed(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const answer = await fetch(input, init)
  noteServerDate(answer.headers.get("date"))
  noteWire(answer.headers.get("playhead-wire"))
  return answer
}

/** What a person is told of a failed call. */
export function says(error: unknown): string {
  if (!(error instanceof ProblemError)) throw error
  return saysProblem(error.problem)
}

export function saysProblem({ status, detail }: Problem): string {
  return status ? detail || t.page.problem(status) : t.page.unreachable
}

/** A key under which the same request, sent again, makes nothing twice. */
export function freshKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")
}
