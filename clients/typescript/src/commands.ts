/** The calls of the protocol, each one request, or a few where sending it again changes nothing. */

import { delay } from "./connection"
import type { Environment } from "./environment"
import { ProblemError, problem, UNREACHABLE } from "./problem"
import type { Transport } from "./sse"
import type { Agent, Bootstrap, Client, EventsPage, Interrupt, Run, RunsFilter } from "./types"

/** Times a POST is sent while no answer comes, or one that says to try again soon. */
const TRIES = 3
const SOON = 10_000
const FIRST = 250

export interface RunsPage {
  runs: Run[]
  next: string | null
}

export interface Calls extends Omit<Client, "follow" | "list"> {
  runs(filter: RunsFilter, after: string | null): Promise<RunsPage>
  interrupts(): Promise<Interrupt[]>
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

/** Visible ASCII that nobody else makes. `crypto.randomUUID` is missing on pages that came over plain HTTP. */
const randomKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")

export function commands(base: URL, transport: Transport, env: Environment): Calls {
  async function send(
    method: string,
    path: string,
    body?: unknown,
    more: Record<string, string> = {},
  ): Promise<unknown> {
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

  /** For what may be sent again, because twice is the same as once. */
  async function insist(path: string, body?: unknown, more?: Record<string, string>): Promise<unknown> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await send("POST", path, body, more)
      } catch (error) {
        const { retryable, retryAfter: told } = error as ProblemError
        if (!retryable || tries + 1 >= TRIES || (told ?? 0) > SOON) throw error
        await new Promise<void>((done) => env.after(delay(tries, env.random(), told ?? FIRST), done))
      }
    }
  }

  const at = (runId: string, rest = "") => `runs/${encodeURIComponent(runId)}${rest}`
  const get = async <T>(path: string): Promise<T> => (await send("GET", path)) as T

  return {
    agents: async () => (await get<{ agents: Agent[] }>("agents")).agents,
    get: (runId) => get<Run>(at(runId)),
    bootstrap: (runId, limit = 50) => get<Bootstrap>(at(runId, `/bootstrap?limit=${limit}`)),
    earlier: (runId, before, limit = 50) =>
      get<EventsPage>(at(runId, `/events?limit=${limit}${before ? `&before=${encodeURIComponent(before)}` : ""}`)),
    runs: (filter, after) => get<RunsPage>(`runs?${queryOf(filter, after)}`),
    interrupts: async () => (await get<{ interrupts: Interrupt[] }>("interrupts")).interrupts,
    async start(agent, input = {}, { labels, key, idempotencyKey = randomKey() } = {}) {
      const body = { agent, input, ...(labels && { labels }), ...(key !== undefined && { key }) }
      return (await insist("runs", body, { "Idempotency-Key": idempotencyKey })) as Run
    },
    cancel: async (runId, reason) =>
      (await insist(at(runId, "/cancel"), reason === undefined ? {} : { reason })) as Run,
    decide: async (runId, interruptId, decision) =>
      (await insist(at(runId, `/interrupts/${encodeURIComponent(interruptId)}/decision`), decision)) as Interrupt,
    remove: async (runId) => void (await send("DELETE", at(runId))),
  }
}

function queryOf({ status = [], agent, labels = {}, key, limit = 50 }: RunsFilter, after: string | null): string {
  const query = new URLSearchParams({ limit: String(limit) })
  for (const one of typeof status === "string" ? [status] : status) query.append("status", one)
  for (const [name, value] of Object.entries(labels)) query.append("label", `${name}:${value}`)
  if (agent !== undefined) query.set("agent", agent)
  if (key !== undefined) query.set("key", key)
  if (after !== null) query.set("after", after)
  return query.toString()
}
