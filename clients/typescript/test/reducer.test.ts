import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { parser } from "../src/blocks"
import type { Frame } from "../src/frames"
import { read } from "../src/read"
import { Reducer } from "../src/reducer"
import type { Bootstrap, TextPiece } from "../src/types"
import { frame, ServedRun, type Told } from "./support/run"
import { shown } from "./support/shown"

/** What a server writes, as a client reads it. */
function parse(run: ServedRun, told: Told[]): Frame[] {
  const frames: Frame[] = []
  const parse = parser(
    (block) => {
      const heard = read(block, run.id)
      if (heard?.run) frames.push(heard.frame)
    },
    () => undefined,
  )
  parse(told.map(frame).join(""))
  return frames
}

/** All that a connection from this cursor is told up to now. */
function stream(run: ServedRun, cursor: string | null, named: Map<string, number> = new Map()): Told[] {
  const events = run.after(cursor)
  const end: Told[] = run.ended ? [{ name: "end", data: { run_id: run.id, status: run.run.status } }] : []
  if (typeof events === "string") {
    const why = { reason: events, requested: null, oldest: null, newest: run.cursor, bootstrap: run.bootstrap() }
    return [{ name: "resync_required", data: why, cursor: run.cursor }, ...end]
  }
  const pieces = run.pieces(named).map((piece): Told => ({ name: "text", data: { ...piece } }))
  return [run.stateFrame(), ...pieces, ...events, ...end]
}

/** Connect, and hear so much of it (all: everything). */
function connect(reducer: Reducer, run: ServedRun, part = 1): void {
  const named = new Map([...reducer.texts.whole()].map(([name, part]) => [name, part.end]))
  const told = stream(run, reducer.cursor, named)
  reducer.opened()
  for (const one of parse(run, told.slice(0, Math.ceil(told.length * part)))) reducer.frame(one)
}

function truth(run: ServedRun) {
  const { run: document, ...rest } = run.truth()
  return { status: document.status, ...rest }
}

function view(reducer: Reducer) {
  const { run, ...rest } = shown(reducer.view())
  return { status: run?.status, ...rest }
}

const happenings = fc.oneof(
  fc.record({ does: fc.constantFrom("publish", "state"), n: fc.nat(100) }),
  fc.record({ does: fc.constant("say"), n: fc.nat(1), text: fc.string({ unit: "grapheme", maxLength: 5 }) }),
  fc.record({ does: fc.constantFrom("ask", "decide", "start", "rebuild", "trim"), n: fc.nat(3) }),
  fc.record({
    does: fc.constantFrom("connect", "connect", "repeat"),
    part: fc.double({ min: 0, max: 1, noNaN: true }),
    n: fc.nat(20),
  }),
  fc.record({ does: fc.constantFrom("ask for a bootstrap", "receive a bootstrap"), n: fc.nat(3) }),
)

interface Asked {
  screen: Bootstrap
  era: number
}

