// The form that starts a run, made from the input schema of its agent.
import { type Agent, ProblemError } from "@playhead/client"
import { html, nothing, type PropertyValues, type TemplateResult } from "lit"
import { ifDefined } from "lit/directives/if-defined.js"
import { keyed } from "lit/directives/keyed.js"
import { tab } from "../attention"
import { PageElement } from "../element"
import { labelsOf } from "../labels"
import { client, freshKey, says } from "../net"
import { isRecord } from "../payload"
import { listAddress, runAddress, startAddress } from "../routes"
import { type Field, fieldsOf, read, shown, Unreadable, unchanged } from "../schema"
import { t, words } from "../words"

const LINES = 12 // of a text, as long as nobody makes more room for it

export class StartScreen extends PageElement {
  static override properties = {
    agent: {},
    from: {},
    agents: { state: true },
    earlier: { state: true },
    wrong: { state: true },
    notice: { state: true },
    busy: { state: true },
  }
  declare agent: string
  declare from: string
  declare agents: readonly Agent[] | null
  declare earlier: {
    agent: string
    input: unknown
    labels: Readonly<Record<string, string>>
    key: string | null
  } | null
  declare wrong: Readonly<Record<string, string>>
  declare notice: string
  declare busy: boolean
  // The same for every try of the same form, so that a lost answer starts nothing twice.
  #key = ""

  constructor() {
    super()
    this.agents = null
    this.earlier = null
    this.wrong = {}
    this.notice = ""
    this.busy = false
  }

  override connectedCallback(): void {
    super.connectedCallback()
    tab(`${t.start.title} · playhead`, "none")
    void this.#load()
  }

  async #load(): Promise<void> {
    try {
      const [agents, before] = await Promise.all([client.agents(), this.from ? client.get(this.from) : null])
      this.earlier = before
      this.agents = agents
    } catch (error) {
      this.notice = says(error)
      if (this.isConnected && !(error instanceof ProblemError && error.status))
        setTimeout(() => void this.#load(), 3000)
    }
  }

  protected override updated(changed: PropertyValues<this>): void {
    if (changed.has("wrong")) this.querySelector<HTMLElement>("[aria-invalid=true]")?.focus()
  }

  protected override render(): TemplateResult {
    return html`
      <div class="head">
        <div class="grow">
          <p class="crumb"><a href=${listAddress()}>${t.run.all}</a></p>
          <h1 tabindex="-1">${t.start.title}</h1>
        </div>
      </div>
      ${this.agents === null ? this.#notice() : this.agents.length ? this.#form(this.agents) : none()}
    `
  }

