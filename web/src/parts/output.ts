// What the run says: growing text while it goes on, then the record's result in its place.
import type { RunView } from "@playhead/client"
import { html, nothing, type PropertyValues, type TemplateResult } from "lit"
import { repeat } from "lit/directives/repeat.js"
import { partial, report } from "../documents"
import { PageElement } from "../element"
import { isRecord } from "../payload"
import { isFinal } from "../rows"
import { t, words } from "../words"
import { content, json } from "./content"
import { markdown } from "./markdown"
import { Pinned } from "./pinned"

const MOST = 100_000 // characters that are formatted; beyond it, text is plain

interface Part {
  readonly key: string
  readonly part: string
  readonly text: string
  readonly cut: boolean
}

export class Output extends PageElement {
  static override properties = { view: {}, status: {}, plain: { state: true } }
  declare view: RunView
  declare status: string
  declare plain: boolean
  #pinned = new Pinned(this, ".box")

  constructor() {
    super()
    this.plain = false
  }

  protected override willUpdate(): void {
    this.#pinned.measure()
  }

  protected override updated(_: PropertyValues): void {
    if (!isFinal(this.status)) this.#pinned.follow()
  }

  protected override render(): TemplateResult {
    const run = this.view.run as NonNullable<RunView["run"]>
    const over = isFinal(run.status)
    return html`${over && run.status === "succeeded" ? this.#result(run.result) : nothing}
    ${this.#parts(parts(this.view, over), over)}`
  }

  #result(result: unknown): TemplateResult {
    const text = report(result)
    const rest = text !== null && isRecord(result) ? withoutMarkdown(result) : null
    return html`<section class="card result" aria-label=${t.output.result}>
      <div class="row"><h2 class="grow">${t.output.result}</h2>${text === null ? nothing : this.#toggle()}</div>
      ${text !== null ? this.#body(text) : result !== null ? content(result) : noResult()}
      ${
        rest === null && (text !== null || result === null)
          ? nothing
          : html`<details><summary>${t.output.json}</summary>${json(rest ?? result)}</details>`
      }
    </section>`
  }

  #parts(list: readonly Part[], over: boolean): TemplateResult | typeof nothing {
    if (!list.length) return nothing
    const title = over ? t.output.kept : t.output.live
    return html`<section class="card output" aria-label=${title}>
      <div class="row"><h2 class="grow">${title}</h2>${this.#toggle()}</div>
      ${repeat(
        list,
        (one) => one.key,
        (one) => html`<section class="part" data-part=${one.part}>
          <h3>${name(one.part)}</h3>
          <div class="box" tabindex="0" role="group" aria-label=${name(one.part)}>${this.#body(one.text)}</div>
          ${one.cut ? html`<p class="small soft">${t.output.cut}</p>` : nothing}
        </section>`,
      )}
    </section>`
  }

  #body(text: string): TemplateResult {
    return this.plain || text.length > MOST ? html`<div class="plain">${text}</div>` : markdown(text)
  }

  #toggle(): TemplateResult {
    const turn = (): void => {
      this.plain = !this.plain
    }
    const pressed = this.plain ? "true" : "false"
    return html`<button class="link toggle" type="button" aria-pressed=${pressed} @click=${turn}>
      ${t.output.plain}
    </button>`
  }
}

// The record's result stands for what was streamed; what a run without one had said is kept in the record.
function parts(view: RunView, over: boolean): Part[] {
  const run = view.run as NonNullable<RunView["run"]>
  const kept = over ? partial(run) : []
  if (kept.length) return kept.map((one) => ({ key: one.part, part: one.part, text: one.text, cut: true }))
  if (over && run.status === "succeeded") return []
  return view.text.map((one) => ({
    key: `${one.attempt}/${one.part}`,
    part: one.part,
    text: one.text,
    cut: one.truncated || over,
  }))
}

function withoutMarkdown(result: Record<string, unknown>): Record<string, unknown> | null {
  const { markdown: _, ...rest } = result
  return Object.keys(rest).length ? rest : null
}

const noResult = (): TemplateResult => html`<p class="soft">${t.output.noResult}</p>`

function name(part: string): string {
  return Object.hasOwn(t.output.part, part) ? (t.output.part[part] as string) : words(part)
}

customElements.define("ph-output", Output)
