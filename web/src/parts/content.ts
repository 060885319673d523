// Any JSON value as something to read: objects as lines, lists of objects as tables.
import { html, nothing, type TemplateResult } from "lit"
import { isRecord } from "../payload"
import { t, words } from "../words"

const DEPTH = 3
const DIGEST = /^[0-9a-f]{32,}$/
const SHORT = 24 // characters
const ROWS = 500 // of one table; the whole is in the download

export function content(value: unknown, depth = 0): TemplateResult {
  if (value === null || value === undefined || value === "") return html`<span class="soft">${t.output.none}</span>`
  if (typeof value === "string" && DIGEST.test(value)) return html`<code title=${value}>${value.slice(0, 12)}…</code>`
  if (typeof value !== "object") return scalar(String(value))
  if (depth > DEPTH) return json(value)
  if (isRecord(value)) return record(value, depth)
  const list = value as readonly unknown[]
  if (!list.length) return html`<span class="soft">${t.output.none}</span>`
  if (list.every(isRecord)) return grid(list, depth)
  const items = list.slice(0, ROWS).map((one) => html`<li>${content(one, depth + 1)}</li>`)
  return html`<ul class="plain-list">${items}</ul>${more(list)}`
}

/** A short text stays on its line, so that a table's columns are as wide as what is in them. */
export function scalar(text: string, shown: unknown = text): TemplateResult {
  return html`<span class=${text.length > SHORT ? "wrap" : "short"}>${shown}</span>`
}

export function json(value: unknown): TemplateResult {
  return html`<pre tabindex="0">${JSON.stringify(value, null, 2)}</pre>`
}

function record(value: Record<string, unknown>, depth: number): TemplateResult {
  const all = Object.entries(value)
  const flat = all.filter(([, one]) => one === null || typeof one !== "object")
  const deep = all.filter(([, one]) => one !== null && typeof one === "object")
  const lines = flat.map(
    ([key, one]) => html`<tr><th scope="row">${words(key)}</th><td>${content(one, depth + 1)}</td></tr>`,
  )
  return html`<div class="block">
    ${lines.length ? html`<table class="fields"><tbody>${lines}</tbody></table>` : nothing}
    ${deep.map(([key, one]) => html`<div><p class="key">${words(key)}</p>${content(one, depth + 1)}</div>`)}
  </div>`
}

function grid(list: readonly Record<string, unknown>[], depth: number): TemplateResult {
  const cell = (one: Record<string, unknown>, key: string): TemplateResult =>
    html`<td>${isTold(one, key) ? content(one[key], depth + 1) : nothing}</td>`
  const keys = [...new Set(list.flatMap(Object.keys))].filter((key) => list.some((one) => isTold(one, key)))
  return html`<div class="scroll" tabindex="0" role="group"><table>
    <thead><tr>${keys.map((key) => html`<th scope="col">${words(key)}</th>`)}</tr></thead>
    <tbody>${list.slice(0, ROWS).map((one) => html`<tr>${keys.map((key) => cell(one, key))}</tr>`)}</tbody>
  </table>${more(list)}</div>`
}

function isTold(one: Record<string, unknown>, key: string): boolean {
  const value = Object.hasOwn(one, key) ? one[key] : undefined
  return value !== undefined && value !== null && value !== ""
}

const more = (list: readonly unknown[]): TemplateResult | typeof nothing =>
  list.length > ROWS ? html`<p class="soft small">… ${list.length - ROWS}</p>` : nothing
