import { createParser } from "eventsource-parser"
import fc from "fast-check"
import { expect, it } from "vitest"
import { LIMIT, parser } from "../src/blocks"

type Heard = [event: string | undefined, id: string | undefined, data: string] | number

function ours(pieces: string[]): Heard[] {
  const heard: Heard[] = []
  const parse = parser(
    ({ event, id, data }) => heard.push([event || undefined, id, data]),
    (ms) => heard.push(ms),
  )
  for (const piece of pieces) parse(piece)
  return heard
}

function theirs(text: string): Heard[] {
  const heard: Heard[] = []
  const parse = createParser({
    onEvent: ({ event, id, data }) => heard.push([event, id, data]),
    onRetry: (ms) => heard.push(ms),
  })
  parse.feed(text)
  return heard
}

const name = fc.constantFrom("data", "event", "id", "retry", "", "dat", "data ", "x")
const value = fc.constantFrom("", "x", " x", "  x", "7", "0070", "7s", ":", "a: b", "\0", "\u2028", "🙂")
const line = fc.oneof(
  fc.tuple(name, fc.constantFrom(":", ": ", ""), value).map((parts) => parts.join("")),
  fc.constant(""),
)
const stream = fc
  .array(fc.tuple(line, fc.constantFrom("\n", "\r\n", "\r")), { maxLength: 30 })
  .map((lines) => `${lines.flat().join("")}\n\n`)

it("reads what another parser reads, wherever it is cut", () => {
  fc.assert(
    fc.property(stream, fc.array(fc.nat(200)), (text, cuts) => {
      const ends = [...new Set([...cuts.filter((at) => at < text.length), 0, text.length])].sort((a, b) => a - b)
      const pieces = ends.slice(1).map((end, index) => text.slice(ends[index], end))
      expect(ours(pieces)).toEqual(theirs(text))
      expect(ours([...text].flatMap((character) => ["", character]))).toEqual(theirs(text))
    }),
    { numRuns: 500 },
  )
})

it("gives up a block that is larger than any", () => {
  const parse = parser(
    () => undefined,
    () => undefined,
  )
  const piece = "x".repeat(LIMIT / 64)
  parse("data: ")
  for (let count = 0; count < 63; count += 1) parse(piece)
  expect(() => parse(piece)).toThrow(RangeError)
})
