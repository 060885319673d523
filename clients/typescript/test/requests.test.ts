import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { createClient, createClientIn } from "../src/client"
import type { ProblemError } from "../src/problem"
import type { ClientOptions } from "../src/types"
import { Browser } from "./support/environment"
import { ServedRun } from "./support/run"
import { PlayServer } from "./support/server"

type Fetch = (url: URL, init: RequestInit) => Promise<Response> | Response

const client = (fetch: Fetch, more: ClientOptions = {}) =>
  createClient({ base: "http://host/", fetch: fetch as never, share: false, storage: null, ...more })
const refusal = (asked: Promise<unknown>) => asked.then(() => null).catch((error: ProblemError) => error)
const json = (body: unknown) => new Response(JSON.stringify(body))
const turn = globalThis.setImmediate // of the machine, also where timers are faked
/** What does not go by timers, as the loading of code does. */
const until = async (done: () => unknown) => {
  while (!done()) await new Promise((go) => turn(go))
}
const never = <T>() => new Promise<T>(() => undefined)

describe("a request that is not answered", () => {
  beforeEach(() => vi.useFakeTimers())
  afterEach(() => vi.useRealTimers())

  it.each<[string, Fetch, ClientOptions?]>([
    ["by anybody", () => never()],
    ["to its end", () => new Response(new ReadableStream({ start: (to) => to.enqueue(new Uint8Array([34])) }))],
    ["to its end, being a refusal", () => new Response(new ReadableStream(), { status: 404 })],
    ["since its headers do not come", () => json({}), { headers: () => never<HeadersInit>() }],
  ])("%s is given up after 30 s, and was not reached", async (_, fetch, more) => {
    let signal: AbortSignal | null | undefined
    const asked = refusal(
      client((url, init) => {
        signal = init.signal
        return fetch(url, init)
      }, more).get("x"),
    )
    await vi.advanceTimersByTimeAsync(29_900)
    expect(await Promise.race([asked, "open"])).toBe("open")
    await vi.advanceTimersByTimeAsync(200)
    expect(await Promise.race([asked, "open"])).toMatchObject({ status: 0, code: "unreachable", retryable: true })
    if (!more) expect(signal?.aborted).toBe(true)
  })

  it("is not meant where the answer goes on coming, however long it takes", async () => {
    const pieces = [...JSON.stringify({ id: "x" })]
    const body = new ReadableStream({
      pull: async (to) => {
        await new Promise((done) => setTimeout(done, 20_000))
        const piece = pieces.shift()
        if (piece === undefined) to.close()
        else to.enqueue(new TextEncoder().encode(piece))
      },
    })
    const asked = client(() => new Response(body)).get("x")
    await vi.advanceTimersByTimeAsync(300_000)
    expect(await asked).toEqual({ id: "x" })
    expect(vi.getTimerCount()).toBe(0)
  })

  it("does not keep a run from being read", async () => {
    const run = new ServedRun().start()
    let asked = 0
    const store = client((url) => {
      if (url.pathname.endsWith("/stream")) return never()
      return asked++ === 0 ? never() : json(run.bootstrap())
    }).follow(run.id)
    await vi.dynamicImportSettled()
    await vi.advanceTimersByTimeAsync(40_000)
    await until(() => store.get().run)
    expect([store.get().run?.id, asked]).toEqual([run.id, 2])
    store.close()
  })

  it("does not keep a list from being read again, nor older events from being asked for", async () => {
    const run = new ServedRun().start()
    for (let turn = 0; turn < 60; turn += 1) run.publish("step")
    let hung = 0
    const own = client((url) => {
      if (/stream$/.test(url.pathname)) return never()
      if (/bootstrap$/.test(url.pathname)) return json(run.bootstrap())
      if (/events|interrupts/.test(url.pathname) && hung++ < 2) return never()
      if (url.pathname.endsWith("/events")) return json(run.page(url.searchParams.get("before"), 50))
      return json(url.pathname === "/interrupts" ? { interrupts: [] } : { runs: [run.run], next: null })
    })
    const [list, store] = [own.list(), own.follow(run.id)]
    await vi.dynamicImportSettled()
    await until(() => hung === 1 && store.get().run)
    const first = refusal(store.older())
    await until(() => hung === 2)
    await vi.advanceTimersByTimeAsync(45_000)
    await until(() => list.get().runs.length > 0)
    expect(list.get()).toMatchObject({ runs: [{ id: run.id }], problem: null })
    expect(await first).toMatchObject({ status: 0 })
    await store.older()
    expect(store.get().events.length).toBe(run.archive.length)
    expect(hung).toBeGreaterThan(2)
    list.close()
    store.close()
  })

  it("is sent again where twice is the same as once", async () => {
    let asked = 0
    const decided = client(() => (asked++ === 0 ? never() : json({ id: "i" }))).decide("x", "i", { approved: true })
    await vi.advanceTimersByTimeAsync(31_000)
    expect(await decided).toEqual({ id: "i" })
  })
})

