/**
 * `<playhead-run run="…" base="/">`: a run, live, for any page.
 *
 * Parts for `::part()`: run, title, status, connection, problem, step, progress, question, text, timeline, event.
 * It sends `playhead-change` with the view as its detail. `labels` says its words in another language.
 */
import { clientOf } from "./shared"
import type { Client, Interrupt, RunEvent, RunStore, RunView } from "./types"

const STYLE = `
:host { display: block; font: inherit; color: inherit }
[hidden] { display: none !important }
header { display: flex; gap: .75em; align-items: baseline; flex-wrap: wrap }
[part=title] { font-weight: 600; flex: 1 }
[part=status], [part=connection] { font-size: .875em }
[part=connection] { opacity: .7 }
progress { width: 100% }
[part=question] { border: 1px solid; border-radius: .5em; padding: .75em; margin: .5em 0 }
[part=text] { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5em 0 }
ol { list-style: none; padding: 0; margin: .5em 0; font-size: .875em }
button { font: inherit }`

/** What came from outside becomes text and never markup. */
function make(tag: string, part: string, ...children: (Node | string)[]): HTMLElement {
  const node = document.createElement(tag)
  if (part) node.setAttribute("part", part)
  node.append(...children)
  return node
}

function put(node: HTMLElement, text: string | null | undefined): void {
  if (node.textContent !== (text ?? "")) node.textContent = text ?? ""
  node.hidden = !text
}

type Nodes = ReturnType<typeof build>

function build() {
  const title = make("span", "title")
  const status = make("span", "status")
  status.setAttribute("role", "status")
  const connection = make("span", "connection")
  const problem = make("p", "problem")
  problem.setAttribute("role", "alert")
  const step = make("p", "step")
  const progress = make("progress", "progress") as HTMLProgressElement
  progress.max = 100
  const questions = make("div", "")
  const texts = make("div", "")
  const older = make("button", "") as HTMLButtonElement
  older.type = "button"
  const events = make("ol", "timeline")
  const head = make("header", "", title, status, connection)
  const root = make("article", "run", head, problem, step, progress, questions, texts, older, events)
  return { root, title, status, connection, problem, step, progress, questions, texts, older, events }
}

// Where there is no DOM, the module can be loaded all the same.
const Base = globalThis.HTMLElement ?? (class {} as typeof HTMLElement)

export class PlayheadRun extends Base {
  static readonly observedAttributes = ["run", "base"]
  #client: Client | null = null
  #store: RunStore | null = null
  #nodes: Nodes | null = null
  #questions = new Map<string, HTMLElement>()
  #events = new Map<string, HTMLElement>()
  #drawing = false
  #labels: Readonly<Record<string, string>> = {}

  /** The client to use, instead of one for `base`. */
  get client(): Client | null {
    return this.#client
  }
  set client(client: Client | null) {
    this.#client = client
    this.#follow()
  }

