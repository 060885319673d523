import { expect, test } from "vitest"
import * as documents from "../src/documents"
import { event, run } from "./made"

const ended = { status: "succeeded", ended_at: "2026-01-01T00:01:00.000Z" } as const

test("a result that is Markdown, or has some, is taken as it is", () => {
  expect(documents.resultMarkdown("T", run({ ...ended, result: "# Mine" }))).toBe("# Mine\n")
  expect(documents.resultMarkdown("T", run({ ...ended, result: { markdown: "# Mine\n", n: 1 } }))).toBe("# Mine\n")
})

test("any other result is told in Markdown, and what was said by a run that failed", () => {
  const told = documents.resultMarkdown("A *b*", run({ ...ended, result: { "`": 1 } }))
  expect(told).toMatch(/^# A \\\*b\\\*\n\nSucceeded, .*\n\n```json\n\{\n {2}"`": 1\n\}\n```\n$/)
  const failed = documents.resultMarkdown(
    "T",
    run({ status: "failed", error: { code: "x", message: "No." }, partial: [{ part: "answer", text: "Half" }, 3] }),
  )
  expect(failed).toContain("No. (x)")
  expect(failed).toContain("## Answer\n\nHalf\n")
})

test("what is taken home as JSON can be read back", () => {
  const one = run({ ...ended, result: { n: 1 }, labels: { a: "b" } })
  expect(JSON.parse(documents.resultJson(one))).toMatchObject({
    run: { id: one.id, labels: { a: "b" } },
    result: { n: 1 },
  })
  const events = [event(1, "run_queued"), event(2, "own", { x: 1 })]
  expect(JSON.parse(documents.timelineJson(one, events, false))).toMatchObject({ complete: false, events })
})

test("a timeline in Markdown has a line for each row, and says when it lacks some", () => {
  const events = [
    event(1, "tool_call_started", { call_id: "a", name: "x" }),
    event(2, "tool_executed", { call_id: "a", name: "x", outcome: "succeeded" }),
  ]
  const lines = documents.timelineMarkdown("T", run(ended), events, true).split("\n")
  expect(lines[0]).toBe("# T: Timeline")
  expect(lines.filter((one) => one.startsWith("- "))).toEqual(["- 2026-01-01T00:00:01.000Z [done] **Tool x** took 1 s"])
  expect(documents.timelineMarkdown("T", run(ended), events, false)).toContain("Incomplete")
})

test("a file's name tells what it is of", () => {
  expect(documents.fileName(run(), "result", "md")).toBe("scripted-00000001-result.md")
})
