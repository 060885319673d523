import type { Problem } from "./wire"

/** What every call of a client rejects with. `code` is stable; `detail` is for people. */
export class ProblemError extends Error {
  override readonly name = "ProblemError"
  declare readonly problem: Problem
  declare readonly status: number
  declare readonly code: string
  declare readonly detail: string
  /** The same call may succeed later, after `retryAfter`. */
  declare readonly retryable: boolean
  declare readonly details: Record<string, unknown>
  /** Milliseconds to wait, if the server told. */
  declare readonly retryAfter: number | null

  constructor(problem: Problem, retryAfter: number | null = null) {
    super(problem.detail)
    const { status, code, detail, retryable, details = {} } = problem
    Object.assign(this, { problem, status, code, detail, retryable, details, retryAfter })
  }
}

/** A problem in the words of this side, for an answer that holds none. */
export function problem(status: number, code: string, detail: string, retryable = false): Problem {
  return { type: `urn:playhead:problem:${code}`, title: detail, status, code, detail, retryable }
}

/** Whether it is no use to ask again. */
export const isForGood = ({ status, retryable }: ProblemError): boolean => status >= 400 && status < 500 && !retryable

/** The problem of what no server told: status 0. */
export const unreachable = (detail: string): Problem => problem(0, "unreachable", detail, true)

/** The problem of a run that a stream of several refuses. */
export const refusal = (code: string): Problem =>
  problem(code === "forbidden" ? 403 : 404, code, "There is no such run for you.")
