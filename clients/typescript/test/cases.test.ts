import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { parser } from "../src/blocks"
import { read } from "../src/read"
import { Reducer } from "../src/reducer"
import type { Bootstrap, EventsPage } from "../src/types"

const CASES = join(import.meta.dirname, "../../../spec/cases")

interface Step {
  bootstrap?: Bootstrap
  stream?: string
  status?: 204
  older?: EventsPage
}

interface Case {
  name: string
  says: string
  run: string
  options?: { max_events: number }
  steps: Step[]
  view: Record<string, unknown>
}

const cases: Case[] = readdirSync(CASES)
  .filter((file) => file.endsWith(".json"))
  .map((file) => JSON.parse(readFileSync(join(CASES, file), "utf8")))

type Cut = (body: Uint8Array) => number[]

function play(one: Case, cut: Cut = () => []): Reducer {
  const reducer = new Reducer(one.run, one.options?.max_events)
  for (const step of one.steps) {
    if (step.bootstrap) reducer.bootstrap(structuredClone(step.bootstrap))
    if (step.status) reducer.nothing()
    if (step.older) reducer.older(structuredClone(step.older))
    if (step.stream !== undefined) stream(reducer, one.run, new TextEncoder().encode(step.stream), cut)
  }
  return reducer
}

function stream(reducer: Reducer, run: string, body: Uint8Array, cut: Cut): void {
  reducer.opened()
  const decoder = new TextDecoder()
  const parse = parser(
    (block) => {
      const heard = read(block, run)
      if (heard?.run) reducer.frame(heard.frame)
    },
    () => undefined,
  )
  let at = 0
  for (const end of [...cut(body), body.length]) {
    parse(decoder.decode(body.subarray(at, end), { stream: true }))
    at = end
  }
}

function shown(reducer: Reducer): Record<string, unknown> {
  const { connection: _, problem: __, ...view } = reducer.view()
  return { ...view, events: view.events.map((event) => event.id), over: reducer.over, reopen: reducer.reopen }
}

/** An object holds if each of its fields holds; a list if it is as long, too. */
function holds(said: unknown): unknown {
  if (Array.isArray(said)) return said.map(holds)
  if (said === null || typeof said !== "object") return said
  return expect.objectContaining(Object.fromEntries(Object.entries(said).map(([name, one]) => [name, holds(one)])))
}

describe.each(cases)("$name", (one) => {
  it(one.says, () => {
    expect(shown(play(one))).toEqual(holds(one.view))
  })

  it("ends the same wherever its streams are cut", () => {
    const whole = shown(play(one))
    expect(shown(play(one, (body) => [...body.keys()].slice(1)))).toEqual(whole)
    for (let size = 2; size <= 7; size += 1)
      expect(shown(play(one, (body) => [...body.keys()].filter((at) => at > 0 && at % size === 0)))).toEqual(whole)
  })
})

it("there are cases", () => {
  expect(cases.length).toBeGreaterThan(1)
})
