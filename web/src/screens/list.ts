// All runs, newest first, and before them what waits for a person.
import type { Agent, Interrupt, Run, RunRow, RunsFilter, RunsStore, Status } from "@playhead/client"
import { html, nothing, type PropertyValues, type TemplateResult } from "lit"
import { repeat } from "lit/directives/repeat.js"
import { notify, tab } from "../attention"
import { questionTitle } from "../documents"
import { PageElement } from "../element"
import { client, says, saysProblem } from "../net"
import { labels } from "../parts/facts"
import { tick } from "../parts/status"
import { type Filter, listAddress, runAddress, startAddress } from "../routes"
import { isFinal } from "../rows"
import { ago, moment, since } from "../times"
import { status, step, t, words } from "../words"

export class ListScreen extends PageElement {
  static override properties = {
    filter: {},
    agents: { state: true },
    filtering: { state: true },
    notice: { state: true },
  }
  declare filter: Filter
  declare agents: readonly Agent[]
  declare filtering: boolean
  declare notice: string
  #store: RunsStore | null = null
  #leave: () => void = () => {}
  #told: Set<string> | null = null

  constructor() {
    super()
    this.agents = []
    this.filtering = false
    this.notice = ""
  }

  override connectedCallback(): void {
    super.connectedCallback()
    client.agents().then(
      (agents) => (this.agents = agents),
      () => {}, // titles are a nicety; the list itself tells what is wrong
    )
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback()
    this.#close()
  }

  protected override willUpdate(changed: PropertyValues<this>): void {
    if (!changed.has("filter")) return
    this.#close()
    this.#store = client.list(asked(this.filter))
    this.#leave = this.#store.subscribe(() => this.#changed())
  }

