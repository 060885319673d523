import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { IDLE, KEEP_ALIVE, type Order, SILENCE, type Signal, type State, step } from "../src/connection"
import { delay, RETRY, RETRY_MAX } from "../src/pause"

/** A machine that is told things at given times. */
class Told {
  state: State = IDLE
  orders: Order[] = []
  open = new Set<number>()
  at = 0
  random = 0.5

  tell(signal: Signal, later = 0): this {
    this.at += later
    const [state, orders] = step(this.state, { ...signal, at: this.at, random: this.random })
    this.state = state
    this.orders = orders
    for (const { is, line } of orders) is === "open" ? this.open.add(line) : this.open.delete(line)
    return this
  }

  /** Connected, since a while. */
  live(): this {
    return this.tell({ is: "start" }).tell({ is: "bytes", line: this.state.line })
  }
}

describe("a connection", () => {
  it("opens, is live with the first byte, and waits when it closes", () => {
    const told = new Told().tell({ is: "start" })
    expect(told.state.phase).toBe("opening")
    expect(told.orders).toEqual([{ is: "open", line: 1 }])
    told.tell({ is: "bytes", line: 1 })
    expect(told.state.phase).toBe("live")
    told.tell({ is: "closed", line: 1 }, 100)
    expect(told.state.phase).toBe("waiting")
    expect(told.state.wake).toBe(told.at + 0.5 * RETRY)
    told.tell({ is: "tick" }, 0.5 * RETRY - 1)
    expect(told.state.phase).toBe("waiting")
    told.tell({ is: "tick" }, 1)
    expect(told.orders).toEqual([{ is: "open", line: 2 }])
  })

  it("takes silence for death after two and a half keep-alives [row F56@browser]", () => {
    const told = new Told().live()
    told.tell({ is: "bytes", line: 1 }, 30_000).tell({ is: "tick" }, SILENCE - 1)
    expect(told.state.phase).toBe("live")
    told.tell({ is: "tick" }, 1)
    expect(told.state.phase).toBe("waiting")
    expect(told.orders).toEqual([{ is: "close", line: 1 }])
  })

  it("hears no silence where keep-alives are hidden", () => {
    const told = new Told().tell({ is: "start" }).tell({ is: "bytes", line: 1, audible: false })
    expect(told.state.wake).toBeNull()
    expect(told.tell({ is: "tick" }, 10 * SILENCE).state.phase).toBe("live")
  })

  it("never comes back earlier than the stream told [row BR-70@browser]", () => {
    for (const random of [0, 0.3, 0.999]) {
      const told = new Told().live()
      told.random = random
      told.tell({ is: "retry", line: 1, ms: 4_000 }).tell({ is: "closed", line: 1 }, 60_000)
      expect(told.state.wake).toBe(told.at + 4_000 + random * 4_000)
    }
  })

  it.each(["visible", "online", "resume"] as const)(
    "is not hurried by %s while the server wants to be left alone",
    (is) => {
      const told = new Told().live().tell({ is: "draining", line: 1, ms: 10_000 }, 60_000)
      const back = told.at + 10_000
      told.tell({ is }, 1_000)
      expect(told.state).toMatchObject({ phase: "waiting", wake: back })
      expect(told.tell({ is: "tick" }, 9_000).state.phase).toBe("opening")
    },
  )

  it("obeys Retry-After", () => {
    const told = new Told().tell({ is: "start" })
    told.tell({ is: "status", line: 1, status: 429, retryAfter: 12_000 })
    expect(told.state.wake).toBe(told.at + 12_000 + 6_000)
  })

  it.each([401, 403, 404])("is refused by %i for good", (status) => {
    const told = new Told().tell({ is: "start" }).tell({ is: "status", line: 1, status, retryAfter: null })
    expect(told.state).toMatchObject({ phase: "refused", wake: null, line: 0 })
    for (const is of ["tick", "visible", "online", "resume", "swap", "reopen"] as const)
      expect(told.tell({ is }, 100_000).state.phase).toBe("refused")
    expect(told.tell({ is: "start" }).state.phase).toBe("opening")
  })

  it("is over with 204 and after an end, but not after a close alone", () => {
    const by = (signal: Signal) => new Told().live().tell(signal, 10).state.phase
    expect(by({ is: "status", line: 1, status: 204, retryAfter: null })).toBe("over")
    expect(by({ is: "closed", line: 1, over: true })).toBe("over")
    expect(by({ is: "closed", line: 1 })).toBe("waiting")
  })

  it.each([408, 500, 502, 503, 400])("tries again after %i", (status) => {
    const told = new Told().tell({ is: "start" }).tell({ is: "status", line: 1, status, retryAfter: null })
    expect(told.state.phase).toBe("waiting")
  })

  it("waits longer with each failure in a row, and a good connection ends that", () => {
    const told = new Told().tell({ is: "start" })
    const waits: number[] = []
    for (let turn = 0; turn < 8; turn += 1) {
      told.tell({ is: "closed", line: told.state.line })
      waits.push((told.state.wake ?? 0) - told.at)
      told.tell({ is: "tick" }, waits.at(-1))
    }
    expect(waits).toEqual([1_500, 3_000, 6_000, 12_000, 15_000, 15_000, 15_000, 15_000])
    told.tell({ is: "bytes", line: told.state.line }).tell({ is: "closed", line: told.state.line }, 9_000)
    expect((told.state.wake ?? 0) - told.at).toBe(15_000)
    told.tell({ is: "tick" }, 15_000).tell({ is: "bytes", line: told.state.line })
    told.tell({ is: "closed", line: told.state.line }, 10_000)
    expect((told.state.wake ?? 0) - told.at).toBe(1_500)
  })

  it("opens the new one before it closes the old one", () => {
    const told = new Told().live().tell({ is: "swap" })
    expect([...told.open]).toEqual([1, 2])
    expect(told.state.phase).toBe("live")
    told.tell({ is: "bytes", line: 1 }, 10)
    expect([...told.open]).toEqual([1, 2])
    told.tell({ is: "bytes", line: 2 }, 10)
    expect([...told.open]).toEqual([2])
    expect(told.tell({ is: "closed", line: 1 }).state.phase).toBe("live")
  })

  it("keeps the old one while the new one fails, and tries again", () => {
    const told = new Told().live().tell({ is: "swap" })
    told.tell({ is: "status", line: 2, status: 429, retryAfter: 5_000 })
    expect([...told.open]).toEqual([1])
    expect(told.state.phase).toBe("live")
    told.tell({ is: "tick" }, 4_999)
    expect([...told.open]).toEqual([1])
    told.tell({ is: "tick" }, 2_501)
    expect([...told.open]).toEqual([1, 3])
  })

  it("gives up a new one that never answers", () => {
    const told = new Told().live().tell({ is: "swap" }).tell({ is: "bytes", line: 1 }, 30_000)
    told.tell({ is: "tick" }, SILENCE - 30_000)
    expect([...told.open]).toEqual([1])
    expect(told.state.phase).toBe("live")
  })

  it("goes on with the new one when the old one breaks meanwhile", () => {
    const told = new Told().live().tell({ is: "swap" }).tell({ is: "closed", line: 1 }, 10)
    expect(told.state).toMatchObject({ phase: "opening", line: 2, next: 0 })
    expect([...told.open]).toEqual([2])
  })

  it.each(["visible", "online", "resume"] as const)(
    "does not believe in what was live before %s if it is stale",
    (is) => {
      expect(new Told().live().tell({ is }, KEEP_ALIVE).orders).toEqual([])
      const told = new Told().live().tell({ is }, KEEP_ALIVE + 1)
      expect(told.state.phase).toBe("opening")
      expect(told.orders).toEqual([
        { is: "open", line: 2 },
        { is: "close", line: 1 },
      ])
    },
  )

  it("asks anew after it was hidden for long, without a gap if it is still heard", () => {
    const told = new Told().live().tell({ is: "hidden" })
    told.tell({ is: "bytes", line: 1 }, KEEP_ALIVE).tell({ is: "visible" }, 1_000)
    expect([...told.open]).toEqual([1, 2])
    expect(told.state.phase).toBe("live")
  })

  it("stays when it was hidden for a moment", () => {
    expect(new Told().live().tell({ is: "hidden" }).tell({ is: "visible" }, 5_000).orders).toEqual([])
  })

  it("hangs up when the page freezes and is back at once when it thaws", () => {
    const told = new Told().live().tell({ is: "freeze" })
    expect(told.state).toMatchObject({ phase: "asleep", wake: null })
    expect(told.open.size).toBe(0)
    expect(told.tell({ is: "resume" }, 600_000).state.phase).toBe("opening")
  })

  it("comes back at once when the network does", () => {
    const told = new Told().live().tell({ is: "offline" }).tell({ is: "closed", line: 1 }, 10)
    expect((told.state.wake ?? 0) - told.at).toBe(15_000)
    expect(told.tell({ is: "online" }, 100).state.phase).toBe("opening")
  })
})

