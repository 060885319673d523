// An open question to a person, with all that is asked, and the one answer.
import { type Interrupt, ProblemError } from "@playhead/client"
import { html, nothing, type TemplateResult } from "lit"
import { say } from "../attention"
import { questionTitle } from "../documents"
import { PageElement } from "../element"
import { client, says } from "../net"
import { isRecord, Payload } from "../payload"
import { ago, now, span } from "../times"
import { t } from "../words"
import { content } from "./content"
import { tick } from "./status"

export class Question extends PageElement {
  static override properties = { interrupt: {}, busy: { state: true }, wrong: { state: true } }
  declare interrupt: Interrupt
  declare busy: boolean
  declare wrong: string
  // As the record tells it, once that was asked for: what an event told may be given again.
  #whole: Interrupt | null = null

  constructor() {
    super()
    this.busy = false
    this.wrong = ""
  }

  protected override render(): TemplateResult {
    const one = this.#asked
    const title = questionTitle(one)
    const answer = (kind: string, approved: boolean, word: string): TemplateResult =>
      html`<button class=${kind} type="button" ?disabled=${this.busy} @click=${() => this.#decide(approved)}>
        ${word}
      </button>`
    const note = `note-${one.id}`
    return html`<article class="card ask" aria-labelledby="ask-${one.id}" data-question=${one.id}>
      <div class="row">
        <h2 id="ask-${one.id}" class="grow wrap">${title}</h2>
        <span class="small soft">${tick(() => due(one))}</span>
      </div>
      ${asked(one.payload)}
      <div class="field">
        <label for=${note}>${t.question.note}</label>
        <textarea id=${note} maxlength="2000" rows="1" placeholder=${t.question.noteHint}></textarea>
      </div>
      ${this.wrong ? html`<p class="wrong" role="alert">${this.wrong}</p>` : nothing}
      <div class="row answers">
        ${answer("main", true, t.question.approve)} ${answer("no", false, t.question.reject)}
      </div>
    </article>`
  }

  get #asked(): Interrupt {
    return this.#whole?.id === this.interrupt.id ? this.#whole : this.interrupt
  }

  async #decide(approved: boolean): Promise<void> {
    const note = this.querySelector("textarea")?.value.trim() || null
    this.busy = true
    this.wrong = ""
    try {
      if (!(await this.#isWhole())) return
      await client.decide(this.interrupt.run_id, this.interrupt.id, { approved, note })
      say(approved ? t.question.approved : t.question.rejected)
      this.#close("")
    } catch (error) {
      // Any 409 means that this question is closed, by somebody or by time.
      if (error instanceof ProblemError && error.status === 409) this.#close(closedBy(error))
      else this.wrong = says(error)
    } finally {
      this.busy = false
    }
  }

  // An event tells no more than the title of what is asked. Nobody decides on what was not shown.
  async #isWhole(): Promise<boolean> {
    const { id, run_id, payload } = this.#asked
    if (!isRecord(payload) || Object.keys(payload).some((name) => name !== "title")) return true
    const whole = (await client.bootstrap(run_id, 0)).interrupts.find((one) => one.id === id)
    if (!whole || JSON.stringify(whole.payload) === JSON.stringify(payload)) return true
    this.#whole = whole
    this.requestUpdate()
    return false
  }

  #close(detail: string): void {
    this.dispatchEvent(new CustomEvent("answered", { detail }))
  }
}

function closedBy(error: ProblemError): string {
  const details = new Payload(error.details)
  if (error.code === "already_decided" && isRecord(details.get("decision"))) {
    return t.question.already(details.approved(), details.text("decided_by"))
  }
  if (error.code === "approval_expired") return t.question.expired
  return error.code === "approval_cancelled" ? t.question.withdrawn : says(error)
}

function due(one: Interrupt): string {
  if (!one.deadline) return t.question.asked(ago(one.created_at))
  const left = Date.parse(one.deadline) - now()
  return left > 0 ? t.question.left(span(left)) : t.question.over
}

function asked(payload: unknown): TemplateResult | typeof nothing {
  if (!isRecord(payload)) return content(payload)
  const { title: _, ...rest } = payload
  return Object.keys(rest).length ? content(rest) : nothing
}

customElements.define("ph-question", Question)
