import { createClient, ProblemError, type RunStore } from "@playhead/client"

const client = createClient({ base: "/playhead/" })
const find = <T extends HTMLElement>(selector: string) => document.querySelector(selector) as T
const login = find<HTMLFormElement>("#login")
const approve = find<HTMLButtonElement>("#approve")
let store: RunStore | null = null

function open(id: string) {
  store?.close()
  store = client.follow(id)
  store.subscribe(draw)
  location.hash = id
}

function draw() {
  const view = store?.get()
  if (!view) return
  find("#status").textContent = `${view.run?.status ?? ""} ${view.connection}`
  find<HTMLProgressElement>("progress").value = view.snapshot?.progress ?? 0
  find("pre").textContent = view.text.map((one) => one.text).join("\n") || String(view.run?.result ?? "")
  const [asked] = view.interrupts
  approve.hidden = !asked
  approve.textContent = asked ? `Approve: ${(asked.payload as { title: string }).title}` : ""
  approve.onclick = () => asked && tried(client.decide(view.id, asked.id, { approved: true }))
  if (view.problem) refused(view.problem.status, view.problem.detail)
}

/** Do it, and say why it could not be done. */
async function tried<T>(act: Promise<T>): Promise<T | null> {
  find("#problem").textContent = ""
  try {
    return await act
  } catch (error) {
    if (error instanceof ProblemError) refused(error.status, error.message)
    return null
  }
}

function refused(status: number, why: string) {
  login.hidden = status !== 401
  find("#problem").textContent = status === 401 ? "" : why
}

login.onsubmit = async (event) => {
  event.preventDefault()
  const body = JSON.stringify(Object.fromEntries(new FormData(login)))
  await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body })
  location.reload()
}
find("#start").onclick = async () => {
  const run = await tried(client.start("survey"))
  if (run) open(run.id)
}
find("#stop").onclick = () => store && tried(client.cancel(store.id))

const agents = await tried(client.agents())
find("main").hidden = agents === null
if (agents && location.hash) open(location.hash.slice(1))
