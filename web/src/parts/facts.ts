// What is seldom asked for, folded away: who, when, which version, and with what input.
import type { RunView } from "@playhead/client"
import { html, nothing, type TemplateResult } from "lit"
import { isRecord } from "../payload"
import { listAddress, startAddress } from "../routes"
import { isFinal } from "../rows"
import { ago, moment } from "../times"
import { t, words } from "../words"
import { content } from "./content"
import { fact, tick } from "./status"

export function facts(view: RunView, now: string): TemplateResult {
  const run = view.run as NonNullable<RunView["run"]>
  const snapshot = view.snapshot as NonNullable<RunView["snapshot"]>
  const { heartbeat_at, started_at } = snapshot
  const at = (time: string): TemplateResult => html`<time datetime=${time}>${moment(time)}</time>`
  const over = isFinal(now)
  const beat = heartbeat_at && (over ? at(heartbeat_at) : tick(() => ago(heartbeat_at)))
  const empty = run.input === null || (isRecord(run.input) && !Object.keys(run.input).length)
  return html`<details class="card more">
    <summary>${t.run.details}</summary>
    <dl class="facts">
      ${fact("agent", t.run.agent, words(run.agent))}
      ${fact("started_at", t.run.started, started_at && at(started_at))}
      ${fact("heartbeat_at", t.run.heartbeat, beat)}
      ${fact("attempt", t.run.attempt, snapshot.attempt)}
      ${fact("version", t.run.version, snapshot.version)}
      ${fact("rev", t.run.rev, snapshot.rev)}
      ${fact("key", t.run.key, run.key && html`<a href=${listAddress({ key: run.key })}>${run.key}</a>`)}
      ${fact("labels", t.run.labels, Object.keys(run.labels).length ? labels(run.labels) : null)}
      ${fact("id", t.run.id, html`<span class="mono">${run.id}</span>`)}
    </dl>
    <div class="row">
      <h3 class="grow">${t.run.input}</h3>
      ${over ? html`<a class="link" href=${startAddress(run.agent, run.id)}>${t.start.changed}</a>` : nothing}
    </div>
    ${empty ? html`<p class="soft">${t.run.noInput}</p>` : content(run.input)}
  </details>`
}

/** Each label leads to the runs that have it too. */
export function labels(all: Readonly<Record<string, string>>): TemplateResult | typeof nothing {
  const names = Object.keys(all)
  if (!names.length) return nothing
  return html`<span class="labels">${names.map((name) => {
    const label = `${name}:${all[name]}`
    const only = t.list.only(name, all[name] ?? "")
    return html`<a class="chip" href=${listAddress({ label })} title=${only}>${name} <b>${all[name]}</b></a>`
  })}</span>`
}