describe("whatever overlaps, repeats or comes late", () => {
  it("a client ends in what is true", () => {
    fc.assert(
      fc.property(fc.array(happenings, { maxLength: 60 }), fc.boolean(), (history, ends) => {
        const run = new ServedRun().start()
        const reducer = new Reducer(run.id)
        reducer.bootstrap(run.bootstrap())
        const asked: Asked[] = []
        for (const one of history) {
          const n = one.n
          if (one.does === "publish") run.publish("step", { n }, { progress: n })
          else if (one.does === "state") run.state({ progress: n })
          else if (one.does === "say" && "text" in one) run.say(one.text, n ? "answer" : "reasoning")
          else if (one.does === "start") run.start()
          else if (one.does === "rebuild") run.rebuild()
          else if (one.does === "trim") run.trim(n)
          else if (one.does === "ask") run.ask(String(n), "May it?")
          else if (one.does === "decide") {
            const open = run.open()[0]
            if (open) run.decide(open.id, { approved: true })
          } else if (one.does === "connect" && "part" in one) connect(reducer, run, one.part)
          else if (one.does === "repeat") {
            // A place behind: everything after it is told once more, then what follows.
            const at = run.entries.findIndex((entry) => entry.cursor === reducer.cursor)
            const told = at < 0 ? [] : run.after(run.entries[Math.max(0, at - n)]?.cursor ?? null)
            if (typeof told !== "string") for (const frame of parse(run, told)) reducer.frame(frame)
          } else if (one.does === "ask for a bootstrap") asked.push({ screen: run.bootstrap(), era: reducer.era })
          else if (one.does === "receive a bootstrap") {
            const [late] = asked.splice(n % Math.max(1, asked.length), 1)
            if (late) reducer.bootstrap(late.screen, late.era)
          }
        }
        if (ends) run.end()
        connect(reducer, run)
        if (reducer.reopen) connect(reducer, run)
        if (ends) reducer.bootstrap(run.bootstrap())
        for (const late of asked) reducer.bootstrap(late.screen, late.era)
        expect(view(reducer)).toEqual(truth(run))
        expect(reducer.view().cursor).toBe(run.cursor)
        expect(reducer.finished).toBe(ends)
      }),
      { numRuns: 1_000 },
    )
  })

  it("a recorded stream that is cut after any frame, and continued, ends as the whole one", () => {
    const run = new ServedRun().start()
    const before = run.bootstrap()
    const recorded: Told[][] = []
    run.viewers.add((frames) => void recorded.push(frames))
    run.say("你好🙂é ")
    run.publish("step", {}, { progress: 10 })
    const asked = run.ask("q", "May it?")
    run.decide(asked.id, { approved: true })
    run.start()
    run.say("again ")
    run.say("and again", "answer", true)
    run.publish("step", {}, { progress: 90 })
    run.end()
    const whole = new Reducer(run.id)
    whole.bootstrap(before)
    const frames = parse(run, recorded.flat())
    for (const one of frames) whole.frame(one)
    whole.bootstrap(run.bootstrap())
    expect(view(whole)).toEqual(truth(run))
    for (let cut = 0; cut <= frames.length; cut += 1) {
      const reducer = new Reducer(run.id)
      reducer.bootstrap(before)
      for (const one of frames.slice(0, cut)) reducer.frame(one)
      if (!reducer.over) connect(reducer, run)
      reducer.bootstrap(run.bootstrap())
      expect({ cut, ...reducer.view() }).toEqual({ cut, ...whole.view() })
    }
  })
})

describe("a run is never shown as more, or as less, than it is", () => {
  const started = () => {
    const run = new ServedRun().start()
    const reducer = new Reducer(run.id)
    reducer.bootstrap(run.bootstrap())
    return { run, reducer }
  }

  it("the record's outcome replaces what was streamed", () => {
    const { run, reducer } = started()
    run.say("streamed")
    connect(reducer, run)
    run.end("succeeded", "recorded")
    connect(reducer, run)
    expect(reducer.view()).toMatchObject({ text: [{ text: "streamed" }], run: { status: "succeeded", result: null } })
    reducer.bootstrap(run.bootstrap())
    expect(reducer.view()).toMatchObject({ text: [], run: { status: "succeeded", result: "recorded" } })
    for (const one of parse(run, stream(run, null))) reducer.frame(one)
    expect(reducer.view().text).toEqual([])
  })

  it("a late snapshot does not overwrite newer live data [row BR-47@browser]", () => {
    const { run, reducer } = started()
    const late = run.bootstrap()
    const { era } = reducer
    run.publish("message", { n: 7 }, { progress: 7 })
    connect(reducer, run)
    reducer.bootstrap(late, era)
    expect(view(reducer)).toEqual(truth(run))
  })

  it("the cursor is never one of the ids that only say: do not return", () => {
    const { run, reducer } = started()
    for (const id of ["end", "stop", ""])
      for (const one of [
        { id, data: JSON.stringify(run.archive[0]) },
        { id, event: "end", data: JSON.stringify({ run_id: run.id, status: "succeeded" }) },
        { id, event: "resync_required", data: JSON.stringify({ reason: "epoch", bootstrap: run.bootstrap() }) },
      ]) {
        const heard = read(one, run.id)
        if (heard?.run) reducer.frame(heard.frame)
        expect([null, run.cursor]).toContain(reducer.cursor)
      }
  })
})

