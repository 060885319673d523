import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { createClientIn } from "../src/client"
import type { Client, RunStore } from "../src/types"
import { Browser, chance, type Tab } from "./support/environment"
import type { ServedRun } from "./support/run"
import { PlayServer } from "./support/server"
import { shown } from "./support/shown"

interface Page {
  tab: Tab
  client: Client
  stores: Map<string, RunStore>
}

let server: PlayServer
let browser: Browser
const pages: Page[] = []

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
  pages.length = 0
})

afterEach(() => server.close())

function open(runs: ServedRun[] = [...server.runs.values()]): Page {
  const tab = browser.tab()
  const client = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: true })
  const page: Page = { tab, client, stores: new Map() }
  pages.push(page)
  for (const run of runs) page.stores.set(run.id, client.follow(run.id))
  return page
}

const awake = () => pages.filter((page) => page.tab.state === "awake")
const follows = (page: Page, run: ServedRun) => page.stores.get(run.id) as RunStore

function has(page: Page, run: ServedRun): boolean {
  const { run: known, ...rest } = shown(follows(page, run).get())
  const { run: truth, ...other } = run.truth()
  return JSON.stringify([known?.status, rest]) === JSON.stringify([truth.status, other])
}

/** What a tab shows that is not so. */
function wrong() {
  for (const page of awake())
    for (const run of server.runs.values())
      if (page.stores.has(run.id) && !has(page, run)) {
        const { connection, cursor } = follows(page, run).get()
        return {
          tab: pages.indexOf(page),
          connection,
          cursor,
          shown: shown(follows(page, run).get()),
          truth: run.truth(),
        }
      }
  return null
}

const everywhere = () =>
  browser.until(() => wrong() === null).catch(() => expect(wrong(), "what a tab shows").toBeNull())

const live = () =>
  browser.until(() =>
    awake().every((page) => [...page.stores.values()].every((one) => one.get().connection === "live")),
  )

const leader = () => {
  const tab = browser.locks.holder(`playhead 2 ${server.base}`)
  return pages.find((page) => page.tab === tab) as Page
}
const others = () => awake().filter((page) => page !== leader())

describe("several tabs", () => {
  it("share one connection, and each shows everything", async () => {
    const run = server.add().start()
    for (let count = 0; count < 8; count += 1) open()
    await live()
    for (let turn = 0; turn < 20; turn += 1) {
      run.publish("step", { turn }, { progress: turn })
      run.say(`${turn} `)
    }
    await everywhere()
    expect(server.streams.size).toBe(1)
    expect(server.most).toBe(1)
    run.end()
    await everywhere()
    expect(pages.every((page) => follows(page, run).get().connection === "ended")).toBe(true)
    expect(server.streams.size).toBe(0)
  })

  it("carry what each of them follows on one connection", async () => {
    const runs = Array.from({ length: 6 }, () => server.add().start())
    for (let index = 0; index < 4; index += 1) open(runs.slice(index, index + 3))
    await live()
    for (const run of runs) {
      run.say("a")
      run.publish("step")
      run.say("b")
    }
    await everywhere()
    expect(server.streams.size).toBe(1)
    expect([...server.streams][0]?.runs.sort()).toEqual(runs.map((run) => run.id).sort())
  })

  it("let go of what nobody follows any more", async () => {
    const runs = [server.add().start(), server.add().start()] as const
    const one = open([runs[0]])
    const other = open([...runs])
    await live()
    other.stores.get(runs[1].id)?.close()
    await browser.until(() => [...server.streams].every((stream) => stream.runs.length === 1))
    one.stores.get(runs[0].id)?.close()
    await browser.pass(3_000)
    expect(server.streams.size).toBe(1)
    other.stores.get(runs[0].id)?.close()
    await browser.until(() => server.streams.size === 0)
  })

  it("let go of what a tab followed that is gone without a word", async () => {
    const runs = [server.add().start(), server.add().start()] as const
    open([runs[0]])
    await live()
    const other = open([...runs])
    await live()
    other.tab.crash()
    await browser.until(() => server.streams.size === 1 && [...server.streams][0]?.runs.length === 1)
  })

  it("hear nobody but the one that leads", async () => {
    const run = server.add().start()
    for (let count = 0; count < 2; count += 1) open()
    await live()
    const before = pages.map((page) => follows(page, run).get())
    const rogue = browser.tab().channel?.(`playhead 2 ${server.base}`)
    const piece = { part: "answer", attempt: 1, offset: 0, end: 3, text: "lie", final: false }
    const said = { is: "frames", from: null, frames: [{ is: "text", piece }] }
    rogue?.postMessage({ is: "said", from: "nobody", to: null, run: run.id, said })
    await browser.pass(100)
    expect(pages.map((page) => follows(page, run).get())).toEqual(before)
  })

  it("join in the middle: a text, a place that is a little behind, a place that is not known", async () => {
    const run = server.add().start()
    run.say("from the beginning ")
    open()
    await live()
    for (let turn = 0; turn < 5; turn += 1) run.publish("step", { turn })
    run.say("to the ")
    await everywhere()
    const late = run.bootstrap()
    run.publish("while its bootstrap was on its way")
    run.say("end")
    const current = run.bootstrap
    run.bootstrap = () => late
    open()
    await browser.until(() => pages[1]?.stores.get(run.id)?.get().connection === "live")
    run.bootstrap = current
    await everywhere()
    for (let turn = 0; turn < 300; turn += 1) run.publish("many", { turn })
    await everywhere()
    run.bootstrap = () => late
    const page = open()
    await browser.until(() => follows(page, run).get().cursor !== null)
    run.bootstrap = current
    await everywhere()
    await browser.until(() => server.streams.size === 1)
  })
})