const signals = fc.oneof(
  fc
    .constantFrom<Signal["is"]>("start", "stop", "swap", "reopen", "tick", "tick", "tick", "visible", "hidden")
    .map((is) => ({ is })),
  fc.constantFrom("online", "offline", "freeze", "resume").map((is) => ({ is })),
  fc.record({ is: fc.constantFrom("bytes"), which: fc.nat(2), audible: fc.boolean() }),
  fc.record({ is: fc.constantFrom("retry", "draining"), which: fc.nat(2), ms: fc.nat(60_000) }),
  fc.record({ is: fc.constantFrom("closed"), which: fc.nat(2), over: fc.boolean() }),
  fc.record({
    is: fc.constantFrom("status"),
    which: fc.nat(2),
    status: fc.constantFrom(204, 400, 401, 403, 404, 408, 429, 500, 502, 503),
    retryAfter: fc.option(fc.nat(60_000)),
  }),
)

const stories = fc.array(
  fc.tuple(
    signals,
    fc.oneof(fc.nat(100), fc.nat(60_000)),
    fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  ),
  {
    maxLength: 60,
    size: "max",
  },
)

/** The signal with the line that it is about, if it is about one: the current, the coming, or one that is long gone. */
function aimed(signal: object, state: State): Signal {
  if (!("which" in signal)) return signal as Signal
  const lines = [state.line, state.next, Math.max(0, state.last - 2)]
  return Object.assign({ line: lines[Number(signal.which)] ?? 0 }, signal) as unknown as Signal
}

