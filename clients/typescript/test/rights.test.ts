/** What may not be read, and tabs that do not have the same rights: what one is refused says nothing about the others. */
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { createClientIn } from "../src/client"
import { nothingOf } from "../src/shared"
import { Browser, Memory, type Tab } from "./support/environment"
import type { ServedRun } from "./support/run"
import { PlayServer } from "./support/server"
import { shown } from "./support/shown"

let server: PlayServer
let browser: Browser
/** Who may read a run; everybody, unless it is here. */
let readers: Map<string, string[]>

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
  readers = new Map()
  server.reply = ({ headers }) => (headers.authorization === "nobody" ? { status: 401, code: "unauthenticated" } : null)
  server.may = (who = "", run) => readers.get(run)?.includes(who) ?? true
})

afterEach(() => server.close())

/** A page of this person, in one browser with the others. */
function page(who: string | (() => string), storage: Memory = new Memory()) {
  const tab = browser.tab()
  const headers = () => ({ Authorization: typeof who === "string" ? who : who() })
  return { tab, client: createClientIn(tab, { base: server.base, fetch: tab.fetch, headers, share: true, storage }) }
}

function run(...who: string[]): ServedRun {
  const one = server.add().start()
  if (who.length > 0) readers.set(one.id, who)
  return one
}

const leads = (tab: Tab) => browser.locks.holder(`playhead 2 ${server.base}`) === tab
const live = (...stores: { get(): { connection: string } }[]) =>
  browser.until(() => stores.every((store) => store.get().connection === "live"), "all are live")

describe("a run that is refused", () => {
  it("forgets all but the problem, and has it again when it may be read again", async () => {
    const one = run()
    one.say("a secret")
    one.publish("step", {}, { title: "a secret" })
    one.ask("k", "a secret?")
    const store = page("ann").client.follow(one.id)
    const whole = () => store.get().connection === "live" && store.get().interrupts.length === 1
    await browser.until(whole)
    readers.set(one.id, ["bob"])
    server.cutAll()
    await browser.until(() => store.get().connection === "refused")
    const problem = expect.objectContaining({ status: 404, code: "not_found" })
    expect(store.get()).toEqual({ ...nothingOf(one.id), connection: "refused", problem })
    readers.clear()
    await store.refresh()
    await browser.until(whole)
    one.publish("after")
    await browser.until(() => store.get().events.at(-1)?.type === "after")
    expect(shown(store.get())).toMatchObject({ ...one.truth(), run: { id: one.id } })
  })

  it("is not brought back by an answer to what was asked before", async () => {
    const one = run()
    const { tab } = page("ann")
    const answers: (() => void)[] = []
    const fetch = async (...asked: Parameters<typeof tab.fetch>) => {
      const answer = await tab.fetch(...asked)
      if (/bootstrap/.test(String(asked[0]))) await new Promise<void>((done) => answers.push(done))
      return answer
    }
    const store = createClientIn(tab, { base: server.base, fetch }).follow(one.id)
    const answered = (count: number) => browser.until(() => answers.length === count).then(() => answers[count - 1]?.())
    await answered(1)
    await browser.until(() => store.get().connection === "live")
    const again = expect(store.refresh()).rejects.toMatchObject({ status: 404 })
    await browser.until(() => answers.length === 2)
    server.runs.delete(one.id)
    server.cutAll()
    await browser.until(() => store.get().connection === "refused")
    answers[1]?.()
    await answered(3)
    await again
    expect(store.get()).toMatchObject({ connection: "refused", run: null })
  })
})

describe("a run that was kept", () => {
  it("is shown until the server answers, and joined only once this tab was let in", async () => {
    const [one, storage] = [run("ann", "bob"), new Memory()]
    const first = page("ann")
    await live(first.client.follow(one.id))
    const before = page("ann", storage)
    await live(before.client.follow(one.id))
    before.tab.signal("freeze")
    before.tab.crash()
    server.reply = ({ headers }, url) =>
      headers.authorization === "bob" && /bootstrap/.test(url.pathname) ? { status: 503, retryable: true } : null
    const store = page("bob", storage).client.follow(one.id)
    const kept = store.get()
    expect(kept.events.length).toBe(2)
    one.publish("a_secret")
    await browser.pass(5_000)
    expect(store.get().events).toEqual(kept.events)
    readers.set(one.id, ["ann"])
    server.reply = () => null
    await browser.until(() => store.get().connection === "refused")
    expect(store.get()).toMatchObject({ run: null, events: [], problem: { status: 404 } })
  })

  it("goes on where it was once this tab was let in", async () => {
    const [one, storage] = [run(), new Memory()]
    await live(page("ann").client.follow(one.id))
    const before = page("ann", storage)
    await live(before.client.follow(one.id))
    before.tab.signal("freeze")
    before.tab.crash()
    one.publish("meanwhile")
    const store = page("ann", storage).client.follow(one.id)
    await live(store)
    expect(store.get().events.map(({ id }) => id)).toEqual(one.archive.map(({ id }) => id))
    expect(server.streams.size).toBe(1)
  })
})

