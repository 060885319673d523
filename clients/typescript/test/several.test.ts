import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
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

const arrived = (store: RunStore, run: ServedRun) => {
  const { run: known, ...rest } = shown(store.get())
  const { run: truth, ...other } = run.truth()
  return JSON.stringify([known?.status, rest]) === JSON.stringify([truth.status, other])
}
const all = (store: RunStore, run: ServedRun) =>
  browser.until(() => arrived(store, run), "the client shows what is true")

describe("following several runs", () => {
  it("shares what is known between all who follow the same run, until the last has closed", async () => {
    const run = server.add().start()
    const one = client.follow(run.id)
    const other = client.follow(run.id)
    await browser.until(() => one.get().connection === "live")
    expect(other.get()).toBe(one.get())
    one.close()
    one.close()
    await browser.pass(5_000)
    expect(server.streams.size).toBe(1)
    run.publish("still")
    await all(other, run)
    other.close()
    await browser.until(() => server.streams.size === 0)
  })

  it("joins several runs on one connection, the new before the old", async () => {
    const runs = [server.add().start(), server.add().start(), server.add().start()]
    const stores = runs.map((run) => client.follow(run.id))
    await browser.until(() => stores.every((store) => store.get().connection === "live"))
    for (const [index, run] of runs.entries()) run.publish("one", { index })
    for (const [index, run] of runs.entries()) await all(stores[index] as RunStore, run)
    expect(server.streams.size).toBe(1)
    const late = server.add().start()
    const { store, said } = watch(late)
    await browser.until(() => store.get().connection === "live")
    await browser.until(() => server.streams.size === 1)
    for (const run of [...runs, late]) {
      run.say("text")
      run.publish("two")
    }
    for (const [index, run] of runs.entries()) await all(stores[index] as RunStore, run)
    await all(store, late)
    expect(said).not.toContain("reconnecting")
    expect(server.most).toBe(2)
    server.cutAll()
    for (const run of [...runs, late]) run.publish("three")
    for (const [index, run] of runs.entries()) await all(stores[index] as RunStore, run)
  })

  it("asks no more for a run that nobody follows", async () => {
    const runs = [server.add().start(), server.add().start(), server.add().start()]
    const stores = runs.map((run) => client.follow(run.id))
    await browser.until(() => stores.every((store) => store.get().connection === "live"))
    stores[1]?.close()
    const asked = () => (tab.fetches.findLast((one) => one.includes("/stream")) ?? "").split(/[?&]/)
    const named = () => runs.map(({ id }) => asked().some((one) => one.startsWith(`run=${id}`)))
    expect(named()).toEqual([true, true, true])
    await browser.pass(2_000)
    expect(named()).toEqual([true, false, true])
    await browser.until(() => server.streams.size === 1)
    for (const run of runs) run.publish("on")
    for (const at of [0, 2]) await all(stores[at] as RunStore, runs[at] as ServedRun)
    const opened = server.count(/stream/)
    await browser.pass(1_000)
    expect(server.count(/stream/)).toBe(opened)
  })

  it("names those of several that are refused, and goes on with the others", async () => {
    const [one, other] = [server.add().start(), server.add().start()]
    const stores = [client.follow(one.id), client.follow(other.id)]
    await browser.until(() => stores.every((store) => store.get().connection === "live"))
    server.runs.delete(other.id)
    server.cutAll()
    await browser.until(() => stores[1]?.get().connection === "refused")
    expect(stores[1]?.get().problem).toMatchObject({ status: 404, code: "not_found" })
    one.publish("on")
    await all(stores[0] as RunStore, one)
    server.runs.clear()
    server.cutAll()
    await browser.until(() => stores[0]?.get().connection === "refused")
  })

  it("follows the others when one of several ends, without a new connection", async () => {
    const [one, other] = [server.add().start(), server.add().start()]
    const stores = [client.follow(one.id), client.follow(other.id)]
    await browser.until(() => stores.every((store) => store.get().connection === "live"))
    const opened = server.count(/stream/)
    one.end()
    await browser.until(() => stores[0]?.get().connection === "ended")
    other.publish("on")
    await all(stores[1] as RunStore, other)
    await browser.pass(1_000)
    expect(server.count(/stream/)).toBe(opened)
    other.end()
    await browser.until(() => stores[1]?.get().connection === "ended" && server.streams.size === 0)
    await browser.pass(60_000)
    expect(server.count(/stream/)).toBe(opened)
  })
})

it("lets go of who does not listen any more, before the store is closed", async () => {
  setFlagsFromString("--expose-gc")
  const collect = runInNewContext("gc") as () => void
  const store = client.follow(server.add().start().id)
  const gone = Array.from({ length: 50 }, () => {
    const listener = () => undefined
    store.subscribe(listener)()
    return new WeakRef(listener)
  })
  await browser.until(() => {
    collect()
    return gone.every((one) => one.deref() === undefined)
  }, "they are let go")
  store.close()
})
