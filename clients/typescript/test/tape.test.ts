import { describe, expect, it } from "vitest"
import type { Frame } from "../src/frames"
import { Tape } from "../src/tape"
import type { RunEvent, TextPiece } from "../src/types"

const event = (n: number, type = "step", payload: unknown = {}): Frame => ({
  is: "event",
  event: { id: `e${n}`, type, payload } as RunEvent,
  cursor: `c${n}`,
})
const text = (offset: number, words: string, attempt = 1): Frame => ({
  is: "text",
  piece: { part: "answer", attempt, offset, end: offset + words.length, text: words, final: false },
})
const state = (version: number): Frame => ({ is: "state", snapshot: { version } as never, degraded: null })

const cursors = (frames: readonly Frame[] = []) => frames.map((one) => (one.is === "event" ? one.cursor : one.is))
const pieces = (frames: readonly Frame[] = []) =>
  frames.filter((one) => one.is === "text").map((one) => (one as { piece: TextPiece }).piece)

describe("a tape", () => {
  it("says of each batch behind which place it begins", () => {
    const tape = new Tape({ cursor: "c0" })
    expect(tape.push([event(1), event(2)]).from).toBe("c0")
    expect(tape.push([event(3)]).from).toBe("c2")
    expect(tape.tip).toBe("c3")
  })

  it("gives a reader what it lacks, once and in order, beginning with what is true now", () => {
    const tape = new Tape({ cursor: "c0" })
    tape.push([state(1), text(0, "Hel"), event(1), state(2), event(2), text(3, "lo"), event(3)])
    expect(cursors(tape.since("c1")?.frames)).toEqual(["state", "text", "c2", "c3"])
    expect(pieces(tape.since("c1")?.frames)).toMatchObject([{ offset: 0, end: 5, text: "Hello" }])
    expect(cursors(tape.since("c0")?.frames)).toEqual(["state", "text", "c1", "c2", "c3"])
    expect(cursors(tape.since("c3")?.frames)).toEqual(["state", "text"])
    expect(tape.since("c9")).toBeNull()
    expect(tape.since(null)).toBeNull()
  })

  it("goes back to where a new connection begins, and holds nothing twice", () => {
    const tape = new Tape({ cursor: "c0" })
    tape.push([event(1), event(2), event(3)])
    tape.begin("c1", new Map())
    expect(tape.push([event(2), event(3), event(4)]).from).toBe("c1")
    expect(cursors(tape.since("c0")?.frames)).toEqual(["c1", "c2", "c3", "c4"])
    tape.begin("c7", new Map())
    expect(tape.since("c1")).toBeNull()
    expect(tape.push([event(8)]).from).toBe("c7")
    tape.begin("c0", new Map())
    expect(tape.push([event(1)]).from).toBe("c0")
  })

  it("remembers so many events, and no more", () => {
    const tape = new Tape({ cursor: "c0" })
    for (let n = 1; n <= 300; n += 1) tape.push([event(n)])
    expect(tape.since("c43")).toBeNull()
    expect(tape.since("c44")?.frames.length).toBe(256)
  })

  it("tells the whole of a text that went back to what the request named", () => {
    const tape = new Tape({ cursor: "c0" })
    tape.push([text(0, "one ")])
    const named = tape.texts.whole()
    tape.push([text(4, "two ")])
    tape.begin("c0", named)
    expect(pieces(tape.push([text(4, "two three")]).frames)).toMatchObject([
      { offset: 0, end: 13, text: "one two three" },
    ])
    expect(pieces(tape.push([text(13, "!")]).frames)).toMatchObject([{ offset: 13, end: 14, text: "!" }])
    expect(tape.gap).toBe(false)
  })

  it("does not go back to a text that is void", () => {
    const tape = new Tape({ cursor: "c0" })
    tape.push([text(0, "one ")])
    const named = tape.texts.whole()
    tape.push([event(1, "attempt_started", { attempt: 2, voids_attempts_before: 2 })])
    tape.begin("c0", named)
    expect(tape.texts.list()).toEqual([])
  })

  it("drops a piece that does not fit, and says so", () => {
    const tape = new Tape({ cursor: "c0" })
    tape.push([text(0, "one ")])
    expect(tape.push([text(9, "?")]).frames).toEqual([])
    expect(tape.gap).toBe(true)
    expect(tape.texts.whole().size).toBe(0)
    tape.begin("c0", new Map())
    expect(tape.gap).toBe(false)
  })

  it("begins anew with a resync, and is over with an end", () => {
    const tape = new Tape({ cursor: "c0" })
    tape.push([state(9), event(1)])
    tape.push([{ is: "resync", bootstrap: null, cursor: "d0" }])
    expect(tape.since("c1")).toBeNull()
    expect(tape.since("d0")?.frames).toEqual([])
    tape.push([event(2), { is: "end", status: "succeeded" }])
    expect(tape.over).toBe(true)
    expect(cursors(tape.since("d0")?.frames)).toEqual(["c2", "end"])
  })
})