describe("a tab that may read what the one that leads may not", () => {
  it("follows on a connection of its own, and asks in no loop", async () => {
    const [mine, shared] = [run("bob"), run()]
    const ann = page("ann")
    const bob = page("bob")
    const stores = [ann.client.follow(shared.id), bob.client.follow(shared.id)]
    await live(...stores)
    expect(leads(ann.tab)).toBe(true)
    stores[0]?.close()
    stores[1]?.close()
    await browser.until(() => server.streams.size === 0)
    const store = bob.client.follow(mine.id)
    await live(store)
    const other = bob.client.follow(shared.id)
    await live(other)
    expect([ann.tab.streams, bob.tab.streams]).toEqual([1, 1])
    const asked = server.seen.length
    await browser.pass(20_000)
    expect(server.seen.length).toBe(asked)
    mine.publish("on")
    shared.publish("on")
    await browser.until(() => [store, other].every((one) => one.get().events.at(-1)?.type === "on"))
    server.cutAll()
    await live(store, other)
    mine.publish("after")
    await browser.until(() => store.get().events.at(-1)?.type === "after")
    store.close()
    await browser.until(() => bob.tab.streams === 0)
  })

  it("does so when the run is one of several on the connection", async () => {
    const [mine, shared] = [run("bob"), run()]
    const ann = page("ann")
    await live(ann.client.follow(shared.id))
    const bob = page("bob")
    const store = bob.client.follow(mine.id)
    await browser.until(() => bob.tab.streams === 1)
    await live(store)
    expect(ann.tab.streams).toBe(1)
  })

  it("reads it at least, in growing pauses, when the one that leads may read none of several", async () => {
    const ann = page("ann")
    const first = ann.client.follow(run().id)
    await live(first)
    first.close()
    await browser.until(() => server.streams.size === 0)
    const runs = [run("bob"), run("bob")]
    const bob = page("bob")
    const stores = runs.map((one) => bob.client.follow(one.id))
    await browser.pass(5_000)
    for (const one of runs) one.publish("on")
    await browser.until(() => stores.every((store) => store.get().events.at(-1)?.type === "on"))
    const asked = server.seen.length
    await browser.pass(300_000)
    expect(server.seen.length - asked).toBeLessThan(75)
    ann.tab.crash()
    await live(...stores)
  })

  it("shares a connection again when another one leads", async () => {
    const [mine, shared] = [run("bob"), run()]
    const ann = page("ann")
    await live(ann.client.follow(shared.id))
    const bob = page("bob")
    const stores = [bob.client.follow(mine.id), bob.client.follow(shared.id)]
    await live(...stores)
    const again = page("bob")
    stores.push(again.client.follow(mine.id))
    await browser.until(() => server.streams.size === 3)
    await live(...stores)
    ann.tab.crash()
    await browser.until(() => server.streams.size === 1, "one connection carries all")
    mine.publish("on")
    await browser.until(() => [0, 2].every((at) => stores[at]?.get().events.at(-1)?.type === "on"))
    expect(stores.map((store) => store.get().connection)).toEqual(["live", "live", "live"])
  })
})

it("each tab is refused by its own answer what nobody may read", async () => {
  const one = run()
  const stores = ["ann", "bob"].map((who) => page(who).client.follow(one.id))
  await live(...stores)
  readers.set(one.id, [])
  server.cutAll()
  await browser.until(() => stores.every((store) => store.get().connection === "refused"))
  const asked = server.seen.length
  await browser.pass(120_000)
  expect(server.seen.length).toBe(asked)
})

it.each([1, 2])("a leader that is not let in any more leaves it to the others (runs: %i)", async (count) => {
  const runs = Array.from({ length: count }, () => run())
  let who = "ann"
  const ann = page(() => who)
  const first = runs.map((one) => ann.client.follow(one.id))
  await live(...first)
  const others = [page("bob"), page("cem")]
  const stores = others.flatMap(({ client }) => runs.map((one) => client.follow(one.id)))
  await live(...stores)
  expect(leads(ann.tab)).toBe(true)
  who = "nobody"
  server.cutAll()
  await browser.until(() => first.every((store) => store.get().connection === "refused"))
  await live(...stores)
  await browser.until(() => server.streams.size === 1 && !leads(ann.tab), "one connection carries all")
  runs[0]?.publish("on")
  await browser.until(() =>
    stores.every((store) => store.id !== runs[0]?.id || store.get().events.at(-1)?.type === "on"),
  )
  const asked = server.seen.length
  await browser.pass(20_000)
  expect(server.seen.length).toBe(asked)
})

it("nobody asks in a loop when none of the tabs is let in any more", async () => {
  const one = run()
  let who = "ann"
  const stores = [0, 1, 2].map(() => page(() => who).client.follow(one.id))
  await live(...stores)
  who = "nobody"
  server.cutAll()
  await browser.until(() => stores.every((store) => store.get().connection === "refused"))
  const asked = server.seen.length
  await browser.pass(120_000)
  expect(server.seen.length).toBe(asked)
  who = "ann"
  await stores[1]?.refresh()
  await live(stores[1] as never)
  await stores[2]?.refresh()
  await live(stores[2] as never)
  expect(server.streams.size).toBe(1)
})