describe("whatever happens to a connection", () => {
  it("there is one at most, or two while one takes the place of the other", () => {
    fc.assert(
      fc.property(stories, (story) => {
        const told = new Told()
        const ever = new Set<number>()
        for (const [signal, later, random] of story) {
          told.random = random
          const opened = new Set(told.open)
          told.tell(aimed(signal, told.state), later)
          for (const { is, line } of told.orders) {
            if (is === "open") {
              expect(ever.has(line)).toBe(false)
              ever.add(line)
            } else expect(opened.has(line) || ever.has(line)).toBe(true)
          }
          const wanted = [told.state.line, told.state.next].filter((line) => line !== 0)
          expect([...told.open].sort()).toEqual(wanted.sort())
          if (told.open.size === 2) expect(told.state.phase).toBe("live")
          expect(told.open.size > 0).toBe(["opening", "live"].includes(told.state.phase))
        }
      }),
      { numRuns: 500 },
    )
  })

  it("it is never stuck, and never comes back before it may", () => {
    fc.assert(
      fc.property(stories, (story) => {
        const told = new Told()
        for (const [signal, later, random] of story) {
          told.random = random
          const before = told.state
          told.tell(aimed(signal, told.state), later)
          const { phase, wake, audible, notBefore } = told.state
          const late = before.phase === "waiting" && before.wake !== null && before.wake < told.at
          if (phase === "waiting" || phase === "opening" || (phase === "live" && audible)) {
            expect(wake).not.toBeNull()
            if (!late) expect(wake).toBeGreaterThanOrEqual(told.at)
          }
          if (phase === "waiting") expect(wake).toBeGreaterThanOrEqual(notBefore)
        }
        // Left alone, it comes back.
        for (let turn = 0; turn < 3 && told.state.phase === "waiting"; turn += 1)
          told.tell({ is: "tick" }, (told.state.wake ?? 0) - told.at)
        expect(told.state.phase).not.toBe("waiting")
      }),
      { numRuns: 500 },
    )
  })

  it("the wait is within its bounds and random over at least half of what is told [row BR-70@browser]", () => {
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
    fc.assert(
      fc.property(fc.nat(1_000), random, fc.option(fc.nat(120_000)), (tries, chance, told) => {
        const wait = delay(tries, chance, told)
        expect(wait).toBeGreaterThanOrEqual(told ?? 0)
        expect(wait).toBeLessThanOrEqual((told ?? 0) + Math.max(RETRY_MAX, told ?? 0))
        expect(delay(tries, 1, told) - delay(tries, 0, told)).toBeGreaterThanOrEqual((told ?? 0) / 2)
      }),
    )
  })
})
