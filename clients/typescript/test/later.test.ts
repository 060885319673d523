import { afterEach, beforeEach, expect, it, vi } from "vitest"
import type { Listener } from "../src/sse"
import type { Client, ClientOptions, RunStore } from "../src/types"
import { Browser, type Tab } from "./support/environment"
import { PlayServer } from "./support/server"

let server: PlayServer
let browser: Browser

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
})

afterEach(() => {
  vi.doUnmock("../src/lines")
  vi.doUnmock("../src/share")
  vi.doUnmock("../src/list")
  vi.doUnmock("../src/native")
  return server.close()
})

/** A client of a page that has not loaded any of its later parts. */
async function load(tab: Tab, options: ClientOptions = {}): Promise<Client> {
  vi.resetModules()
  const { createClientIn } = await import("../src/client")
  return createClientIn(tab, { base: server.base, fetch: tab.fetch, share: true, ...options })
}

const gone = () => {
  throw new TypeError("Failed to fetch dynamically imported module")
}
const live = (...stores: RunStore[]) =>
  browser.until(() => stores.every((store) => store.get().connection === "live"), "all are live")

it("what follows comes beside the first screen, and a page that does not get it reads until it is there", async () => {
  let asked = 0
  vi.doMock("../src/lines", () => (++asked < 4 ? gone() : vi.importActual("../src/lines")))
  const run = server.add().start()
  const client = await load(browser.tab(), { share: false })
  await browser.until(() => asked === 1)
  expect(server.seen).toEqual([])
  const store = client.follow(run.id)
  await browser.until(() => store.get().run !== null)
  expect([store.get().connection, server.count(/stream/)]).toEqual(["connecting", 0])
  run.publish("meanwhile")
  await browser.until(() => store.get().events.length === run.truth().events.length, "it is read again")
  expect(asked).toBeLessThan(4)
  await live(store)
  expect([asked, server.count(/stream/)]).toEqual([4, 1])
  run.end()
  await browser.until(() => store.get().connection === "ended")
  expect(store.get().events.map((event) => event.id)).toEqual(run.truth().events)
})

it.each([
  ["cannot be loaded", gone],
  ["does not come", () => new Promise<never>(() => undefined)],
])("a run is read while what follows %s, and no longer than somebody asks for it", async (_, part) => {
  vi.doMock("../src/lines", part)
  const store = (await load(browser.tab())).follow(server.add().start().id)
  await browser.until(() => server.count(/bootstrap/) === 3)
  store.close()
  await browser.pass(120_000)
  expect(server.count(/bootstrap/)).toBe(3)
})

it.each([
  ["cannot be loaded", gone],
  ["does not come", () => new Promise<never>(() => undefined)],
])("a tab whose sharing part %s follows on a connection of its own", async (_, part) => {
  vi.doMock("../src/share", part)
  const [one, other] = [server.add().start(), server.add().start()]
  const tabs = [browser.tab(), browser.tab()]
  const clients = [await load(tabs[0] as Tab), await load(tabs[1] as Tab)]
  const stores = clients.flatMap((client) => [client.follow(one.id), client.follow(other.id)])
  await live(...stores)
  expect(tabs.map((tab) => tab.streams)).toEqual([1, 1])
  server.cutAll()
  one.publish("meanwhile")
  one.end()
  await browser.until(() => stores.filter((store) => store.get().connection === "ended").length === 2)
  for (const store of stores.slice(0, 3))
    expect(store.get().events.map((event) => event.id)).toEqual((store.id === one.id ? one : other).truth().events)
})

it("a run is left that nobody follows any more when the sharing part comes", async () => {
  let come: (part: object) => void = () => undefined
  vi.doMock("../src/share", () => new Promise((done) => (come = done)))
  const tab = browser.tab()
  const store = (await load(tab)).follow(server.add().start().id)
  await browser.until(() => store.get().run !== null)
  store.close()
  await browser.pass(1_500)
  come(await vi.importActual<object>("../src/share"))
  await browser.pass(3_000)
  expect(server.count(/stream/)).toBe(0)
})

it("a page that reads by a native EventSource tries again when that part cannot be loaded", async () => {
  let asked = 0
  const opened: URL[] = []
  const openNative = (url: URL, listener: Listener) => {
    opened.push(url)
    listener.bytes(false)
  }
  vi.doMock("../src/native", () => (++asked < 3 ? gone() : { openNative }))
  const run = server.add().start()
  const store = (await load(browser.tab(), { transport: "eventsource", share: false })).follow(run.id)
  await browser.until(() => store.get().connection === "live")
  expect([asked, opened.map(({ pathname }) => pathname)]).toEqual([3, [`/runs/${run.id}/stream`]])
})

it("a native EventSource is not opened for a run that nobody follows any more", async () => {
  const { openNative } = await vi.importActual<typeof import("../src/native")>("../src/native")
  const cut = new AbortController()
  cut.abort()
  // Where there is no EventSource, opening one would throw.
  expect(openNative(new URL(server.base), {} as Listener, cut.signal)).toBeUndefined()
})

it("a list is asked for again when its part cannot be loaded, and says so meanwhile", async () => {
  let asked = 0
  vi.doMock("../src/list", () => (++asked < 3 ? gone() : vi.importActual("../src/list")))
  const run = server.add().start()
  const list = (await load(browser.tab())).list()
  let told = 0
  list.subscribe(() => {
    told += 1
  })
  expect(list.get()).toMatchObject({ runs: [], loading: true, problem: null })
  await browser.until(() => list.get().problem !== null)
  expect(list.get()).toMatchObject({ runs: [], loading: false, problem: { code: "unreachable", retryable: true } })
  expect(told).toBeGreaterThan(0)
  await list.more()
  await browser.until(() => list.get().runs[0]?.connection === "live")
  expect([asked, list.get().runs[0]?.id, list.get().problem]).toEqual([3, run.id, null])
})

it("a list that is closed is not loaded any more", async () => {
  let asked = 0
  vi.doMock("../src/list", () => {
    asked += 1
    return gone()
  })
  const list = (await load(browser.tab())).list()
  await browser.until(() => asked === 1)
  list.close()
  await browser.pass(120_000)
  expect(asked).toBe(1)
  expect(server.seen).toEqual([])
})
