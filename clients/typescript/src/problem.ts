import type { Problem } from "./wire"

/** The status of problems that no server told: it could not be reached. */
export const UNREACHABLE = 0

/** What every call of a client rejects with. `code` is stable; `detail` is for people. */
export class ProblemError extends Error {
  override readonly name = "ProblemError"
  readonly status: number
  readonly code: string
  readonly detail: string
  /** The same call may succeed later, after `retryAfter`. */
  readonly retryable: boolean
  readonly details: Record<string, unknown>
  /** Milliseconds to wait, if the server told. */
  readonly retryAfter: number | null
  readonly problem: Problem

  constructor(problem: Problem, retryAfter: number | null = null) {
    super(problem.detail)
    this.problem = problem
    this.status = problem.status
    this.code = problem.code
    this.detail = problem.detail
    this.retryable = problem.retryable
    this.details = problem.details ?? {}
    this.retryAfter = retryAfter
  }
}

/** A problem in the words of this side, for an answer that holds none. */
export function problem(status: number, code: string, detail: string, retryable = false): Problem {
  return { type: `urn:playhead:problem:${code}`, title: detail, status, code, detail, retryable }
}