describe.each([
  ["is closed", (page: Page) => page.tab.signal("freeze"), 100],
  ["crashes", (page: Page) => page.tab.crash(), 100],
  ["freezes without a word", (page: Page) => page.tab.freeze(), 3_000],
])("when the tab that leads %s", (_, happens, within) => {
  it(`another one takes over in less than ${within} ms, and nothing is lost or doubled`, async () => {
    const runs = [server.add().start(), server.add().start()]
    for (let count = 0; count < 4; count += 1) open()
    await live()
    for (const run of runs) run.say("before ")
    await everywhere()
    const old = leader()
    const at = browser.time
    happens(old)
    if (old.tab.state === "awake") old.tab.state = "dead"
    for (const run of runs) {
      run.publish("while nobody led")
      run.say("meanwhile ")
    }
    await everywhere()
    expect(leader()).not.toBe(old)
    expect(browser.time - at).toBeLessThan(within + 200) // 200: what the clock runs ahead of the sockets
    for (const run of runs) run.publish("after")
    await everywhere()
  })
})

it("tabs that were told differently far when the leader went all get what they lack", async () => {
  const run = server.add().start()
  for (let count = 0; count < 4; count += 1) open()
  await live()
  const old = leader()
  const [one, other, third] = others() as [Page, Page, Page]
  for (const [page, text] of [
    [one, "a"],
    [other, "b"],
    [third, "c"],
  ] as const) {
    // Each of them stops a few events after the one before.
    page.tab.freeze()
    for (let turn = 0; turn < 3; turn += 1) run.publish("step", { text, turn })
    run.say(text)
    await everywhere()
  }
  old.tab.crash()
  run.publish("while nobody led")
  for (const page of [third, one, other]) page.tab.thaw()
  await everywhere()
  run.publish("after")
  await everywhere()
})

it("works alone where locks may not be used", async () => {
  const run = server.add().start()
  const tab = browser.tab()
  tab.locks = { request: () => Promise.reject(new DOMException("no", "SecurityError")) } as unknown as LockManager
  const client = createClientIn(tab, { base: server.base, fetch: tab.fetch, share: true })
  const page = { tab, client, stores: new Map([[run.id, client.follow(run.id)]]) }
  pages.push(page)
  await live()
  run.publish("step")
  await everywhere()
  tab.signal("freeze")
  await browser.until(() => server.streams.size === 0)
  tab.signal("resume")
  await live()
})

it("a tab has its own connection where locks or channels are missing, or headers or a fetch of its own are given", async () => {
  const run = server.add().start()
  open()
  const without = browser.tab()
  without.locks = null
  const own = browser.tab()
  const clients = [
    createClientIn(without, { base: server.base, fetch: without.fetch, share: true }),
    createClientIn(own, { base: server.base, fetch: own.fetch }),
  ]
  const stores = clients.map((client) => client.follow(run.id))
  await live()
  await browser.until(() => stores.every((store) => store.get().connection === "live"))
  expect(server.streams.size).toBe(3)
  for (const one of [{ headers: { Authorization: "Bearer x" } }, { headers: () => ({}) }]) {
    const store = createClientIn(own, { base: server.base, ...one }).follow(run.id)
    await browser.until(() => store.get().connection === "live")
    expect(server.streams.size).toBe(4)
    store.close()
    await browser.until(() => server.streams.size === 3)
  }
  const shared = browser.tab()
  createClientIn(shared, { base: server.base, fetch: shared.fetch, headers: {}, share: true }).follow(run.id)
  await browser.pass(2_000)
  expect(server.streams.size).toBe(3)
})

