import { afterEach, beforeEach, expect, it } from "vitest"
import { Lines } from "../src/lines"
import { Relay, type Told } from "../src/relay"
import { Browser } from "./support/environment"
import { PlayServer } from "./support/server"

let server: PlayServer
let browser: Browser
let relay: Relay
let told: [string, Told][]

beforeEach(async () => {
  server = await new PlayServer().listen()
  browser = new Browser()
  told = []
  const tab = browser.tab()
  const transport = { kind: "fetch" as const, fetch: tab.fetch, headers: async () => new Headers() }
  const lines = new Lines(new URL(server.base), transport, tab)
  relay = new Relay(lines, tab, (run, said) => told.push([run, said]))
})

afterEach(() => {
  relay.stop()
  return server.close()
})

const batches = () => told.flatMap(([, said]) => (said.is === "frames" ? [said] : []))
const cursors = () =>
  batches().flatMap((batch) => batch.frames.flatMap((frame) => (frame.is === "event" ? [frame.cursor] : [])))
const live = () => browser.until(() => told.some(([, said]) => said.is === "link" && said.link === "live"))

it("a connection that begins elsewhere says so, also when nothing was open before", async () => {
  const run = server.add().start()
  for (let turn = 0; turn < 6; turn += 1) run.publish("step")
  const at = (index: number) => run.entries.at(index)?.cursor ?? null
  relay.want(run.id, { cursor: at(-2) })
  await live()
  await browser.until(() => cursors().length === 1)
  server.reply = () => ({ status: 502 })
  relay.want(run.id, { cursor: at(-5) })
  await browser.pass(700)
  server.cutAll()
  await browser.until(() => told.some(([, said]) => said.is === "link" && said.link === "reconnecting"))
  await browser.pass(3_000)
  told.length = 0
  server.reply = () => null
  await browser.until(() => cursors().includes(at(-4)))
  for (const batch of batches()) {
    let behind = batch.from
    for (const frame of batch.frames)
      if (frame.is === "event") {
        const index = run.entries.findIndex((entry) => entry.cursor === frame.cursor)
        expect(run.entries[index - 1]?.cursor).toBe(behind)
        behind = frame.cursor
      }
  }
})

it("what an old request brings is not taken for what a new one asked", async () => {
  const run = server.add().start()
  const other = server.add().start()
  for (let turn = 0; turn < 6; turn += 1) run.publish("step")
  relay.want(run.id, { cursor: run.cursor })
  relay.want(other.id, { cursor: other.cursor })
  await live()
  const back = run.entries.at(-5)?.cursor ?? null
  relay.drop(run.id)
  relay.want(run.id, { cursor: back })
  told.length = 0
  run.publish("while the old one still speaks")
  await browser.until(() => cursors().includes(run.cursor))
  expect(batches().filter((batch) => batch.frames.some((one) => one.is === "event"))[0]?.from).toBe(back)
  expect(cursors()).toEqual(run.entries.slice(-5).map((entry) => entry.cursor))
})

it("names the texts that it holds, as far as there is room", async () => {
  const runs = Array.from({ length: 32 }, () => server.add().start())
  for (const run of runs) {
    run.say("text")
    relay.want(run.id, { cursor: run.cursor, text: run.pieces() })
  }
  await live()
  const [url] = server.seen.filter((one) => one.includes("/stream"))
  expect(url?.length).toBeLessThan(4_000)
  expect(url).toContain(`&text=run:${runs[0]?.id}.1.answer:4`)
  await browser.until(() => batches().length >= 32)
  for (const run of runs) run.say(" and more")
  await browser.pass(200)
  for (const run of runs) {
    const said = relay.want(run.id, { cursor: run.cursor }).find((one) => one.is === "frames")
    const texts = said?.is === "frames" ? said.frames.flatMap((one) => (one.is === "text" ? [one.piece.text] : [])) : []
    expect(texts).toEqual(["text and more"])
  }
})
