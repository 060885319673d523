import type { Interrupt, Run, RunView, Snapshot } from "@playhead/client"
import { afterEach, expect, test, vi } from "vitest"
import { Herald, LineHerald } from "../src/herald"
import { AT, RUN, run, view } from "./made"

const at = (status: Run["status"], more: Partial<RunView> = {}): RunView =>
  view({ run: run({ status }), snapshot: { title: "Scripted", status } as Snapshot, ...more })

const asked = (...ids: string[]): Partial<RunView> => ({
  interrupts: ids.map((id) => ({ id, kind: "approval", payload: { title: `Question ${id}` } }) as Interrupt),
})

afterEach(() => vi.useRealTimers())

test("what somebody opens is no news, and nothing is told twice", () => {
  const herald = new Herald()
  expect(herald.note(at("waiting", asked("a")))).toBeNull()
  expect(herald.note(at("waiting", asked("a")))).toBeNull()
  expect(herald.note(at("running"))).toEqual({ say: "Scripted: Running", call: null })
  expect(herald.note(at("running"))).toBeNull()
})

test("each question calls, and the end does", () => {
  const herald = new Herald()
  herald.note(at("running"))
  const call = (id: string) => ({
    say: `A decision is needed: Question ${id}`,
    call: { title: "Scripted: Needs a decision", body: `Question ${id}`, tag: id },
  })
  expect(herald.note(at("waiting"))).toBeNull()
  expect(herald.note(at("waiting", asked("a")))).toEqual(call("a"))
  expect(herald.note(at("waiting", asked("b")))).toEqual(call("b"))
  expect(herald.note(at("waiting", asked("a", "b")))).toBeNull()
  expect(herald.note(at("failed"))).toBeNull()
  const failed = run({ status: "failed", error: { code: "x", message: "No room." }, ended_at: AT })
  expect(herald.note(at("failed", { run: failed }))).toEqual({
    say: "Scripted: Failed",
    call: { title: "Scripted: Failed", body: "No room.", tag: RUN },
  })
})

test("a line that comes back at once is not worth a word; one that stays away is, and that it is back", () => {
  vi.useFakeTimers()
  const said: string[] = []
  const herald = new LineHerald((word) => said.push(word))
  for (const word of ["connecting", "live", "reconnecting", "live"] as const) herald.note(word)
  vi.advanceTimersByTime(60_000)
  expect(said).toEqual([])
  herald.note("reconnecting")
  vi.advanceTimersByTime(60_000)
  herald.note("live")
  herald.note("ended")
  expect(said).toEqual(["Connection: Reconnecting", "Connection: Live"])
})
