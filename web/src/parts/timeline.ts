// What happened, oldest first, up to the mark of now.
import type { Interrupt, RunEvent, RunView } from "@playhead/client"
import { html, nothing, type PropertyValues, type TemplateResult } from "lit"
import { repeat } from "lit/directives/repeat.js"
import { PageElement } from "../element"
import { detailOf, isFinal, type Row, rows, titleOf } from "../rows"
import { clock, moment, since } from "../times"
import { step, t } from "../words"
import { Pinned } from "./pinned"
import { tick } from "./status"

export class Timeline extends PageElement {
  static override properties = {
    events: {},
    timeline: {},
    interrupts: { hasChanged: differ },
    status: {},
    step: {},
    stepAt: {},
    load: { hasChanged: () => false },
    busy: { state: true },
  }
  declare events: readonly RunEvent[]
  declare timeline: RunView["timeline"]
  declare interrupts: readonly Interrupt[]
  declare status: string
  declare step: string | null
  declare stepAt: string | null
  declare load: () => Promise<void>
  declare busy: boolean
  #pinned = new Pinned(this, "ol")
  #first = ""

  constructor() {
    super()
    this.busy = false
  }

  // Older rows above must not push away what somebody reads.
  protected override willUpdate(): void {
    this.#pinned.measure()
  }

  protected override updated(_: PropertyValues): void {
    const first = this.events[0]?.id ?? ""
    const older = this.#first && first !== this.#first
    this.#first = first
    if (!older) this.#pinned.follow()
  }

  protected override render(): TemplateResult {
    const open = new Set(this.interrupts.map((one) => one.id))
    const list = rows(this.events, open, this.status)
    return html`<section class="card timeline" aria-label=${t.timeline.title} data-complete=${this.timeline.complete}>
      <h2>${t.timeline.title}</h2>
      ${this.timeline.complete ? nothing : html`<p class="hole" role="note">${t.timeline.incomplete}</p>`}
      ${
        this.timeline.has_older
          ? html`<button class="link older" type="button" ?disabled=${this.busy} @click=${this.#older}>
              ${t.timeline.older}
            </button>`
          : nothing
      }
      ${list.length ? nothing : html`<p class="soft small">${t.timeline.none}</p>`}
      <ol tabindex="0" aria-label=${t.timeline.events}>
        ${repeat(list, (row) => row.key, line)}
        ${isFinal(this.status) || !list.length ? nothing : this.#now()}
      </ol>
    </section>`
  }

  #now(): TemplateResult {
    const at = this.stepAt
    const work = this.step ? step(this.step) : t.status[this.status as keyof typeof t.status]
    return html`<li class="now" data-status=${this.status}>
      <span class="mark" aria-hidden="true"></span>
      <span class="title"><b>${t.timeline.now}</b> <span class="soft">${work}</span></span>
      <span class="time">${at ? tick(() => since(at)) : nothing}</span>
    </li>`
  }

  async #older(): Promise<void> {
    this.busy = true
    await this.load()
    this.busy = false
  }
}

function line(row: Row): TemplateResult {
  const { began, ended, state } = row
  const detail = detailOf(row)
  const at = began.occurred_at
  const ids = JSON.stringify([began.id, ...(ended ? [ended.id] : [])])
  return html`<li data-ids=${ids} data-type=${(ended ?? began).type} data-state=${state}>
    <span class="mark"><span class="unseen">${t.timeline.state[state]}</span></span>
    <span class="title wrap">${titleOf(row)}</span>
    ${
      row.waits
        ? html`<span class="time waits">${t.timeline.waiting}</span>`
        : html`<time class="time" datetime=${at} title=${moment(at)}>${clock(at)}</time>`
    }
    ${detail ? html`<span class="detail wrap">${detail}</span>` : nothing}
  </li>`
}

function differ(a: readonly Interrupt[], b: readonly Interrupt[] | undefined): boolean {
  return a.length !== b?.length || a.some((one, i) => one.id !== b[i]?.id)
}

customElements.define("ph-timeline", Timeline)
