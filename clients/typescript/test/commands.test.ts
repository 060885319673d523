import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { createClientIn } from "../src/client"
import { createClient, ProblemError } from "../src/index"
import type { Client } from "../src/types"
import { Browser, type Tab } from "./support/environment"
import { PlayServer } from "./support/server"

let server: PlayServer
let browser: Browser
let tab: Tab
let client: Client

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
  tab = browser.tab()
  client = createClientIn(tab, { base: server.base, fetch: tab.fetch })
})

afterEach(() => server.close())

/** The answer, while the clock goes. */
async function soon<T>(answer: Promise<T>): Promise<T> {
  let done = false
  const end = () => {
    done = true
  }
  answer.then(end, end)
  await browser.until(() => done)
  return answer
}

describe("commands", () => {
  it("are one request each", async () => {
    const run = await client.start("reader", { a: 1 }, { labels: { team: "legal" }, key: "k" })
    const served = server.runs.get(run.id)
    served?.start()
    const asked = served?.ask("q", "May it?")
    expect(await client.get(run.id)).toMatchObject({ id: run.id, status: "waiting" })
    expect(await client.agents()).toEqual([])
    expect(await client.decide(run.id, asked?.id ?? "", { approved: false, note: "no" })).toMatchObject({
      status: "decided",
      decision: { approved: false, note: "no" },
    })
    expect(await client.cancel(run.id, "enough")).toMatchObject({ id: run.id })
    expect((await client.bootstrap(run.id, 2)).events.length).toBe(2)
    const page = await client.earlier(run.id, null, 3)
    expect(page.events.length).toBe(3)
    expect((await client.earlier(run.id, page.events[1]?.id, 10)).events.at(-1)).toEqual(page.events[0])
    await client.remove(run.id)
    await expect(client.get(run.id)).rejects.toMatchObject({ status: 404, code: "not_found", retryable: false })
  })

  it.each([
    ["the answer is lost", "cut" as const],
    ["the server starts", { status: 503, code: "not_ready", retryable: true, headers: { "Retry-After": "2" } }],
  ])("a start is sent again when %s, and makes one run", async (_, failure) => {
    let sent = 0
    const bodies = new Set<string>()
    server.reply = (request, url, body) => {
      if (request.method !== "POST" || url.pathname !== "/runs") return null
      bodies.add(JSON.stringify([request.headers["idempotency-key"], body]))
      if (failure === "cut" && sent === 0) {
        const run = server.add()
        server.keys.set(String(request.headers["idempotency-key"]), run.id)
      }
      return sent++ < 2 ? failure : null
    }
    const at = browser.time
    await soon(client.start("reader"))
    expect(sent).toBe(3)
    expect(bodies.size).toBe(1)
    expect(server.runs.size).toBe(1)
    if (failure !== "cut") expect(browser.time - at).toBeGreaterThanOrEqual(4_000)
  })

  it("two starts are two runs, unless the caller gives one key", async () => {
    const [one, other] = await Promise.all([client.start("reader"), client.start("reader")])
    expect(one.id).not.toBe(other.id)
    const [first, again] = [
      await client.start("reader", {}, { idempotencyKey: "mine" }),
      await client.start("reader", {}, { idempotencyKey: "mine" }),
    ]
    expect(again.id).toBe(first.id)
  })

  it("give up after a few tries, and at once when it is no use", async () => {
    server.reply = () => ({ status: 503, code: "not_ready", retryable: true })
    await expect(soon(client.start("reader"))).rejects.toMatchObject({ code: "not_ready", retryable: true })
    expect(server.seen.length).toBe(3)
    server.reply = () => ({ status: 422, code: "invalid_input" })
    await expect(client.start("reader")).rejects.toMatchObject({ status: 422, code: "invalid_input" })
    server.reply = () => ({ status: 503, code: "not_ready", retryable: true, headers: { "Retry-After": "60" } })
    await expect(client.cancel("x")).rejects.toMatchObject({ retryAfter: 60_000 })
    expect(server.seen.length).toBe(5)
  })

  it("reject with a problem also when there is none in the answer", async () => {
    server.reply = () => "cut"
    const lost = await client.get("x").catch((error: unknown) => error)
    expect(lost).toBeInstanceOf(ProblemError)
    expect(lost).toMatchObject({ status: 0, code: "unreachable", retryable: true })
    const html = createClient({
      base: server.base,
      fetch: async () => new Response("<h1>Bad gateway</h1>", { status: 502 }),
    })
    await expect(html.get("x")).rejects.toMatchObject({ status: 502, code: "unknown", retryable: true })
  })

  it("send the headers that are given, asked for each time", async () => {
    let asked = 0
    const seen: unknown[] = []
    server.reply = (request) => {
      seen.push(request.headers.authorization)
      return null
    }
    const own = createClient({ base: server.base, headers: async () => ({ Authorization: `Bearer ${++asked}` }) })
    await own.agents()
    await own.agents()
    await createClient({ base: server.base, headers: { Authorization: "Bearer x" } }).agents()
    expect(seen).toEqual(["Bearer 1", "Bearer 2", "Bearer x"])
  })

  it("find a server that is mounted below a path", async () => {
    const paths: string[] = []
    server.reply = (_, url) => {
      paths.push(url.pathname)
      return { status: 404, code: "not_found" }
    }
    for (const base of ["mount", "mount/", new URL("mount/?x=1#y", server.base)])
      await createClient({ base: new URL(base, server.base) })
        .agents()
        .catch(() => undefined)
    expect(paths).toEqual(["/mount/agents", "/mount/agents", "/mount/agents"])
  })

  it("can be had where there is no page, and there a server without an address is not reached", async () => {
    const { createClient: create } = await import("../src/client")
    for (const base of ["/playhead/", "playhead", undefined]) {
      const asked: string[] = []
      const client = create({
        ...(base ? { base } : {}),
        fetch: async (url) => {
          asked.push(String(url))
          throw new TypeError()
        },
      })
      await expect(client.get("x")).rejects.toMatchObject({ status: 0 })
      expect(asked[0]).toMatch(/^http:\/\/[a-z.]+\.invalid\/(playhead\/)?runs\/x$/)
    }
  })

  it("do not pretend that a native EventSource sends headers", () => {
    expect(() => createClient({ base: server.base, transport: "eventsource", headers: {} })).toThrow(TypeError)
  })
})
