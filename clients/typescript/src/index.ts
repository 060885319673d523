/**
 * Follow durable, resumable runs of AI agents.
 *
 *     const run = createClient({ base: "/" }).follow(id)
 *     run.subscribe(() => render(run.get()))
 */
export { createClient } from "./client"
export { ProblemError } from "./problem"
export type * from "./types"
