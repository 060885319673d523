import { describe, expect, it } from "vitest"
import type { Block } from "../src/frames"
import { type Listener, open } from "../src/sse"
import type { Problem } from "../src/types"

interface Heard {
  blocks: Block[]
  retries: number[]
  statuses: [number, number | null, Problem | null][]
  closed: number
  bytes: number
}

/** Reads an answer to its end, and says what was heard. */
async function hear(answer: Response | Error, stopAfter = Number.POSITIVE_INFINITY): Promise<Heard> {
  const heard: Heard = { blocks: [], retries: [], statuses: [], closed: 0, bytes: 0 }
  const transport = {
    kind: "fetch" as const,
    headers: async () => new Headers(),
    fetch: async () => {
      if (answer instanceof Error) throw answer
      return answer
    },
  }
  let stop: () => void = () => undefined
  await new Promise<void>((done) => {
    const listener: Listener = {
      bytes: () => {
        heard.bytes += 1
        if (heard.bytes < stopAfter) return
        stop()
        setTimeout(done, 5)
      },
      block: (block) => heard.blocks.push(block),
      retry: (ms) => heard.retries.push(ms),
      status: (...said) => {
        heard.statuses.push(said)
        done()
      },
      closed: () => {
        heard.closed += 1
        done()
      },
    }
    stop = open(new URL("http://localhost/"), transport, listener)
  })
  return heard
}

function stream(chunks: Uint8Array[], type = "text/event-stream; charset=utf-8"): Response {
  const body = new ReadableStream({
    pull(to) {
      const chunk = chunks.shift()
      if (chunk) to.enqueue(chunk)
      else to.close()
    },
  })
  return new Response(body, { headers: { "Content-Type": type } })
}

const TEXTS = ["l1\nl2\r\nl3\rl4\n\n", " leading space", ":colon", "", "data: x", "你好🙂é", "\u2028\u0085\u0000"]
const BODY = new TextEncoder().encode(
  `retry: 2731\r\n\r\n: hello\n\n${TEXTS.map((text) => `event: text\ndata: ${JSON.stringify({ text })}\r\n\r\n`).join("")}id: c1\ndata: {"e":1}\n\n`,
)

const said = (heard: Heard) => [
  heard.blocks.map((block) => [block.event, block.id, JSON.parse(block.data)]),
  heard.retries,
  heard.closed,
]

describe("a stream that is read with fetch", () => {
  it("says the same wherever it is cut, character for character [row BR-58@browser BR-59@browser]", async () => {
    const whole = await hear(stream([BODY]))
    expect(whole.blocks.slice(0, -1).map((block) => JSON.parse(block.data).text)).toEqual(TEXTS)
    expect(whole.blocks.at(-1)).toMatchObject({ id: "c1", data: '{"e":1}' })
    expect(whole.retries).toEqual([2731])
    for (let at = 1; at < BODY.length; at += 1)
      expect(said(await hear(stream([BODY.slice(0, at), BODY.slice(at)])))).toEqual(said(whole))
    const bytes = await hear(stream([...BODY].map((byte) => Uint8Array.of(byte))))
    expect(said(bytes)).toEqual(said(whole))
    expect(bytes.bytes).toBe(BODY.length)
  })

  it("passes over what is incomplete at its end [row F59@browser]", async () => {
    for (let at = BODY.length - 1; at > BODY.length - 17; at -= 1)
      expect((await hear(stream([BODY.slice(0, at)]))).blocks.length).toBe(TEXTS.length)
  })

  it("is closed when the answer is no stream, or none comes", async () => {
    expect(await hear(stream([BODY], "text/html"))).toMatchObject({ blocks: [], closed: 1, statuses: [] })
    expect(await hear(new TypeError("no network"))).toMatchObject({ blocks: [], closed: 1 })
  })

  it("says what a refusal said", async () => {
    const problem = {
      type: "urn:playhead:problem:forbidden",
      title: "No.",
      status: 403,
      code: "forbidden",
      detail: "No.",
      retryable: false,
    }
    const refused = await hear(Response.json(problem, { status: 403, headers: { "Retry-After": "3" } }))
    expect(refused.statuses).toEqual([[403, 3_000, problem]])
    const date = new Date(Date.now() + 60_000).toUTCString()
    const [[status, wait, unknown]] = (
      await hear(new Response("<p>", { status: 502, headers: { "Retry-After": date } }))
    ).statuses as [[number, number, Problem]]
    expect([status, unknown.code]).toEqual([502, "unknown"])
    expect(wait).toBeGreaterThan(50_000)
    expect((await hear(new Response(null, { status: 204 }))).statuses[0]?.[0]).toBe(204)
  })

  it("says nothing more once it was closed from here", async () => {
    const heard = await hear(stream([BODY, BODY, BODY]), 1)
    expect(heard).toMatchObject({ bytes: 1, closed: 0 })
    expect(heard.blocks.length).toBe(TEXTS.length + 1)
  })
})
