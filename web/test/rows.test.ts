import { expect, test } from "vitest"
import { detailOf, type RowState, rows, titleOf } from "../src/rows"
import { event } from "./made"

const none = new Set<string>()

function told(...given: Parameters<typeof rows>): [title: string, state: RowState, detail: string][] {
  return rows(...given).map((row) => [titleOf(row), row.state, detailOf(row)])
}

test("what began and ended is one row, in the place where it began", () => {
  const events = [
    event(1, "tool_call_started", { call_id: "a", name: "search", title: "Search the web" }),
    event(2, "tool_call_started", { call_id: "b", name: "read" }),
    event(5, "tool_executed", { call_id: "a", name: "search", outcome: "succeeded", summary: "12 hits" }),
    event(6, "tool_executed", { call_id: "b", name: "read", outcome: "failed", duration_ms: 250 }),
  ]
  expect(told(events, none, "running")).toEqual([
    ["Search the web", "done", "12 hits · took 4 s"],
    ["Tool read", "failed", ""],
  ])
  expect(rows(events, none, "running").map((row) => row.ended?.id)).toEqual([events[2]?.id, events[3]?.id])
})

test("an agent's own pairs fold by their names, and built-in types do not", () => {
  const events = [
    event(1, "run_queued"),
    event(2, "run_started"),
    event(2, "attempt_started", { attempt: 1 }, { id: "first" }),
    event(3, "licences_started", { count: 2 }),
    event(4, "licences_applied", { count: 2, allowed: 1, denied: 1 }),
    event(5, "upload_begun"),
    event(6, "upload_failed", { reason: "quota" }),
    event(7, "run_failed", { code: "agent_error", message: "It broke." }),
  ]
  expect(told(events, none, "failed")).toEqual([
    ["Queued", "done", ""],
    ["Started", "done", ""],
    ["Policy applied to 2 distributions", "done", "allowed 1 · denied 1 · took 1 s"],
    ["Upload failed", "failed", "reason quota · took 1 s"],
    ["Failed", "failed", "It broke."],
  ])
})

test("what is begun runs while its attempt does, and has an end when the run has", () => {
  const events = [event(1, "import_started"), event(2, "export_started")]
  const states = (status: string, list = events) => rows(list, none, status).map((row) => row.state)
  expect(states("running")).toEqual(["running", "running"])
  expect(states("succeeded")).toEqual(["done", "done"])
  expect(states("failed")).toEqual(["off", "off"])
  expect(states("running", [...events, event(3, "import_started")])).toEqual(["done", "running", "running"])
  const again = event(4, "attempt_started", { attempt: 2 }, { attempt: 2 })
  expect(states("running", [...events, again])).toEqual(["off", "off", "running"])
})

test("a question is one row: it waits while it is open and tells its answer", () => {
  const asked = event(1, "approval_required", { interrupt_id: "q", title: "Spend 5?" })
  const [open] = rows([asked], new Set(["q"]), "waiting")
  expect([open?.waits, open?.state]).toEqual([true, "asks"])
  const answer = (type: string, payload = {}) =>
    told([asked, event(2, type, { interrupt_id: "q", ...payload })], none, "running")[0]
  expect(answer("approval_decided", { by: "Kim", decision: { approved: true, note: "fine" } })).toEqual([
    "Spend 5?",
    "done",
    "Approved by Kim · fine",
  ])
  expect(answer("approval_decided", { by: "Kim", decision: { approved: false } })).toEqual([
    "Spend 5?",
    "off",
    "Rejected by Kim",
  ])
  expect(answer("approval_expired")?.[1]).toBe("failed")
  expect(answer("approval_cancelled")?.[1]).toBe("off")
  expect(told([event(2, "approval_expired", { interrupt_id: "q" })], none, "running")).toEqual([
    ["Nobody decided in time", "failed", ""],
  ])
})

test("the last row of a run that goes on shows what is awaited", () => {
  expect(told([event(1, "run_queued")], none, "queued")[0]?.[1]).toBe("running")
  expect(told([event(1, "run_queued"), event(2, "rows_loaded")], none, "running").map((one) => one[1])).toEqual([
    "done",
    "done",
  ])
  expect(told([event(1, "cancel_requested", { by: "Kim", reason: "wrong one" })], none, "running")).toEqual([
    ["Stop asked for by Kim", "running", "wrong one"],
  ])
})

test("a type that nobody knows is told by its name, with what it carries", () => {
  const odd = event(1, "rows_loaded", { rows: 3, ok: true, digest: "ab".repeat(20), deep: { x: 1 }, none: null })
  expect(told([odd, event(2, "constructor")], none, "running")).toEqual([
    ["Rows loaded", "done", "rows 3 · ok true"],
    ["Constructor", "done", ""],
  ])
})

test("payloads of any shape are borne", () => {
  for (const payload of [null, 3, "text", [], { title: { a: 1 }, interrupt_id: 7, __proto__: null }])
    for (const type of ["approval_required", "approval_decided", "tool_executed", "retry", "run_failed", "own_type"])
      expect(told([event(1, type, payload)], none, "running")).toHaveLength(1)
})
