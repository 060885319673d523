// @vitest-environment jsdom
import { beforeEach, expect, it } from "vitest"
import { PlayheadRun } from "../src/element"
import type { Interrupt, Run, RunEvent, Snapshot, TextPart } from "../src/types"
import { StubClient } from "./support/stub"

let stub: StubClient
let element: PlayheadRun

beforeEach(() => {
  document.body.replaceChildren()
  stub = new StubClient()
  element = document.createElement("playhead-run")
  element.client = stub.client
  element.setAttribute("run", "a")
  document.body.append(element)
})

const drawn = () => new Promise((done) => requestAnimationFrame(done))
const one = (selector: string) => element.shadowRoot?.querySelector<HTMLElement>(selector) as HTMLElement
const all = (selector: string) => [...(element.shadowRoot?.querySelectorAll<HTMLElement>(selector) ?? [])]
const events = (...ids: string[]) =>
  ids.map((id) => ({ id, type: "step_done", occurred_at: "2026-01-31T09:30:00Z" }) as RunEvent)

const RUN = { id: "a", agent: "reader", status: "running", error: null, result: null } as Run
const SNAPSHOT = { title: "Reading", current_step: "read_files", detail: "3 of 7", progress: 40 } as Snapshot
const ASKED = { id: "q", run_id: "a", kind: "approval", payload: { title: "May it?" } } as Interrupt

it("shows a run", async () => {
  const heard: unknown[] = []
  document.body.addEventListener("playhead-change", (event) => heard.push((event as CustomEvent).detail))
  stub.show("a", {
    connection: "live",
    run: RUN,
    snapshot: SNAPSHOT,
    text: [{ part: "answer", attempt: 1, text: "<b>x</b>" } as TextPart],
    events: events("1", "2"),
  })
  await drawn()
  expect(one("[part=title]").textContent).toBe("Reading")
  expect(one("[part=status]").textContent).toBe("Running")
  expect(one("[part=connection]").textContent).toBe("Live")
  expect(one("[part=step]").textContent).toBe("Read files: 3 of 7")
  expect((one("progress") as HTMLProgressElement).value).toBe(40)
  expect(one("[part=text]").textContent).toBe("<b>x</b>")
  expect(one("[part=text]").children.length).toBe(0)
  expect(all("[part=event]").length).toBe(2)
  expect(heard).toEqual([element.view])
})

it("keeps the nodes of what it shows already", async () => {
  stub.show("a", { run: RUN, events: events("2", "3") })
  await drawn()
  const [two] = all("[part=event]")
  stub.show("a", { events: events("1", "2", "4") })
  await drawn()
  expect(all("[part=event]").length).toBe(3)
  expect(all("[part=event]")[1]).toBe(two)
})

it("asks, and sends the answer once", async () => {
  stub.show("a", { run: RUN, interrupts: [ASKED] })
  await drawn()
  expect(one("[part=question] p").textContent).toBe("May it?")
  const [approve, reject] = all("[part=question] button") as [HTMLButtonElement, HTMLButtonElement]
  stub.answer = new Error("It was decided already.")
  reject.click()
  reject.click()
  expect(stub.decisions).toEqual([["a", "q", { approved: false }]])
  await drawn()
  expect(one("[part=question] [role=alert]").textContent).toBe("It was decided already.")
  expect(approve.disabled).toBe(false)
  stub.show("a", { interrupts: [] })
  await drawn()
  expect(all("[part=question]")).toEqual([])
})

it("tells of a refusal, of a failure and of a result, each in its place", async () => {
  stub.show("a", { connection: "refused", problem: { detail: "There is no such run." } as never })
  await drawn()
  expect(one("article > [role=alert]").textContent).toBe("There is no such run.")
  stub.show("a", { problem: null, run: { ...RUN, status: "failed", error: { code: "broken", message: "It broke." } } })
  await drawn()
  expect(one("article > [role=alert]").textContent).toBe("It broke. (broken)")
  stub.show("a", { connection: "ended", run: { ...RUN, status: "succeeded", result: "All is well." } })
  await drawn()
  expect(one("[part=text]").textContent).toBe("All is well.")
  expect(one("article > [role=alert]").hidden).toBe(true)
})

it("says the words that it is given, also of what it shows already", async () => {
  stub.show("a", { connection: "live", run: RUN, events: events("1"), interrupts: [ASKED] })
  await drawn()
  element.labels = { running: "Läuft", live: "Verbunden", step_done: "Schritt", approve: "Ja", progress: "Fortschritt" }
  await drawn()
  expect(one("[part=status]").textContent).toBe("Läuft")
  expect(one("[part=connection]").textContent).toBe("Verbunden")
  expect(all("[part=question] button").map((button) => button.textContent)).toEqual(["Ja", "Reject"])
  expect(all("[part=event]").map((node) => node.lastChild?.textContent)).toEqual([" Schritt"])
  expect(one("progress").getAttribute("aria-label")).toBe("Fortschritt")
  stub.show("a", { run: { ...RUN, agent: "constructor" } as Run })
  await drawn()
  expect(one("[part=title]").textContent).toBe("Constructor")
})

it("follows what its attributes say, and lets go when it is taken away", () => {
  expect([stub.following, stub.followed]).toEqual([1, 1])
  element.setAttribute("run", "b")
  expect([stub.following, stub.followed]).toEqual([1, 2])
  element.setAttribute("run", "b")
  expect(stub.followed).toBe(2)
  element.remove()
  expect(stub.following).toBe(0)
  element.removeAttribute("run")
  document.body.append(element)
  expect(stub.following).toBe(0)
  expect(one("article").hidden).toBe(true)
})

it("is defined once, by the name of its tag", () => {
  expect(customElements.get("playhead-run")).toBe(PlayheadRun)
})