it("a leader that thaws learns that it was replaced, and follows", async () => {
  const run = server.add().start()
  for (let count = 0; count < 3; count += 1) open()
  await live()
  const old = leader()
  old.tab.freeze()
  await browser.until(() => leader() !== old)
  run.publish("while it was frozen")
  await everywhere()
  old.tab.thaw()
  run.publish("after it thawed")
  await everywhere()
  expect(leader()).not.toBe(old)
  await browser.until(() => server.streams.size === 1)
  expect(old.tab.streams).toBe(0)
})

it("a tab that froze and thaws has everything at once, without being loaded anew", async () => {
  const run = server.add().start()
  for (let count = 0; count < 2; count += 1) open()
  await live()
  const [page] = others() as [Page]
  page.tab.signal("freeze")
  page.tab.freeze()
  for (let turn = 0; turn < 300; turn += 1) run.publish("step", { turn })
  await everywhere()
  const bootstraps = server.count(/bootstrap/)
  page.tab.thaw()
  page.tab.signal("resume")
  expect(follows(page, run).get().connection).toBe("reconnecting")
  await everywhere()
  expect(server.count(/bootstrap/)).toBe(bootstraps)
})

it("hidden tabs have patience with a leader that is slowed down; one that is looked at has not", async () => {
  server.add().start()
  for (let count = 0; count < 3; count += 1) open()
  await live()
  const old = leader()
  const [one] = others() as [Page]
  for (const page of pages) page.tab.signal("hidden")
  old.tab.freeze()
  await browser.pass(60_000)
  expect(leader()).toBe(old)
  one.tab.signal("visible")
  await browser.until(() => leader() === one)
})

it("more runs than fit on one connection take a second", async () => {
  const runs = Array.from({ length: 40 }, () => server.add().start())
  open()
  await live()
  expect(server.streams.size).toBe(2)
  for (const run of runs) run.publish("step")
  await everywhere()
})

it("runs beyond three connections wait until there is room", async () => {
  const runs = Array.from({ length: 97 }, () => server.add().start())
  const page = open()
  const connected = () => runs.filter((run) => follows(page, run).get().connection === "live").length
  await browser.until(() => connected() === 96)
  expect(server.streams.size).toBe(3)
  const waiting = runs.find((run) => follows(page, run).get().connection === "connecting") as ServedRun
  const first = runs.find((run) => run !== waiting) as ServedRun
  first.end()
  waiting.publish("on")
  await browser.until(() => has(page, waiting), "the last one found room")
})

/** More of them with `STORMS=200 npx vitest run test/share.test.ts -t storm`. */
const STORMS = Number(process.env.STORMS ?? 8)

it.each(Array.from({ length: STORMS }, (_, index) => 11 + index))(
  "through any storm, all tabs arrive at the truth (%i)",
  async (seed) => {
    browser = new Browser(seed)
    const random = chance(seed)
    const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)]
    const runs = Array.from({ length: 3 }, () => server.add().start())
    for (let count = 0; count < 4; count += 1) open(runs.filter(() => random() < 0.8))
    const deeds: (() => void)[] = [
      () => pick(runs)?.publish("step", { at: browser.time }, { progress: Math.floor(random() * 100) }),
      () => pick(runs)?.say(`${browser.time} `),
      () => pick(runs)?.state({ detail: String(browser.time) }),
      () => pick([...server.streams])?.cut(),
      () => pick([...server.streams])?.end(),
      () => pick(runs)?.rebuild(),
      () => pick(runs)?.start(),
      () => {
        const run = pick(runs)
        if (run?.open().length === 0) run.ask(String(browser.time), "May it?")
      },
      () => {
        const run = pick(runs)
        const [asked] = run?.open() ?? []
        if (asked) run?.decide(asked.id, { approved: true })
      },
      () => {
        const page = pick(awake())
        if (page && awake().length > 2) page.tab.freeze()
      },
      () => pick(pages.filter((page) => page.tab.state === "frozen"))?.tab.thaw(),
      () => {
        if (awake().length > 2) pick(awake())?.tab.crash()
      },
      () => {
        if (awake().length < 5) open(runs.filter(() => random() < 0.8))
      },
      () => pick(awake())?.tab.signal(pick(["hidden", "visible", "online", "freeze", "resume"] as const) ?? "online"),
    ]
    for (let turn = 0; turn < 150; turn += 1) {
      pick(deeds)?.()
      if (random() < 0.5) await browser.pass(random() * 600)
    }
    for (const page of pages) {
      if (page.tab.state === "frozen") page.tab.thaw()
      if (page.tab.state === "awake") page.tab.signal("resume")
    }
    for (const run of runs) run.publish("last")
    await everywhere()
    for (const run of runs) run.end()
    await everywhere()
    await browser.until(() => server.streams.size === 0)
  },
)