  #notice(): TemplateResult | typeof nothing {
    return this.notice ? html`<p class="notice" role="alert">${this.notice}</p>` : nothing
  }

  #form(agents: readonly Agent[]): TemplateResult {
    const agent = agents.find((one) => one.name === this.agent) ?? (agents[0] as Agent)
    const before = this.earlier?.agent === agent.name ? this.earlier : null
    const fields = fieldsOf(agent.input_schema, before?.input)
    const choose = (event: Event): void => {
      location.hash = startAddress((event.target as HTMLSelectElement).value)
    }
    const changed = (): void => {
      this.#key = ""
    }
    const submit = (event: Event): Promise<void> => this.#start(event, agent, fields, before?.input)
    const own = fields.map((one) => this.#field(one))
    return html`<form class="card start" novalidate @submit=${submit} @input=${changed}>
      ${
        agents.length > 1
          ? html`<div class="field">
            <label for="agent">${t.start.agent}</label>
            <select id="agent" @change=${choose}>
              ${agents.map((one) => html`<option value=${one.name} ?selected=${one === agent}>${nameOf(one)}</option>`)}
            </select>
          </div>`
          : html`<h2 class="big">${nameOf(agent)}</h2>`
      }
      ${agent.description ? html`<p class="soft wrap">${agent.description}</p>` : nothing}
      ${before ? html`<p class="small soft">${t.start.from}</p>` : nothing}
      ${keyed(
        agent.name,
        html`<div class="fieldset">${own.length ? own : html`<p class="soft">${t.start.noInput}</p>`}</div>
          ${this.#more(before)}`,
      )}
      ${this.#notice()}
      <div class="row">
        <button class="main" type="submit" ?disabled=${this.busy}>
          ${this.busy ? t.start.starting : t.start.start}
        </button>
      </div>
    </form>`
  }

  #field(field: Field): TemplateResult {
    const id = `field-${field.name}`
    const wrong = this.wrong[field.name]
    const label = html`<label for=${id}>${field.title}</label>`
    const control = this.#control(field, id, wrong ? "true" : "false")
    return html`<div class="field">
      ${field.kind === "boolean" && !field.nullable ? html`<div class="row check">${control}${label}</div>` : html`${label}${control}`}
      <p class="small soft wrap" id="${id}-about">${field.about}</p>
      ${wrong ? html`<p class="wrong wrap" id="${id}-wrong">${wrong}</p>` : nothing}
    </div>`
  }

  #control(field: Field, id: string, invalid: "true" | "false"): TemplateResult {
    const about = `${id}-about ${id}-wrong`
    const hint = field.nullable ? t.start.notSet : undefined
    const select = (all: readonly unknown[]): TemplateResult => {
      const now = shown(field)
      return html`<select id=${id} aria-describedby=${about} aria-invalid=${invalid}>
        ${all.map((one) => {
          const value = JSON.stringify(one)
          return html`<option value=${value} ?selected=${value === now}>${wordOf(one)}</option>`
        })}
      </select>`
    }
    switch (field.kind) {
      case "boolean":
        if (field.nullable) return select([null, true, false])
        return html`<input
          id=${id}
          type="checkbox"
          ?checked=${field.given === true}
          aria-describedby=${about}
          aria-invalid=${invalid}
        />`
      case "choice":
        return select(field.nullable && !field.choices.includes(null) ? [null, ...field.choices] : field.choices)
      case "number":
        return html`<input
          id=${id}
          type="number"
          inputmode="decimal"
          step=${field.whole ? "1" : "any"}
          min=${ifDefined(field.least ?? undefined)}
          max=${ifDefined(field.most ?? undefined)}
          value=${shown(field)}
          placeholder=${ifDefined(hint)}
          aria-describedby=${about}
          aria-invalid=${invalid}
        />`
    }
    const text = field.kind === "text"
    const lines = text ? shown(field).split("\n", LINES).length : 3
    return html`<textarea
      id=${id}
      rows=${lines}
      autocomplete="off"
      @keydown=${text ? submits : null}
      spellcheck="false"
      .defaultValue=${shown(field)}
      placeholder=${ifDefined(hint)}
      aria-describedby=${about}
      aria-invalid=${invalid}
    ></textarea>`
  }

  #more(before: StartScreen["earlier"]): TemplateResult {
    const labels = Object.entries(before?.labels ?? {}).map(([name, value]) => `${name}:${value}`)
    return html`<details class="extra" ?open=${!!before?.key || labels.length > 0}>
      <summary>${t.start.more}</summary>
      <div class="fieldset">
        <div class="field">
          <label for="run-key">${t.start.key}</label>
          <input
            id="run-key"
            type="text"
            maxlength="255"
            value=${before?.key ?? ""}
            autocomplete="off"
            spellcheck="false"
            aria-describedby="run-key-about"
          />
          <p class="small soft" id="run-key-about">${t.start.keySays}</p>
        </div>
        <div class="field">
          <label for="run-labels">${t.start.labels}</label>
          <textarea
            id="run-labels"
            rows="2"
            spellcheck="false"
            .defaultValue=${labels.join("\n")}
            aria-describedby="run-labels-about"
            aria-invalid=${this.wrong[" labels"] ? "true" : "false"}
          ></textarea>
          <p class="small soft" id="run-labels-about">${t.start.labelsSays}</p>
          ${this.wrong[" labels"] ? html`<p class="wrong">${this.wrong[" labels"]}</p>` : nothing}
        </div>
      </div>
    </details>`
  }

  async #start(event: Event, agent: Agent, fields: readonly Field[], given: unknown): Promise<void> {
    event.preventDefault()
    if (this.busy) return
    const wrong: Record<string, string> = {}
    const before = isRecord(given) ? given : null
    // Of what was there, the form shows what the schema names; the rest goes along, unless the agent refuses it.
    const input: Record<string, unknown> = agent.input_schema.additionalProperties === false ? {} : { ...before }
    for (const field of fields) {
      const control = this.querySelector<HTMLInputElement>(`#${CSS.escape(`field-${field.name}`)}`)
      if (!control) continue
      const said = control.type === "checkbox" ? String(control.checked) : control.value
      const bad = control.validity.badInput
      if (before && !Object.hasOwn(before, field.name) && !bad && unchanged(field, said)) continue
      try {
        input[field.name] = read(field, said, bad)
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error
        wrong[field.name] = field.kind === "number" ? t.start.noNumber : t.start.noJson
      }
    }
    const labels = labelsOf(this.querySelector<HTMLTextAreaElement>("#run-labels")?.value ?? "")
    if (!labels) wrong[" labels"] = t.start.labelsWrong
    this.wrong = wrong
    this.notice = ""
    if (Object.keys(wrong).length || !labels) return
    const key = this.querySelector<HTMLInputElement>("#run-key")?.value.trim() || undefined
    this.busy = true
    this.#key ||= freshKey()
    try {
      const run = await client.start(agent.name, input, { labels, ...(key ? { key } : {}), idempotencyKey: this.#key })
      location.hash = runAddress(run.id)
    } catch (error) {
      this.#fail(error, fields)
    }
    this.busy = false
  }

  #fail(error: unknown, fields: readonly Field[]): void {
    if (error instanceof ProblemError && error.status) this.#key = ""
    const details = error instanceof ProblemError && isRecord(error.details) ? error.details : {}
    const problems = Array.isArray(details.problems) ? details.problems.filter(isRecord) : []
    const wrong: Record<string, string> = {}
    const rest: string[] = []
    for (const one of problems) {
      const place = String(one.field).split(".")[0] ?? ""
      if (fields.some((field) => field.name === place)) wrong[place] = String(one.message)
      else rest.push(`${String(one.field)}: ${String(one.message)}`)
    }
    this.wrong = wrong
    this.notice = problems.length ? rest.join(" ") : says(error)
  }
}

/** Enter starts the run while the text is one line, as it does elsewhere in the form; in a longer one it makes a line. */
function submits(event: KeyboardEvent): void {
  const { form, value } = event.target as HTMLTextAreaElement
  const insists = event.ctrlKey || event.metaKey
  if (event.key !== "Enter" || event.isComposing || event.shiftKey || (value.includes("\n") && !insists)) return
  event.preventDefault()
  form?.requestSubmit()
}

const wordOf = (choice: unknown): string =>
  choice === null ? t.start.notSet : typeof choice === "boolean" ? (choice ? t.start.yes : t.start.no) : String(choice)

const nameOf = (agent: Agent): string => agent.title || words(agent.name)

const none = (): TemplateResult => html`<section class="card empty"><p class="soft">${t.start.none}</p></section>`

customElements.define("ph-start", StartScreen)
