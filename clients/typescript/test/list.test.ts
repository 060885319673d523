import { afterEach, beforeEach, expect, it } from "vitest"
import { createClientIn } from "../src/client"
import type { Client, RunsStore } from "../src/types"
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
  client = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: false })
})

afterEach(() => server.close())

const ids = (list: RunsStore) => list.get().runs.map((row) => row.id)
const loaded = (list: RunsStore) => browser.until(() => !list.get().loading)

it("shows the newest first, page by page", async () => {
  const runs = Array.from({ length: 5 }, () => server.add())
  for (const run of runs) run.end()
  const list = client.list({ limit: 2 })
  expect(list.get()).toMatchObject({ runs: [], loading: true, next: null, problem: null })
  await loaded(list)
  const newest = runs.map((run) => run.id).reverse()
  expect(ids(list)).toEqual(newest.slice(0, 2))
  await list.more()
  await list.more()
  expect(ids(list)).toEqual(newest)
  expect(list.get().next).toBeNull()
  await list.more()
  expect(server.count(/GET \/runs\?/)).toBe(3)
})

it("is live: runs that go on are followed on one connection, and end in place", async () => {
  const runs = [server.add().start(), server.add().start(), server.add()]
  const [one, other] = runs
  const list = client.list()
  await browser.until(() => list.get().runs.filter((row) => row.connection === "live").length === 3)
  expect(server.streams.size).toBe(1)
  one?.publish("step", {}, { progress: 40 })
  await browser.until(() => list.get().runs.some((row) => row.snapshot?.progress === 40))
  const before = list.get().runs.find((row) => row.id === one?.id)
  other?.end()
  await browser.until(() => list.get().runs.some((row) => row.run.status === "succeeded" && row.connection === "ended"))
  expect(list.get().runs.find((row) => row.id === one?.id)).toBe(before)
  list.close()
  await browser.until(() => server.streams.size === 0)
})

it("finds new runs and forgets erased ones within five seconds, while somebody looks", async () => {
  const run = server.add()
  const list = client.list()
  await loaded(list)
  const fresh = server.add()
  await browser.until(() => ids(list).length === 2)
  expect(ids(list)).toEqual([fresh.id, run.id])
  server.runs.delete(run.id)
  await browser.until(() => ids(list).length === 1)
  tab.signal("hidden")
  await browser.pass(10_000)
  const read = server.count(/GET \/runs\?/)
  await browser.pass(60_000)
  expect(server.count(/GET \/runs\?/)).toBe(read)
  tab.signal("visible")
  await browser.until(() => server.count(/GET \/runs\?/) > read)
})

it("keeps older pages when the first one is read again", async () => {
  const runs = Array.from({ length: 4 }, () => server.add())
  for (const run of runs) run.end()
  const list = client.list({ limit: 2 })
  await loaded(list)
  await list.more()
  const fresh = server.add()
  await browser.until(() => ids(list).length === 5)
  expect(ids(list)).toEqual([fresh, ...runs.reverse()].map((run) => run.id))
})

it("begins anew when the run behind its last page was erased", async () => {
  const runs = Array.from({ length: 4 }, () => server.add())
  const list = client.list({ limit: 2 })
  await loaded(list)
  server.runs.delete(list.get().next ?? "")
  await list.more()
  expect(ids(list)).toEqual([runs[3]?.id, runs[1]?.id])
})

it("shows what waits for a person, over all runs", async () => {
  const [run, hidden] = [server.add().start(), server.add().start()]
  hidden.ask("other", "And this?")
  const list = client.list({ agent: "reader", labels: { team: "legal" }, key: "k", status: ["running", "waiting"] })
  await browser.until(() => list.get().interrupts.length === 1 && server.streams.size === 1)
  expect(server.seen[0]).toBe("GET /runs?limit=50&status=running&status=waiting&label=team%3Alegal&agent=reader&key=k")
  await browser.until(() => list.get().runs.every((row) => row.connection === "live"))
  const at = browser.time
  const asked = run.ask("exceptions", "May it?")
  await browser.until(() => list.get().interrupts.length === 2)
  expect(browser.time - at).toBeLessThan(2_000)
  run.decide(asked.id, { approved: true })
  await browser.until(() => list.get().interrupts.length === 1)
})

it("says why it cannot be read, goes on trying, and keeps what it has", async () => {
  server.add()
  const list = client.list()
  await loaded(list)
  server.reply = () => ({ status: 503, code: "not_ready", retryable: true, headers: { "Retry-After": "7" } })
  await browser.until(() => list.get().problem !== null)
  expect(list.get()).toMatchObject({ problem: { code: "not_ready" }, runs: [{}] })
  server.reply = () => null
  await browser.until(() => list.get().problem === null)
  server.reply = () => ({ status: 403, code: "forbidden" })
  await browser.until(() => list.get().problem?.code === "forbidden")
  const asked = server.seen.length
  await browser.pass(60_000)
  expect(server.count(/GET \/runs\?/)).toBe(
    server.seen.slice(0, asked).filter((one) => /GET \/runs\?/.test(one)).length,
  )
})

it("is a glance: one event of each run is read, and the rest when somebody looks at it", async () => {
  const run = server.add().start()
  for (let turn = 0; turn < 5; turn += 1) run.publish("step", { turn })
  const list = client.list()
  await browser.until(() => list.get().runs[0]?.connection === "live")
  expect(server.count(/bootstrap\?limit=1$/)).toBe(1)
  const store = client.follow(run.id)
  await browser.until(() => store.get().events.length === run.archive.length)
  run.publish("on")
  await browser.until(() => store.get().events.length === run.archive.length)
  expect(store.get().events.map((event) => event.id)).toEqual(run.truth().events)
  expect(server.count(/bootstrap/)).toBe(1)
})

it("forgets what may not be read any more", async () => {
  const [run, other] = [server.add().start(), server.add().start()]
  run.publish("step", {}, { title: "a secret" })
  run.ask("k", "a secret?")
  const list = client.list()
  await browser.until(() => list.get().runs.every((row) => row.connection === "live") && ids(list).length === 2)
  const row = () => list.get().runs.find(({ id }) => id === run.id)
  expect(row()?.snapshot).toMatchObject({ title: "a secret" })
  server.reply = (_, url) => (/stream|bootstrap/.test(url.pathname) ? { status: 403, code: "forbidden" } : null)
  server.cutAll()
  await browser.until(() => row()?.connection === "refused")
  expect(row()?.snapshot).toBeNull()
  server.reply = () => ({ status: 401, code: "unauthenticated" })
  await browser.until(() => list.get().problem !== null)
  expect(list.get()).toMatchObject({ runs: [], next: null, interrupts: [], problem: { status: 401 } })
  server.reply = () => null
  tab.signal("visible")
  await browser.until(() => list.get().problem === null && ids(list).length === 2)
  expect(ids(list)).toContain(other.id)
})
