// @vitest-environment jsdom
// What the form that starts a run makes of an earlier one, and of the keys.
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { RUN } from "./made"

const SCHEMA = {
  properties: {
    prompt: { type: "string", title: "Prompt" },
    loud: { anyOf: [{ type: "boolean" }, { type: "null" }], default: null },
    sure: { type: "boolean", default: false },
    pace: { type: "number", default: 2 },
    odd: { type: "array", default: [] },
  },
}
const PROMPT = "You are careful.\n\nStep 1: read.\r\nStep 2: answer."

let posts: { input: Record<string, unknown> }[]
let schema: object
let given: unknown
let form: HTMLElement & { agent: string; from: string }

beforeEach(() => {
  posts = []
  schema = SCHEMA
  given = null
  vi.stubGlobal("CSS", { escape: (one: string) => one })
  vi.stubGlobal("fetch", async (input: URL, init?: RequestInit) => {
    const answer = (body: unknown) => new Response(JSON.stringify(body))
    if (init?.method === "POST") {
      posts.push(JSON.parse(String(init.body)))
      return answer({ id: RUN })
    }
    const agent = { name: "writer", title: "Writer", description: "", input_schema: schema, resumable: false }
    if (input.pathname.endsWith("/agents")) return answer({ agents: [agent] })
    return answer({ id: RUN, agent: "writer", input: given, labels: {}, key: null })
  })
})

afterEach(() => {
  form.remove()
  vi.unstubAllGlobals()
})

async function open(from = ""): Promise<HTMLFormElement> {
  await import("../src/screens/start")
  form = Object.assign(document.createElement("ph-start") as typeof form, { agent: "writer", from })
  document.body.append(form)
  return vi.waitUntil(() => form.querySelector("form"))
}

const control = <T extends HTMLElement>(name: string) => form.querySelector(`#field-${name}`) as T

async function sent(): Promise<Record<string, unknown>> {
  form.querySelector("form")?.requestSubmit()
  await vi.waitUntil(() => posts.length > 0)
  return posts[0]?.input ?? {}
}

test.each([
  ["everything", { prompt: PROMPT, loud: null, sure: true, pace: 0.1, odd: [1] }],
  ["not all", { prompt: "" }],
  ["nothing", {}],
  ["more than the form shows", { prompt: "x", extra: { deep: [null] } }],
])("what was there is sent when nothing was changed: %s", async (_, input) => {
  given = input
  await open(RUN)
  expect(await sent()).toEqual(input)
})

test("what was changed is sent beside what was there", async () => {
  given = { prompt: PROMPT, extra: 1 }
  await open(RUN)
  control<HTMLSelectElement>("loud").value = "false"
  control<HTMLInputElement>("pace").value = "3"
  expect(await sent()).toEqual({ prompt: PROMPT, extra: 1, loud: false, pace: 3 })
})

test("what the agent refuses to be given besides its fields is left out", async () => {
  schema = { ...SCHEMA, additionalProperties: false }
  given = { prompt: "x", of_before: 1 }
  await open(RUN)
  expect(await sent()).toEqual({ prompt: "x" })
})

test("a new run is given every field", async () => {
  await open()
  control<HTMLTextAreaElement>("prompt").value = "a\nb"
  expect(await sent()).toEqual({ prompt: "a\nb", loud: null, sure: false, pace: 2, odd: [] })
})

test("a switch that may be left open has three choices", async () => {
  given = { loud: true }
  await open(RUN)
  const loud = control<HTMLSelectElement>("loud")
  expect([...loud.options].map((one) => one.text)).toEqual(["not set", "yes", "no"])
  expect(loud.value).toBe("true")
  loud.value = "null"
  expect((await sent()).loud).toBeNull()
})

test.each<[string, KeyboardEventInit, boolean]>([
  ["one line", {}, true],
  ["one line", { shiftKey: true }, false],
  ["one line", { isComposing: true }, false],
  ["several\nlines", {}, false],
  ["several\nlines", { ctrlKey: true }, true],
  ["several\nlines", { metaKey: true }, true],
])("Enter starts the run where it cannot mean another line: %j %o", async (text, keys, starts) => {
  await open()
  const prompt = control<HTMLTextAreaElement>("prompt")
  prompt.value = text
  const enter = new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, ...keys })
  prompt.dispatchEvent(enter)
  expect(enter.defaultPrevented).toBe(starts)
  await new Promise((done) => setTimeout(done, 20))
  expect(posts.map(({ input }) => input.prompt)).toEqual(starts ? [text] : [])
})
