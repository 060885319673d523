/** The calls of the protocol, each one request, or a few where sending it again changes nothing. */

import type { Environment } from "./environment"
import { delay } from "./pause"
import type { ProblemError } from "./problem"
import type { Send } from "./requests"
import type { Agent, Client, Interrupt, Run } from "./types"

/** Times a POST is sent while no answer comes, or one that says to try again soon. */
const TRIES = 3
const SOON = 10_000
const FIRST = 250

export type Calls = Omit<Client, "follow" | "list">

/** Visible ASCII that nobody else makes. `crypto.randomUUID` is missing on pages that came over plain HTTP. */
const randomKey = (): string => btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16))))

export function commands(send: Send, env: Environment): Calls {
  /** For what may be sent again, because twice is the same as once. */
  async function insist<T>(path: string, body?: unknown, more?: Record<string, string>): Promise<T> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await send<T>("POST", path, body, more)
      } catch (error) {
        const { retryable, retryAfter: told } = error as ProblemError
        if (!retryable || tries + 1 >= TRIES || (told ?? 0) > SOON) throw error
        await new Promise<void>((done) => env.after(delay(tries, env.random(), told ?? FIRST), done))
      }
    }
  }

  const at = (runId: string, rest = "") => `runs/${encodeURIComponent(runId)}${rest}`

  return {
    agents: async () => (await send<{ agents: Agent[] }>("GET", "agents")).agents,
    get: (runId) => send("GET", at(runId)),
    bootstrap: (runId, limit = 50) => send("GET", at(runId, `/bootstrap?limit=${limit}`)),
    earlier: (runId, before, limit = 50) =>
      send("GET", at(runId, `/events?limit=${limit}${before ? `&before=${encodeURIComponent(before)}` : ""}`)),
    // What is undefined does not go into JSON.
    start: async (agent, input = {}, { labels, key, idempotencyKey = randomKey() } = {}) =>
      insist<Run>("runs", { agent, input, labels, key }, { "Idempotency-Key": idempotencyKey }),
    cancel: (runId, reason) => insist<Run>(at(runId, "/cancel"), { reason }),
    decide: (runId, interruptId, decision) =>
      insist<Interrupt>(at(runId, `/interrupts/${encodeURIComponent(interruptId)}/decision`), decision),
    remove: async (runId) => void (await send("DELETE", at(runId))),
  }
}
