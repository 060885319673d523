import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { createClientIn } from "../src/client"
import type { Client, RunStore } from "../src/types"
import { Browser, type Tab } from "./support/environment"
import type { ServedRun } from "./support/run"
import { PlayServer } from "./support/server"
import { shown } from "./support/shown"

let server: PlayServer
let browser: Browser
let tab: Tab
let client: Client

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
  tab = browser.tab()
  client = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: false })
})

afterEach(() => server.close())

/** Follow, and remember every word that the view said of the connection and the run. */
function watch(run: ServedRun) {
  const store = client.follow(run.id)
  const said: string[] = [store.get().connection]
  store.subscribe(() => said.push(store.get().connection))
  return { store, said }
}

const status = ({ run }: { run: unknown }) => run
const arrived = (store: RunStore, run: ServedRun) => {
  const { run: known, ...rest } = shown(store.get())
  const { run: truth, ...other } = run.truth()
  return JSON.stringify([known?.status, rest]) === JSON.stringify([truth.status, other])
}
const all = (store: RunStore, run: ServedRun) =>
  browser.until(() => arrived(store, run), "the client shows what is true")

describe("following a run", () => {
  it("loads the bootstrap, then streams from its cursor [row BR-11@browser]", async () => {
    const run = server.add().start()
    run.say("Hello")
    const { store, said } = watch(run)
    await browser.until(() => store.get().connection === "live", "live")
    run.publish("step", { n: 1 }, { progress: 10 })
    run.say(", you")
    await all(store, run)
    expect(server.seen).toEqual([
      `GET /runs/${run.id}/bootstrap?limit=50`,
      expect.stringMatching(new RegExp(`^GET /runs/${run.id}/stream\\?resync=inline&cursor=.+&text=1.answer:5$`)),
    ])
    expect([...server.streams][0]?.headers.accept).toBe("text/event-stream; client=playhead")
    expect(new Set(said)).toEqual(new Set(["connecting", "live"]))
    expect(status(store.get())).toMatchObject({ status: "running" })
  })

  it("shows the record's result when it ends, and opens nothing more", async () => {
    const run = server.add().start()
    run.say("Hel")
    const { store } = watch(run)
    await browser.until(() => store.get().text.length > 0)
    run.say("lo")
    run.end("succeeded", { answer: "Hello." })
    await browser.until(() => store.get().text.length === 0, "the text is replaced")
    expect(store.get()).toMatchObject({
      connection: "ended",
      run: { status: "succeeded", result: { answer: "Hello." } },
    })
    const requests = server.seen.length
    await browser.pass(120_000)
    expect(server.seen.length).toBe(requests)
    expect(server.streams.size).toBe(0)
  })

  it("reports reconnecting and never failed, however often the socket is reset", async () => {
    const run = server.add().start()
    const { store, said } = watch(run)
    for (let turn = 0; turn < 5; turn += 1) {
      await browser.until(() => store.get().connection === "live")
      run.publish("step", { turn })
      server.cutAll()
      await browser.until(() => store.get().connection === "reconnecting")
      run.publish("missed", { turn })
    }
    await browser.until(() => store.get().connection === "live")
    run.end()
    await all(store, run)
    expect(new Set(said)).toEqual(new Set(["connecting", "live", "reconnecting", "ended"]))
    expect(server.most).toBe(1)
  })

  it("returns after a clean close without an end, and lacks nothing [row F55@browser]", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => server.streams.size === 1 && store.get().connection === "live")
    for (const stream of server.streams) stream.end()
    run.publish("meanwhile")
    await browser.until(() => server.count(/stream/) === 2)
    await all(store, run)
  })

  it.each([
    [401, "unauthenticated"],
    [403, "forbidden"],
    [404, "not_found"],
  ])("is refused by %i, by name and for good", async (status, code) => {
    const run = server.add().start()
    server.reply = (_, url) => (url.pathname.endsWith("/stream") ? { status, code } : null)
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "refused")
    expect(store.get().problem).toMatchObject({ status, code })
    const requests = server.seen.length
    await browser.pass(120_000)
    expect(server.seen.length).toBe(requests)
    server.reply = () => null
    await store.refresh()
    await browser.until(() => store.get().connection === "live", "it follows again when it is asked to")
    expect(store.get().problem).toBeNull()
  })

  it("names a run that is not there", async () => {
    const store = client.follow("01a20000-0000-7000-8000-00000000dead")
    await browser.until(() => store.get().connection === "refused")
    expect(store.get().problem).toMatchObject({ status: 404, code: "not_found" })
    await expect(store.refresh()).rejects.toMatchObject({ status: 404, code: "not_found" })
  })

  it("obeys Retry-After", async () => {
    const run = server.add().start()
    let refused = 0
    server.reply = (_, url) => {
      if (!url.pathname.endsWith("/stream") || refused++ > 0) return null
      return { status: 429, code: "too_many_streams", headers: { "Retry-After": "20" }, retryable: true }
    }
    const { store } = watch(run)
    await browser.until(() => refused === 1)
    const at = browser.time
    await browser.until(() => store.get().connection === "live")
    expect(browser.time - at).toBeGreaterThanOrEqual(20_000)
  })

  it("is sent to the server's successor and not back before it was told", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    const at = browser.time
    for (const stream of server.streams) {
      stream.write('retry: 8000\n\nevent: draining\ndata: {"retry_ms":8000}\n\n')
      stream.end()
    }
    await browser.until(() => store.get().connection === "reconnecting")
    run.publish("meanwhile")
    await all(store, run)
    expect(browser.time - at).toBeGreaterThanOrEqual(8_000)
  })

  it("waits at least as long as the stream told", async () => {
    server.retry = 7_000
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    server.cutAll()
    const at = browser.time
    await browser.until(() => server.count(/stream/) === 2)
    expect(browser.time - at).toBeGreaterThanOrEqual(7_000)
  })

  it("takes silence for a dead connection, and keep-alives for a living one", async () => {
    const run = server.add().start()
    const { store, said } = watch(run)
    await browser.until(() => store.get().connection === "live")
    for (let turn = 0; turn < 5; turn += 1) {
      for (const stream of server.streams) stream.write(":\n\n")
      await browser.pass(15_000)
    }
    expect(said).not.toContain("reconnecting")
    await browser.until(() => said.includes("reconnecting"), "it gives up", 100)
    await browser.until(() => store.get().connection === "live")
  })

  it("is told of a run that ended meanwhile by 204", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    let asked = 0
    server.reply = (_, url) => (url.pathname.endsWith("/stream") && asked++ === 0 ? { status: 204 } : null)
    server.cutAll()
    await browser.until(() => server.streams.size === 0)
    run.end()
    await all(store, run)
    expect(store.get().connection).toBe("ended")
    expect(server.count(/stream/)).toBe(2)
  })

  it.each(["trim", "rebuild"] as const)("resynchronizes inline after a %s", async (what) => {
    const run = server.add().start()
    const { store, said } = watch(run)
    await browser.until(() => store.get().connection === "live")
    server.cutAll()
    await browser.until(() => store.get().connection === "reconnecting")
    for (let turn = 0; turn < 10; turn += 1) run.publish("step", { turn }, { progress: turn })
    if (what === "trim") run.trim(9)
    else run.rebuild()
    await all(store, run)
    run.publish("after")
    await all(store, run)
    expect(server.count(/bootstrap/)).toBe(1)
    expect(said).not.toContain("refused")
  })

  it("follows a rebuild under an open stream", async () => {
    const run = server.add().start()
    run.state({ progress: 50 })
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    run.rebuild()
    run.publish("after", {}, { progress: 60 })
    await all(store, run)
    expect(store.get().snapshot?.version).toBeLessThan(4)
  })

  it("shows a question at once, and the whole of it soon", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    const asked = run.ask("exceptions", "May it?")
    await browser.until(() => store.get().interrupts.length === 1)
    await browser.until(() => (store.get().interrupts[0]?.payload as { all?: boolean })?.all === true)
    await client.decide(run.id, asked.id, { approved: true })
    await browser.until(() => store.get().interrupts.length === 0)
    await all(store, run)
  })

  it("asks again when a bootstrap beside a live stream is degraded, and does not call the stream so", async () => {
    const run = server.add().start()
    const { store, said } = watch(run)
    await browser.until(() => store.get().connection === "live")
    const whole = run.bootstrap
    run.bootstrap = () => ({ ...whole.call(run), degraded: "store_unavailable", cursor: null, interrupts: [] })
    const asked = run.ask("exceptions", "May it?")
    await browser.until(() => server.count(/bootstrap/) === 4)
    expect(said).not.toContain("degraded")
    expect(store.get().interrupts).not.toMatchObject([{ payload: { all: true } }])
    run.bootstrap = whole
    await browser.until(() => (store.get().interrupts[0]?.payload as { all?: boolean })?.all === true)
    expect(server.count(/bootstrap/)).toBe(5)
    await client.decide(run.id, asked.id, { approved: true })
    await all(store, run)
    expect(server.count(/bootstrap/)).toBe(5)
  })

  it("keeps what a late bootstrap does not have yet", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    const late = run.bootstrap()
    run.publish("newer", {}, { progress: 70 })
    await all(store, run)
    server.reply = (_, url) => (url.pathname.endsWith("/bootstrap") ? "hang" : null)
    const current = run.bootstrap
    server.reply = () => null
    run.bootstrap = () => late
    await store.refresh()
    run.bootstrap = current
    await all(store, run)
    run.publish("newest")
    await all(store, run)
  })

  it("heals a gap in a text by a new connection that does not name the part", async () => {
    const run = server.add().start()
    run.say("one ")
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    for (const stream of server.streams)
      stream.write(
        `event: text\ndata: ${JSON.stringify({ part: "answer", attempt: 1, offset: 9, end: 12, text: "gap", final: false })}\n\n`,
      )
    const at = browser.time
    await browser.until(() => server.count(/stream/) === 2)
    expect(browser.time - at).toBeLessThan(4_000)
    run.say("two")
    await all(store, run)
    expect(server.seen.at(-1)).not.toContain("text=")
  })

  it("passes over frames that it does not know or cannot read", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    for (const stream of server.streams)
      stream.write(
        "event: news\ndata: {}\n\nid: 7-7.000000000007\ndata: {broken\n\ndata: []\n\nevent: state\ndata: {}\n\n",
      )
    run.publish("after")
    await all(store, run)
    expect(store.get().cursor).toBe(run.cursor)
  })

  it("drops what a new attempt voids", async () => {
    const run = server.add().start()
    run.say("first try")
    const { store } = watch(run)
    await browser.until(() => store.get().text.length === 1 && store.get().connection === "live")
    run.start()
    run.say("second")
    await all(store, run)
    expect(store.get().text).toMatchObject([{ attempt: 2, text: "second" }])
  })

  it("loads older events in front of those that are shown", async () => {
    const run = server.add().start()
    for (let turn = 0; turn < 120; turn += 1) run.publish("step", { turn })
    const { store } = watch(run)
    await browser.until(() => store.get().events.length === 50)
    await Promise.all([store.older(), store.older()])
    expect(store.get().events.length).toBe(100)
    await store.older()
    await store.older()
    await all(store, run)
    expect(server.count(/events\?/)).toBe(2)
  })

  it("keeps on asking for a bootstrap, and hurries when the network is back", async () => {
    const run = server.add().start()
    let refusals = 0
    server.reply = () => (refusals++ < 4 ? { status: 502 } : null)
    const { store, said } = watch(run)
    await browser.until(() => refusals === 4)
    tab.signal("online")
    await browser.until(() => store.get().connection === "live")
    expect(new Set(said)).toEqual(new Set(["connecting", "live"]))
  })

  it("does not hurry when the server said how long to stay away", async () => {
    const run = server.add().start()
    let refused = 0
    server.reply = () => {
      if (refused++ > 0) return null
      return { status: 503, code: "not_ready", retryable: true, headers: { "Retry-After": "10" } }
    }
    const { store } = watch(run)
    await browser.until(() => refused === 1)
    const at = browser.time
    await browser.pass(1_000)
    tab.signal("online")
    tab.signal("visible")
    await browser.until(() => store.get().connection === "live")
    expect(browser.time - at).toBeGreaterThanOrEqual(10_000)
  })

  it("is not disturbed by what its listeners do", async () => {
    const told: unknown[] = []
    const report = globalThis.reportError
    globalThis.reportError = (error) => told.push(error)
    const run = server.add().start()
    const store = client.follow(run.id)
    let other = 0
    store.subscribe(() => {
      throw new Error("mine")
    })
    store.subscribe(() => {
      other += 1
    })
    await browser.until(() => store.get().connection === "live")
    run.publish("on")
    await all(store, run)
    store.close()
    globalThis.reportError = report
    expect(other).toBeGreaterThan(1)
    expect(told.length).toBe(other)
    expect(server.count(/stream/)).toBe(1)
  })

  it("reads a stream that comes a byte at a time", async () => {
    const run = server.add().start()
    const { store } = watch(run)
    await browser.until(() => store.get().connection === "live")
    const text = "你好🙂é\r\n :colon\ndata: x"
    const piece = { part: "answer", attempt: 1, offset: 0, end: 30, text, final: false }
    const body = Buffer.from(`event: text\ndata: ${JSON.stringify(piece)}\n\n`)
    for (const byte of body) {
      for (const stream of server.streams) stream.write(Uint8Array.of(byte))
      await new Promise((done) => setImmediate(done))
    }
    await browser.until(() => store.get().text.length === 1)
    expect(store.get().text[0]?.text).toBe(text)
  })
})