  async #more(): Promise<void> {
    try {
      await this.#store?.more()
      this.notice = ""
    } catch (error) {
      this.notice = says(error)
    }
  }

  #close(): void {
    this.#leave()
    this.#store?.close()
    this.#store = null
  }

  #changed(): void {
    this.requestUpdate()
    const waiting = this.#store?.get().interrupts ?? []
    tab(
      waiting.length ? `(${waiting.length}) ${t.list.title} · playhead` : `${t.list.title} · playhead`,
      waiting.length ? "asks" : "none",
    )
    if (this.#told)
      for (const one of waiting)
        if (!this.#told.has(one.id)) notify({ title: t.status.waiting, body: questionTitle(one), tag: one.id })
    this.#told = new Set([...(this.#told ?? []), ...waiting.map((one) => one.id)])
  }

  protected override render(): TemplateResult {
    const view = this.#store?.get()
    if (!view) return html``
    const { runs, interrupts, next, loading, problem } = view
    const trouble = problem ? saysProblem(problem) : this.notice
    const some = Object.values(this.filter).some((one) => one.length)
    return html`
      <div class="head tight">
        <h1 tabindex="-1" class="grow">${t.list.title}</h1>
        <a class="button main" href=${startAddress()}>${t.start.new}</a>
      </div>
      ${trouble ? html`<p class="notice" role="alert">${trouble}</p>` : nothing}
      ${interrupts.length ? this.#waiting(interrupts) : nothing}
      <section class="card" aria-label=${t.list.all}>
        <div class="row tight">
          <h2 class="grow">${t.list.all}</h2>
          ${some ? html`<a class="link" href=${listAddress()}>${t.list.clear}</a>` : nothing}
          <button
            class="link narrow"
            type="button"
            aria-controls="filters"
            aria-expanded=${this.filtering ? "true" : "false"}
            @click=${() => {
              this.filtering = !this.filtering
            }}
          >
            ${t.list.filters}
          </button>
        </div>
        ${this.#filters()}
        ${
          runs.length
            ? html`<ul class="runs" aria-label=${t.list.all}>${repeat(
                runs,
                (one) => one.id,
                (one) => this.#line(one),
              )}</ul>`
            : this.#none(loading, some)
        }
        ${
          next
            ? html`<p>
                <button class="link" type="button" ?disabled=${loading} @click=${this.#more}>${t.list.more}</button>
              </p>`
            : nothing
        }
      </section>
    `
  }

  #waiting(list: readonly Interrupt[]): TemplateResult {
    return html`<section class="card waiting" aria-label=${t.list.waiting}>
      <h2>${t.list.waiting}</h2>
      <ul class="runs">
        ${repeat(
          list,
          (one) => one.id,
          (one) => html`<li>
            <span class="pill" data-status="waiting">${words(one.kind)}</span>
            <span class="what">
              <a class="name wrap" href=${runAddress(one.run_id)}>${questionTitle(one)}</a>
              ${this.#askedBy(one.run_id)}
            </span>
            <span class="when small soft">${tick(() => ago(one.created_at))}</span>
          </li>`,
        )}
      </ul>
    </section>`
  }

  #askedBy(id: string): TemplateResult | typeof nothing {
    const row = this.#store?.get().runs.find((one) => one.id === id)
    if (!row) return nothing
    const title = row.snapshot?.title || this.#titleOf(row.run.agent)
    return html`<span class="soft small wrap">${[title, row.run.key].filter(Boolean).join(" · ")}</span>`
  }

  #line(row: RunRow): TemplateResult {
    const { run, snapshot } = row
    const now = isFinal(run.status) ? run.status : (snapshot?.status ?? run.status)
    const progress = isFinal(now) ? null : (snapshot?.progress ?? null)
    const says = isFinal(now) ? run.error?.message : snapshot?.current_step && step(snapshot.current_step)
    return html`<li data-run=${run.id}>
      <span class="pill" data-status=${now}>${status(now)}</span>
      <span class="what">
        <a class="name wrap" href=${runAddress(run.id)}>${snapshot?.title || this.#titleOf(run.agent)}</a>
        <span class="soft small wrap">${[run.key ?? `…${run.id.slice(-8)}`, says].filter(Boolean).join(" · ")}</span>
        ${labels(run.labels)}
      </span>
      ${
        progress === null
          ? nothing
          : html`<progress max="100" .value=${progress} data-status=${now} aria-label=${t.run.progress}></progress>`
      }
      <span class="when small soft">
        ${when(run, isFinal(now))}
      </span>
    </li>`
  }

  #none(loading: boolean, some: boolean): TemplateResult {
    if (loading) return html`<p class="soft" aria-busy="true">${t.list.loading}</p>`
    if (some) return html`<p class="soft">${t.list.nothing}</p>`
    return html`<div class="empty">
      <p><strong>${t.list.none}</strong></p>
      <p class="soft">${t.list.noneSays}</p>
      <p><a class="button main" href=${startAddress()}>${t.start.title}</a></p>
    </div>`
  }

  #filters(): TemplateResult {
    const { filter } = this
    const go = (change: Partial<Filter>): void => {
      location.hash = listAddress({ ...filter, ...change })
    }
    const toggle = (name: string): void =>
      go({
        status: filter.status.includes(name) ? filter.status.filter((one) => one !== name) : [...filter.status, name],
      })
    const search = (name: "label" | "key", title: string, hint: string): TemplateResult =>
      html`<input
        type="search"
        aria-label=${title}
        placeholder=${hint}
        .value=${filter[name]}
        @change=${(event: Event) => go({ [name]: text(event) })}
        autocomplete="off"
        spellcheck="false"
      />`
    const text = (event: Event): string => (event.target as HTMLInputElement | HTMLSelectElement).value.trim()
    const shown = this.filtering || Object.values(filter).some((one) => one.length)
    return html`<div class="filters" id="filters" role="group" data-open=${shown} aria-label=${t.list.filters}>
      <div class="chips" role="group" aria-label=${t.list.status}>
        ${Object.entries(t.status).map(
          ([name, word]) =>
            html`<button
              class="chip"
              type="button"
              data-status=${name}
              aria-pressed=${filter.status.includes(name) ? "true" : "false"}
              @click=${() => toggle(name)}
            >
              ${word}
            </button>`,
        )}
      </div>
      ${
        this.agents.length > 1 || filter.agent
          ? html`<select aria-label=${t.list.agent} @change=${(event: Event) => go({ agent: text(event) })}>
            <option value="" ?selected=${!filter.agent}>${t.list.agent}: ${t.list.any}</option>
            ${this.#agentNames().map(
              (name) => html`<option value=${name} ?selected=${name === filter.agent}>${this.#titleOf(name)}</option>`,
            )}
          </select>`
          : nothing
      }
      ${search("label", t.list.label, `${t.list.label} (${t.list.labelHint})`)} ${search("key", t.list.key, t.list.key)}
    </div>`
  }

  #agentNames(): string[] {
    return [...new Set([...this.agents.map((one) => one.name), this.filter.agent])].filter(Boolean)
  }

  #titleOf(name: string): string {
    return this.agents.find((one) => one.name === name)?.title || words(name)
  }
}

function asked({ status, agent, label, key }: Filter): RunsFilter {
  const [name = "", ...value] = label.split(":")
  return {
    ...(status.length ? { status: status as Status[] } : {}),
    ...(agent ? { agent } : {}),
    ...(label ? { labels: { [name.trim()]: value.join(":").trim() } } : {}),
    ...(key ? { key } : {}),
  }
}

function when({ created_at, started_at, ended_at }: Run, over: boolean): TemplateResult {
  if (!over) return tick(() => (started_at ? t.list.goes(since(started_at)) : t.list.queued(since(created_at))))
  const at = ended_at ?? created_at
  return html`<time datetime=${at} title=${moment(at)}>${tick(() => ago(at))}</time>
    ${started_at ? html`<span>${t.list.ran(since(started_at, ended_at))}</span>` : nothing}`
}

customElements.define("ph-list", ListScreen)
