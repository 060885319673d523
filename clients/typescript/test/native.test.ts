import { EventSource } from "eventsource"
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
  globalThis.EventSource = EventSource as unknown as typeof globalThis.EventSource
  server = await new PlayServer().listen()
  browser = new Browser()
  tab = browser.tab()
  client = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: false, transport: "eventsource" })
})

afterEach(async () => {
  Reflect.deleteProperty(globalThis, "EventSource")
  await server.close()
})

const all = (store: RunStore, run: ServedRun) =>
  browser.until(() => {
    const { run: known, ...rest } = shown(store.get())
    const { run: truth, ...other } = run.truth()
    return JSON.stringify([known?.status, rest]) === JSON.stringify([truth.status, other])
  }, "it shows what is true")

describe("with a native EventSource", () => {
  it("shows the same", async () => {
    const run = server.add().start()
    const store = client.follow(run.id)
    await browser.until(() => store.get().connection === "live")
    run.say("Hello")
    run.publish("step", {}, { progress: 3 })
    await all(store, run)
    expect(tab.fetches.filter((one) => one.includes("/stream"))).toEqual([])
    expect([...server.streams][0]?.headers.accept).toBe("text/event-stream")
    run.end()
    await all(store, run)
    expect(store.get().connection).toBe("ended")
    await browser.pass(60_000)
    expect(server.count(/stream/)).toBe(1)
  })

  it("comes back by its own rules, and from its cursor", async () => {
    const run = server.add().start()
    const stores = [client.follow(run.id), client.follow(server.add().start().id)]
    await browser.until(() => stores.every((store) => store.get().connection === "live"))
    server.cutAll()
    await browser.until(() => stores[0]?.get().connection === "reconnecting")
    run.publish("meanwhile")
    await all(stores[0] as RunStore, run)
    await browser.until(() => server.streams.size === 1)
  })

  it("finds out why it was closed for good", async () => {
    const [one, other] = [server.add().start(), server.add().start()]
    const stores = [client.follow(one.id), client.follow(other.id)] as const
    await browser.until(() => stores.every((store) => store.get().connection === "live"))
    server.reply = (_, url) => (/stream/.test(url.pathname) ? { status: 403, code: "forbidden" } : null)
    server.runs.delete(other.id)
    server.cutAll()
    await browser.until(() => stores[1].get().connection === "refused")
    expect(stores[1].get().problem?.code).toBe("not_found")
    one.end()
    await browser.until(() => stores[0].get().connection === "ended")
  })

  it("hears no keep-alive, and so never takes silence for death", async () => {
    const run = server.add().start()
    const store = client.follow(run.id)
    await browser.until(() => store.get().connection === "live")
    await browser.pass(200_000)
    expect(server.count(/stream/)).toBe(1)
  })
})
