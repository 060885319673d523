import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { createClientIn } from "../src/client"
import type { RunStore } from "../src/types"
import { Browser, Memory, type Tab } from "./support/environment"
import type { ServedRun } from "./support/run"
import { PlayServer } from "./support/server"
import { shown } from "./support/shown"

let server: PlayServer
let browser: Browser
let storage: Memory

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
  storage = new Memory()
})

afterEach(() => server.close())

/** The page is loaded; what is kept is of the same tab. */
function load(run: ServedRun): { tab: Tab; store: RunStore } {
  const tab = browser.tab()
  const client = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: false, storage })
  return { tab, store: client.follow(run.id) }
}

function leave(tab: Tab): void {
  tab.signal("freeze")
  tab.crash()
}

const keyOf = (run: ServedRun) => `playhead ${server.base} ${run.id}`
const keptOf = (run: ServedRun) => JSON.parse(storage.items.get(keyOf(run)) ?? "null")

async function shows(store: RunStore, run: ServedRun): Promise<void> {
  const { run: _, ...truth } = run.truth()
  await browser.until(() => {
    const { run: __, ...view } = shown(store.get())
    return JSON.stringify(view) === JSON.stringify(truth)
  }, "it shows what is true")
}

async function seen(run: ServedRun): Promise<Tab> {
  const { tab, store } = load(run)
  await browser.until(() => store.get().connection === "live")
  await shows(store, run)
  return tab
}

describe("a page that is loaded again", () => {
  it("shows at once what it had, and goes on from its cursor", async () => {
    const run = server.add().start()
    run.say("Hello")
    run.publish("step")
    leave(await seen(run))
    const cursor = run.cursor
    run.publish("meanwhile")
    run.say(", you")
    const { store } = load(run)
    expect(store.get()).toMatchObject({ connection: "connecting", text: [{ text: "Hello" }], cursor })
    expect(store.get().events.length).toBe(3)
    await shows(store, run)
    expect(server.seen.at(-1)).toContain(`cursor=${cursor}`)
    expect(server.seen.at(-1)).toContain("text=1.answer:5")
  })

  it("keeps the state and its place together, now and then and when the page goes", async () => {
    const run = server.add().start()
    const { store } = load(run)
    await browser.until(() => store.get().connection === "live")
    expect(storage.items.size).toBe(0)
    await browser.until(() => keptOf(run) !== null)
    for (let turn = 0; turn < 10; turn += 1) {
      run.publish("step", { turn })
      await browser.until(() => keptOf(run).screen.cursor === run.cursor)
      expect(keptOf(run).screen.events.at(-1).id).toBe(run.archive.at(-1)?.id)
    }
  })

  it("learns of an end, of a rebuild, and of what was trimmed", async () => {
    for (const happens of [
      (run: ServedRun) => run.end(),
      (run: ServedRun) => run.rebuild(),
      (run: ServedRun) => run.trim(run.entries.length - 1),
    ]) {
      const run = server.add().start()
      run.publish("step")
      leave(await seen(run))
      run.publish("meanwhile")
      happens(run)
      const { tab, store } = load(run)
      expect(store.get().events.length).toBe(3)
      await shows(store, run)
      if (run.isFinal) expect(store.get().connection).toBe("ended")
      leave(tab)
    }
  })

  it.each([
    ["nothing", ""],
    ["no JSON", "{"],
    ["something else", JSON.stringify({ version: 1, screen: { run: {}, events: 7 } })],
    ["null", "null"],
  ])("begins anew when %s is kept", async (_, value) => {
    const run = server.add().start()
    storage.setItem(keyOf(run), value)
    const { store } = load(run)
    expect(store.get().events).toEqual([])
    await shows(store, run)
  })

  it("begins anew when what is kept is of another version", async () => {
    const run = server.add().start()
    leave(await seen(run))
    storage.setItem(keyOf(run), JSON.stringify({ ...JSON.parse(storage.getItem(keyOf(run)) ?? ""), version: 0 }))
    expect(load(run).store.get().events).toEqual([])
  })

  it("keeps nothing of another run under this one's name", async () => {
    const [run, other] = [server.add().start(), server.add().start()]
    leave(await seen(other))
    storage.setItem(keyOf(run), storage.getItem(keyOf(other)) ?? "")
    const { store } = load(run)
    expect(store.get().events).toEqual([])
    await shows(store, run)
  })

  it("keeps no more than its share: text goes first, then the run, then the oldest runs", async () => {
    const long = server.add().start()
    long.say("x".repeat(300_000))
    leave(await seen(long))
    expect(keptOf(long).screen.text).toEqual([])
    const { store } = load(long)
    expect(store.get().text).toEqual([])
    await shows(store, long)
    const big = server.add().start()
    big.publish("step", { x: "x".repeat(300_000) })
    leave(await seen(big))
    expect(keptOf(big)).toBeNull()
    const runs = Array.from({ length: 9 }, () => server.add().start())
    for (const run of runs) leave(await seen(run))
    expect(storage.items.size).toBe(8 + 1)
    expect(keptOf(runs[0] as ServedRun)).toBeNull()
    for (const run of runs.slice(1)) expect(keptOf(run)).not.toBeNull()
  })

  it("does without where there is no room", async () => {
    storage.setItem = () => {
      throw new DOMException("full", "QuotaExceededError")
    }
    const run = server.add().start()
    leave(await seen(run))
    expect(storage.items.size).toBe(0)
  })

  it("forgets what may not be read any more", async () => {
    const run = server.add().start()
    leave(await seen(run))
    server.runs.delete(run.id)
    const { store } = load(run)
    await browser.until(() => store.get().connection === "refused")
    expect(keptOf(run)).toBeNull()
    expect(store.get()).toMatchObject({ run: null, snapshot: null, events: [], problem: { status: 404 } })
  })
})
