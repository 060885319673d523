// @vitest-environment jsdom
import { act, StrictMode } from "react"
import { createRoot, type Root } from "react-dom/client"
import { renderToString } from "react-dom/server"
import { afterEach, beforeEach, expect, it, vi } from "vitest"
import { useRun, useRuns, useText } from "../src/react"
import { clientOf } from "../src/shared"
import type { Client, ClientOptions, Run, RunStore, TextPart } from "../src/types"
import { StubClient } from "./support/stub"

let root: Root
let place: HTMLElement
let stub: StubClient

beforeEach(() => {
  Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })
  place = document.createElement("div")
  root = createRoot(place)
  stub = new StubClient()
})

afterEach(() => act(() => root.unmount()))

const part = (text: string): TextPart => ({
  part: "answer",
  attempt: 1,
  end: text.length,
  text,
  final: false,
  truncated: false,
})
let drawn = 0

function Screen({ client, id }: { client: Client; id: string }) {
  const { view, store } = useRun(client, id)
  drawn += 1
  return (
    <p>
      {view.connection} {view.run?.status} <Text store={store} />
    </p>
  )
}

let drawnText = 0

function Text({ store }: { store: RunStore }) {
  drawnText += 1
  return <b>{useText(store, "answer")}</b>
}

it("follows a run as long as the component is there", () => {
  act(() => root.render(<Screen client={stub.client} id="a" />))
  expect(place.textContent).toBe("connecting  ")
  act(() => stub.show("a", { connection: "live", run: { status: "running" } as Run, text: [part("Hel")] }))
  act(() => stub.show("a", { text: [part("Hello")] }))
  expect(place.textContent).toBe("live running Hello")
  act(() => root.render(<Screen client={stub.client} id="b" />))
  expect(place.textContent).toBe("connecting  ")
  expect(stub.following).toBe(1)
  act(() => root.render(null))
  expect(stub.following).toBe(0)
})

it("draws a text alone when only the text is asked for", () => {
  const store = stub.client.follow("a")
  act(() => root.render(<Text store={store} />))
  const before = drawnText
  act(() => stub.show("a", { degraded: "store_unavailable" }))
  expect(drawnText).toBe(before)
  act(() => stub.show("a", { text: [part("x")] }))
  expect(drawnText).toBe(before + 1)
})

function Both({ client, text }: { client: Client; text: boolean }) {
  const { view, store } = useRun(client, "a")
  return (
    <p>
      {view.connection}
      {text && <Text store={store} />}
    </p>
  )
}

it("stays as long as one part of the screen looks at it", () => {
  act(() => root.render(<Both client={stub.client} text={true} />))
  act(() => root.render(<Both client={stub.client} text={false} />))
  act(() => stub.show("a", { connection: "live" }))
  expect([stub.following, place.textContent]).toEqual([1, "live"])
})

it("neither leaks nor follows twice in strict mode", () => {
  act(() =>
    root.render(
      <StrictMode>
        <Screen client={stub.client} id="a" />
      </StrictMode>,
    ),
  )
  expect(stub.following).toBe(1)
  act(() => stub.show("a", { connection: "live" }))
  const before = drawn
  act(() =>
    root.render(
      <StrictMode>
        <Screen client={stub.client} id="a" />
      </StrictMode>,
    ),
  )
  expect(drawn).toBeGreaterThan(before)
  expect(stub.following).toBe(1)
  act(() => root.render(null))
  expect(stub.following).toBe(0)
})

it("shows nothing yet when it is drawn on a server", () => {
  expect(renderToString(<Screen client={stub.client} id="a" />)).toContain("connecting")
  expect(stub.followed).toBe(0)
})

let inline: RunStore | null = null

function Inline({ options }: { options: () => ClientOptions }) {
  const { view, store } = useRun(options(), "a")
  inline = store
  drawn += 1
  return <p>{view.connection}</p>
}

it("has one client for options that are written anew in each render, and uses them as they are now", async () => {
  let token = "one"
  const asked: [string, string][] = []
  const fetch = (own: string) => async (_: unknown, init?: RequestInit) => {
    asked.push([new Headers(init?.headers).get("Authorization") ?? "", own])
    return new Response("{}", { status: 503, headers: { "Retry-After": "1000" } })
  }
  const forms: (() => ClientOptions)[] = [
    () => ({ base: "http://x/", headers: { Authorization: "Bearer plain" }, storage: null }),
    () => {
      const own = token
      return { base: "http://x/", headers: () => ({ Authorization: own }), fetch: fetch(own), storage: null }
    },
  ]
  const fetched = vi.spyOn(globalThis, "fetch").mockImplementation(fetch(""))
  const settled = () => act(() => new Promise((done) => setTimeout(done, 50)))
  for (const options of forms) {
    asked.length = 0
    token = "one"
    const before = drawn
    act(() => root.render(<Inline options={options} />))
    await settled()
    expect(asked.length).toBe(1)
    token = "two"
    act(() => root.render(<Inline options={options} />))
    await settled()
    expect(asked.length).toBe(1)
    expect(drawn - before).toBeLessThan(10)
    await act(() => inline?.refresh().catch(() => undefined) ?? Promise.resolve())
  }
  expect(asked).toEqual([
    ["one", "one"],
    ["two", "two"],
  ])
  fetched.mockRestore()
})

it("has one client for the same words, and another one for other headers", () => {
  const plain = (token: string) => ({ base: "/", headers: { authorization: token } })
  expect(clientOf(plain("a"))).toBe(clientOf({ base: "/", headers: new Headers([["Authorization", "a"]]) }))
  expect(clientOf(plain("a"))).not.toBe(clientOf(plain("b")))
  const headers = () => ({})
  const options = { base: "/", headers }
  expect(clientOf(options)).toBe(clientOf(options))
  expect(clientOf(options)).not.toBe(clientOf({ base: "/", headers }))
})

function Runs({ client, agent }: { client: Client; agent: string }) {
  const { view } = useRuns(client, { agent })
  return <p>{view.loading ? "loading" : view.runs.map((row) => row.id).join(" ")}</p>
}

it("lists runs, and one filter in the same words is the same list", () => {
  act(() => root.render(<Runs client={stub.client} agent="reader" />))
  expect(place.textContent).toBe("loading")
  act(() => stub.showList([{ id: "a", run: {} as Run, snapshot: null, connection: "live" }]))
  act(() => root.render(<Runs client={stub.client} agent="reader" />))
  expect(place.textContent).toBe("a")
  expect(stub.lists).toBe(1)
  act(() => root.render(<Runs client={stub.client} agent="writer" />))
  expect(stub.lists).toBe(1)
  act(() => root.render(null))
  expect(stub.lists).toBe(0)
})