interface Load {
  steps: number
  times: number
  work: () => (step: number) => void
}

/** Milliseconds of CPU for one step of `load`. */
function spent({ steps, times, work }: Load): number {
  const before = process.cpuUsage()
  for (let time = 0; time < times; time += 1) {
    const one = work()
    for (let step = 0; step < steps; step += 1) one(step)
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000 / steps / times
}

/** What a step of each load costs when nothing disturbs it: the least seen, until they are within `bound` or for long. */
function costs(few: Load, many: Load, bound: number): [number, number] {
  const least: [number, number] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
  for (let turn = 0; turn < 60; turn += 1) {
    least[0] = Math.min(least[0], spent(few))
    least[1] = Math.min(least[1], spent(many))
    if (turn >= 8 && least[1] / least[0] < bound) break
  }
  return least
}

describe("what it costs", () => {
  const piece = (step: number): TextPiece => ({
    part: "answer",
    attempt: 1,
    offset: step * 6,
    end: step * 6 + 6,
    text: "token ",
    final: false,
  })

  it("a piece of text costs the same, however long the text is", () => {
    const grow = () => {
      const reducer = new Reducer("x")
      return (step: number) => reducer.frame({ is: "text", piece: piece(step) })
    }
    const [short, long] = costs({ steps: 5_000, times: 10, work: grow }, { steps: 50_000, times: 1, work: grow }, 1.3)
    console.info(`text: ${(short * 1000).toFixed(2)} µs a piece of 5,000, ${(long * 1000).toFixed(2)} of 50,000`)
    expect(long / short).toBeLessThan(1.3)
  })

  it("wants to know what was asked while its first bootstrap was degraded: a rebuilt timeline does not tell", () => {
    const run = new ServedRun().start()
    const reducer = new Reducer(run.id)
    reducer.bootstrap({ ...run.bootstrap(), degraded: "store_unavailable", cursor: null, events: [] })
    reducer.opened()
    const { snapshot } = run.bootstrap()
    reducer.frame({ is: "state", snapshot, degraded: "store_unavailable" })
    expect(reducer.curious).toBe(false)
    run.ask("exceptions", "May it?")
    run.rebuild()
    connect(reducer, run)
    expect(reducer.curious).toBe(true)
    reducer.bootstrap(run.bootstrap())
    expect(reducer.curious).toBe(false)
    expect(reducer.view().interrupts).toHaveLength(1)
  })

  it("an event costs the same, however many are kept; and views do not change afterwards [row A30@browser]", () => {
    const run = new ServedRun().start()
    const [event] = run.archive
    if (!event) throw new Error("no event")
    const add = (kept: number) => () => {
      const reducer = new Reducer(run.id, kept)
      return (step: number) =>
        reducer.frame({ is: "event", event: { ...event, id: `${run.id}:1:${step}` }, cursor: "1-1.000000000000" })
    }
    const [few, many] = costs(
      { steps: 20_000, times: 1, work: add(20) },
      { steps: 20_000, times: 1, work: add(2_000) },
      2,
    )
    console.info(`events: ${(few * 1000).toFixed(2)} µs with 20 kept, ${(many * 1000).toFixed(2)} with 2,000`)
    expect(many / few).toBeLessThan(2)
    const reducer = new Reducer(run.id, 3)
    const views = []
    for (let step = 0; step < 6; step += 1) {
      reducer.frame({ is: "event", event: { ...event, id: String(step) }, cursor: null })
      views.push(reducer.view())
    }
    expect(views.map((one) => one.events.map((kept) => kept.id).join(""))).toEqual([
      "0",
      "01",
      "012",
      "123",
      "234",
      "345",
    ])
    expect(views.at(-1)?.timeline).toMatchObject({ has_older: true, oldest: "3" })
  })
})
