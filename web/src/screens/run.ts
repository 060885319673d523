// One run: what it is, how it stands, what it asks, what it says and what happened.
import type { RunStore, RunView } from "@playhead/client"
import { html, nothing, type TemplateResult } from "lit"
import { repeat } from "lit/directives/repeat.js"
import "../parts/output"
import "../parts/question"
import "../parts/timeline"
import { type Mark, notify, say, tab } from "../attention"
import { titleOfView } from "../documents"
import { PageElement } from "../element"
import { Herald, LineHerald } from "../herald"
import { client, says } from "../net"
import { actions } from "../parts/actions"
import { facts } from "../parts/facts"
import { statusCard, workCard } from "../parts/status"
import { listAddress, runAddress } from "../routes"
import { isFinal, statusOf } from "../rows"
import { status, t } from "../words"

const SLOW = 4000 // ms until a person is told why there is nothing to see
const MARKS: Readonly<Record<string, Mark>> = {
  queued: "live",
  running: "live",
  waiting: "asks",
  succeeded: "done",
  failed: "failed",
  interrupted: "failed",
  cancelled: "off",
}

export class RunScreen extends PageElement {
  static override properties = {
    runId: {},
    notice: { state: true },
    slow: { state: true },
    stopAsked: { state: true },
    busy: { state: true },
  }
  declare runId: string
  declare notice: string
  /** Nothing came for a while. */
  declare slow: boolean
  declare stopAsked: boolean
  declare busy: boolean
  #store: RunStore | null = null
  #leave: () => void = () => {}
  #answered = new Set<string>()
  #herald = new Herald()
  #line = new LineHerald(say)
  #patience: ReturnType<typeof setTimeout> | undefined

  constructor() {
    super()
    this.notice = ""
    this.slow = false
    this.stopAsked = false
    this.busy = false
  }

  override connectedCallback(): void {
    super.connectedCallback()
    this.#store = client.follow(this.runId)
    this.#leave = this.#store.subscribe(() => this.#changed())
    this.#changed()
    this.#patience = setTimeout(() => {
      this.slow = true
    }, SLOW)
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback()
    clearTimeout(this.#patience)
    this.#line.close()
    this.#leave()
    this.#store?.close()
    this.#store = null
  }

  // Also while the tab is hidden: its title, its icon and a notification are for then.
  #changed(): void {
    const view = this.#store?.get()
    if (!view) return
    this.requestUpdate()
    if (!view.run) return
    const now = statusOf(view)
    const progress = now === "running" ? view.snapshot?.progress : null
    tab(`${progress == null ? status(now) : `${Math.round(progress)} %`} · ${titleOfView(view)}`, MARKS[now] ?? "none")
    this.#line.note(view.connection)
    const news = this.#herald.note(view)
    if (!news) return
    say(news.say)
    if (news.call) notify(news.call)
  }

  protected override render(): TemplateResult {
    const view = this.#store?.get()
    if (!view) return html``
    if (view.problem && view.connection === "refused") return this.#refused(view.problem)
    if (!view.run || !view.snapshot) return this.#waits(view)
    const now = statusOf(view)
    const open = view.interrupts.filter((one) => !this.#answered.has(one.id))
    const stopping =
      this.stopAsked || view.run.cancel_requested !== null || view.events.some((one) => one.type === "cancel_requested")
    return html`
      <div class="run" data-status=${now} data-connection=${view.connection}>
        ${this.#head(view, now, stopping)}
        ${this.notice ? html`<p class="notice" role="alert">${this.notice}</p>` : nothing}
        <div class="columns">
          <div class="stack main-work">
            ${statusCard(view, now, stopping && !isFinal(now))}
            <section class="stack" aria-label=${t.question.region} ?hidden=${!open.length}>
              ${repeat(
                open,
                (one) => one.id,
                (one) =>
                  html`<ph-question
                    .interrupt=${one}
                    @answered=${(event: CustomEvent<string>) => this.#closed(one.id, event.detail)}
                  ></ph-question>`,
              )}
            </section>
            ${workCard(view, now)}
            <ph-output .view=${view} .status=${now}></ph-output>
          </div>
          <ph-timeline
            .events=${view.events}
            .timeline=${view.timeline}
            .interrupts=${open}
            .status=${now}
            .step=${view.snapshot.current_step}
            .stepAt=${view.snapshot.step_started_at}
            .load=${() => this.#older()}
          ></ph-timeline>
          ${facts(view, now)}
        </div>
      </div>
    `
  }

  #head(view: RunView, now: string, stopping: boolean): TemplateResult {
    // Once the record has told the end, a line that is still open brings nothing that matters.
    const over = view.run?.ended_at != null
    return html`<div class="head">
      <div class="grow">
        <p class="crumb"><a href=${listAddress()}>${t.run.all}</a></p>
        <h1 tabindex="-1" data-field="title">${titleOfView(view)}</h1>
        <p class="subtitle wrap" data-field="subtitle">${view.snapshot?.subtitle}</p>
      </div>
      <div class="tools">
        ${badge(over ? "ended" : view.connection)}
        ${actions({
          view,
          now,
          stopping,
          busy: this.busy,
          stop: (reason) => this.#stop(reason),
          again: () => this.#again(),
          fail: (error) => {
            this.notice = says(error)
          },
        })}
      </div>
    </div>`
  }

  #refused(problem: NonNullable<RunView["problem"]>): TemplateResult {
    tab("playhead", "none")
    const absent = problem.status === 404
    return html`<section class="card empty">
      <h1 tabindex="-1">${absent ? t.run.notFound : t.run.refused}</h1>
      <p class="soft">${absent ? t.run.notFoundSays : problem.detail}</p>
      <p><a class="button" href=${listAddress()}>${t.run.all}</a></p>
    </section>`
  }

  #waits(view: RunView): TemplateResult {
    return html`<section class="card empty" aria-busy="true">
      <h1 tabindex="-1">${t.run.loading}</h1>
      <p>${badge(view.connection)}</p>
      ${this.slow ? html`<p class="soft">${t.run.unreachable}</p>` : nothing}
    </section>`
  }

  #closed(id: string, notice: string): void {
    this.#answered.add(id)
    this.notice = notice
    this.requestUpdate()
  }

  async #older(): Promise<void> {
    try {
      await this.#store?.older()
    } catch (error) {
      this.notice = says(error)
    }
  }

  async #stop(reason: string): Promise<void> {
    this.notice = ""
    this.stopAsked = true
    try {
      await client.cancel(this.runId, reason || undefined)
      say(t.run.stopAsked)
    } catch (error) {
      this.stopAsked = false
      this.notice = says(error)
    }
  }

  async #again(): Promise<void> {
    const run = this.#store?.get().run
    if (!run || this.busy) return
    this.busy = true
    this.notice = ""
    try {
      const next = await client.start(run.agent, run.input, {
        labels: run.labels,
        ...(run.key ? { key: run.key } : {}),
      })
      location.hash = runAddress(next.id)
    } catch (error) {
      this.notice = says(error)
    }
    this.busy = false
  }
}

function badge(word: RunView["connection"]): TemplateResult {
  return html`<span class="badge" data-connection=${word} title=${t.connectionSays[word]}>${t.connection[word]}</span>`
}

customElements.define("ph-run", RunScreen)
