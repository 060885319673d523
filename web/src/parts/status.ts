// How the run stands, and what it is at. Both come from the snapshot and move without an entry on the timeline.
import type { Run, RunView } from "@playhead/client"
import { html, nothing, type TemplateResult } from "lit"
import "./tick"
import { isFinal } from "../rows"
import { ago, moment, since } from "../times"
import { status, step, t } from "../words"

export const tick = (tell: () => string): TemplateResult => html`<ph-tick .tell=${tell}></ph-tick>`

export function statusCard(view: RunView, now: string, stopping: boolean): TemplateResult {
  const snapshot = view.snapshot as NonNullable<RunView["snapshot"]>
  const run = view.run as NonNullable<RunView["run"]>
  // Whatever an agent said last of its progress: a run that succeeded is done.
  const progress = now === "succeeded" ? 100 : snapshot.progress
  const known = progress !== null || isFinal(now)
  const says = stopping ? t.run.stopAsked : t.statusSays[now as keyof typeof t.statusSays]
  return html`<section class="card status" aria-label=${t.run.statusCard} data-status=${now}>
    <p class="word"><span class="dot" aria-hidden="true"></span><span data-field="status">${status(now)}</span></p>
    <p class="percent" data-field="progress">${progress === null ? nothing : `${Math.round(progress)} %`}</p>
    ${
      known
        ? html`<progress max="100" .value=${progress ?? 0} data-status=${now} aria-label=${t.run.progress}></progress>`
        : html`<progress max="100" data-status=${now} aria-label=${t.run.progress}></progress>`
    }
    ${run.error ? failure(run.error) : nothing}
    ${says ? html`<p class="says">${says}</p>` : nothing}
    <p class="meta">
      <time data-field="updated_at" datetime=${snapshot.updated_at} title=${moment(snapshot.updated_at)}>
        ${tick(() => t.run.updated(ago(snapshot.updated_at)))}
      </time>
      ${snapshot.started_at ? lasting(snapshot.started_at, run.ended_at, isFinal(now)) : nothing}
    </p>
  </section>`
}

function failure({ message, code }: NonNullable<Run["error"]>): TemplateResult {
  return html`<p class="error wrap"><strong>${message}</strong> <span class="code">${code}</span></p>`
}

function lasting(started: string, ended: string | null, over: boolean): TemplateResult {
  return html`<span>${over ? t.run.took(since(started, ended)) : tick(() => t.run.startedAgo(ago(started)))}</span>`
}

export function workCard(view: RunView, now: string): TemplateResult {
  const snapshot = view.snapshot as NonNullable<RunView["snapshot"]>
  const going = !isFinal(now)
  const { current_step, done, total, detail, next_action, scope, as_of } = snapshot
  const stepAt = going ? snapshot.step_started_at : null
  const facts = scope !== null || as_of !== null || stepAt !== null
  const told =
    next_action !== null || current_step !== null || detail !== null || total !== null || done !== null || facts
  return html`<section class="card work" ?hidden=${!told} aria-label=${going ? t.run.current : t.run.last}>
    <h2>${going ? t.run.current : t.run.last}</h2>
    <p class="step wrap" data-field="current_step" ?hidden=${!current_step}>${step(current_step ?? "")}</p>
    <p class="count" ?hidden=${done === null && total === null}>
      ${
        total === null
          ? html`<span data-field="done">${done === null ? nothing : t.run.done(done)}</span>`
          : html`<span data-field="done">${done ?? 0}</span> <span data-field="total">${t.run.of(total)}</span>`
      }
    </p>
    <p class="detail wrap" data-field="detail" ?hidden=${!detail}>${detail}</p>
    <p class="next wrap" ?hidden=${!going || !next_action}>
      <span class="label">${t.run.next}</span> <span data-field="next_action">${next_action}</span>
    </p>
    <dl class="facts" ?hidden=${!facts}>
      ${fact("scope", t.run.scope, scope)}
      ${fact("as_of", t.run.asOf, as_of)}
      ${fact("step_started_at", t.run.inStep, stepAt && tick(() => since(stepAt)))}
    </dl>
  </section>`
}

export function fact(name: string, title: string, value: unknown): TemplateResult {
  const told = value !== null && value !== undefined && value !== ""
  return html`<div ?hidden=${!told}>
    <dt>${title}</dt>
    <dd class="wrap" data-field=${name}>${told ? value : nothing}</dd>
  </div>`
}