describe("when to come back", () => {
  const HOUR = 3_600_000
  const LOCAL = Date.parse("2026-01-01T03:00:00Z") // three hours behind the server's
  const THEN = "Thu, 01 Jan 2026 06:00:00 GMT"

  beforeEach(() => vi.useFakeTimers({ now: LOCAL, toFake: ["Date"] }))
  afterEach(() => vi.useRealTimers())

  it.each<[string | null, number | null, string?]>([
    [null, null],
    ["", null],
    ["soon", null],
    ["0", 0],
    ["-5", 0],
    ["1.5", 1_500],
    ["2600000", HOUR],
    ["Infinity", HOUR],
    ["Thu, 01 Jan 2026 06:00:05 GMT", 5_000, THEN],
    ["Thu, 01 Jan 2026 05:00:00 GMT", 0, THEN],
    ["Tue, 10 Feb 2026 06:00:00 GMT", HOUR, THEN],
    ["Thu, 01 Jan 2026 03:00:07 GMT", 7_000],
    ["Thu, 01 Jan 2026 03:00:07 GMT", 7_000, "nonsense"],
  ])("is what the server says by its own clock, and an hour at most: %s", async (told, wait, date) => {
    const headers = new Headers()
    if (told !== null) headers.set("Retry-After", told)
    if (date) headers.set("Date", date)
    const error = await refusal(client(() => new Response("{}", { status: 503, headers })).get("x"))
    expect(error?.retryAfter).toBe(wait)
  })

  it.each([408, 429, 500, 502, 503, 504])("%i says: again, whoever says it", async (status) => {
    for (const body of ["<h1>Time-out</h1>", '{"code": "bad", "detail": "It is bad."}', '{"detail": "It is bad."}']) {
      const error = await refusal(client(() => new Response(body, { status })).get("x"))
      expect(error).toMatchObject({ status, retryable: true })
    }
  })

  it("a server that says that it is no use is believed", async () => {
    const told = { status: 503, code: "bad", detail: "It is bad.", retryable: false }
    const error = await refusal(client(() => new Response(JSON.stringify(told), { status: 503 })).get("x"))
    expect(error).toMatchObject(told)
  })
})

describe("whoever was told to wait", () => {
  let server: PlayServer
  beforeEach(async () => {
    server = await new PlayServer().listen()
  })
  afterEach(() => server.close())

  it.each(["run", "list"])("comes back then and not before when somebody looks again (%s)", async (what) => {
    const browser = new Browser()
    const tab = browser.tab()
    tab.random = () => 0.9
    const run = server.add().start()
    const own = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: false })
    let refused = 0
    server.reply = () => {
      if (refused > 1) return null
      refused += 1
      return { status: 503, code: "not_ready", retryable: true, headers: { "Retry-After": "60" } }
    }
    const list = what === "list" ? own.list() : null
    const store = list ? null : own.follow(run.id)
    if (store) refused = 1 // a list asks for two things at once
    await browser.until(() => refused === 2 && list?.get().problem !== null)
    const at = browser.time
    await browser.pass(30_000)
    for (const signal of ["hidden", "visible", "online"] as const) tab.signal(signal)
    await browser.pass(20_000)
    expect(server.seen.length).toBe(list ? 2 : 1)
    await browser.until(() => (list?.get().runs[0] ?? store?.get().run) != null)
    expect(browser.time - at).toBeGreaterThan(59_000)
    expect(browser.time - at).toBeLessThan(75_000)
  })

  it("is not kept waiting by a proxy that had no time", async () => {
    const browser = new Browser()
    const tab = browser.tab()
    const statuses = [408, 502, 504]
    const fetch = async (...asked: Parameters<typeof tab.fetch>) => {
      const status = statuses.shift()
      return status ? new Response("<h1>Time-out</h1>", { status }) : tab.fetch(...asked)
    }
    const store = createClientIn(tab, { base: server.base, fetch, share: false }).follow(server.add().start().id)
    await browser.until(() => store.get().connection === "live")
    expect(store.get().problem).toBeNull()
  })
})