  /**
   * What is shown for a name: of a status, a connection, a step, an event type, an agent, a kind of question, and for
   * `approve`, `reject`, `older` and `progress`. A name that is not here is shown as it is, with spaces.
   */
  get labels(): Readonly<Record<string, string>> {
    return this.#labels
  }
  set labels(labels: Readonly<Record<string, string>>) {
    this.#labels = labels
    for (const nodes of [this.#questions, this.#events]) {
      for (const node of nodes.values()) node.remove()
      nodes.clear()
    }
    this.#soon()
  }

  /** What is shown. */
  get view(): RunView | null {
    return this.#store?.get() ?? null
  }

  connectedCallback(): void {
    this.#nodes ??= this.#build()
    this.#follow()
  }

  disconnectedCallback(): void {
    this.#store?.close()
    this.#store = null
  }

  attributeChangedCallback(_: string, before: string | null, after: string | null): void {
    if (before !== after) this.#follow()
  }

  #follow(): void {
    if (!this.isConnected || !this.#nodes) return
    this.disconnectedCallback()
    const run = this.getAttribute("run")
    this.#nodes.root.hidden = !run
    if (!run) return
    const store = this.#calls().follow(run)
    this.#store = store
    store.subscribe(() => this.#soon())
    this.#soon()
  }

  #calls(): Client {
    const base = this.getAttribute("base")
    return this.#client ?? clientOf(base === null ? {} : { base })
  }

  /** Once a frame is enough for the eye. */
  #soon(): void {
    if (this.#drawing) return
    this.#drawing = true
    requestAnimationFrame(() => {
      this.#drawing = false
      const view = this.view
      if (view === null || !this.#nodes) return
      this.#draw(view, this.#nodes)
      this.dispatchEvent(new CustomEvent("playhead-change", { detail: view, bubbles: true, composed: true }))
    })
  }

  #build(): Nodes {
    const nodes = build()
    nodes.older.onclick = () => void this.#store?.older().catch((error: Error) => put(nodes.problem, error.message))
    const shadow = this.attachShadow({ mode: "open" })
    // A sheet that is made by script is no inline style: it works under a strict policy.
    if ("adoptedStyleSheets" in shadow) {
      const sheet = new CSSStyleSheet()
      sheet.replaceSync(STYLE)
      shadow.adoptedStyleSheets = [sheet]
    }
    shadow.append(nodes.root)
    return nodes
  }

  #words(name: string): string {
    if (Object.hasOwn(this.#labels, name)) return this.#labels[name] as string
    const text = name.replaceAll("_", " ")
    return text.charAt(0).toUpperCase() + text.slice(1)
  }

  #draw(view: RunView, nodes: Nodes): void {
    const { run, snapshot } = view
    nodes.older.textContent = this.#words("older")
    nodes.progress.setAttribute("aria-label", this.#words("progress"))
    put(nodes.title, snapshot?.title ?? this.#words(run?.agent ?? ""))
    put(nodes.status, run && this.#words(run.status))
    put(nodes.connection, this.#words(view.connection))
    put(nodes.problem, view.problem?.detail ?? (run?.error && `${run.error.message} (${run.error.code})`))
    const steps = [snapshot?.current_step && this.#words(snapshot.current_step), snapshot?.detail]
    put(nodes.step, steps.filter(Boolean).join(": "))
    nodes.progress.hidden = view.connection === "ended" || !snapshot
    if (snapshot?.progress == null) nodes.progress.removeAttribute("value")
    else nodes.progress.value = snapshot.progress
    keep(nodes.questions, this.#questions, view.interrupts, (one) => this.#question(one))
    nodes.texts.replaceChildren(...view.text.map((one) => make("div", "text", one.text)))
    if (typeof run?.result === "string") nodes.texts.replaceChildren(make("div", "text", run.result))
    nodes.older.hidden = !view.timeline.has_older
    keep(nodes.events, this.#events, view.events, (one) => this.#event(one))
  }

  #question(interrupt: Interrupt): HTMLElement {
    const { title } = (interrupt.payload ?? {}) as { title?: unknown }
    const wrong = make("p", "problem")
    wrong.setAttribute("role", "alert")
    wrong.hidden = true
    const answers = [true, false].map((approved) => {
      const button = make("button", "", this.#words(approved ? "approve" : "reject")) as HTMLButtonElement
      button.type = "button"
      button.onclick = () => void this.#decide(interrupt, approved, answers, wrong)
      return button
    })
    return make(
      "section",
      "question",
      make("p", "", typeof title === "string" ? title : this.#words(interrupt.kind)),
      ...answers,
      wrong,
    )
  }

  async #decide(
    interrupt: Interrupt,
    approved: boolean,
    answers: HTMLButtonElement[],
    wrong: HTMLElement,
  ): Promise<void> {
    for (const button of answers) button.disabled = true
    try {
      await this.#calls().decide(interrupt.run_id, interrupt.id, { approved })
    } catch (error) {
      put(wrong, (error as Error).message)
      for (const button of answers) button.disabled = false
    }
  }

  #event(event: RunEvent): HTMLElement {
    const time = make("time", "", new Date(event.occurred_at).toLocaleTimeString())
    time.setAttribute("datetime", event.occurred_at)
    return make("li", "event", time, ` ${this.#words(event.type)}`)
  }
}

/** One node for each, in their order; those that are there already stay. */
function keep<T extends { id: string }>(
  parent: HTMLElement,
  nodes: Map<string, HTMLElement>,
  list: readonly T[],
  create: (one: T) => HTMLElement,
): void {
  const wanted = new Set(list.map((one) => one.id))
  for (const [id, node] of nodes)
    if (!wanted.has(id)) {
      nodes.delete(id)
      node.remove()
    }
  let after: ChildNode | null = parent.firstChild
  for (const one of list) {
    const node = nodes.get(one.id) ?? create(one)
    nodes.set(one.id, node)
    if (node === after) after = after.nextSibling
    else parent.insertBefore(node, after)
  }
}

if (globalThis.customElements && !customElements.get("playhead-run")) customElements.define("playhead-run", PlayheadRun)

declare global {
  interface HTMLElementTagNameMap {
    "playhead-run": PlayheadRun
  }
}
