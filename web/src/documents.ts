// What a person takes home of a run, made here in the browser.
import type { Interrupt, Run, RunEvent, RunView } from "@playhead/client"
import { isRecord, Payload } from "./payload"
import { detailOf, rows, titleOf } from "./rows"
import { moment } from "./times"
import { status, t, words } from "./words"

export interface Kept {
  readonly part: string
  readonly text: string
}

/** The text parts that an ended run had said. */
export function partial(run: Run): Kept[] {
  const list = Array.isArray(run.partial) ? (run.partial as unknown[]) : []
  return list.filter(
    (one): one is Record<string, unknown> & Kept =>
      isRecord(one) && typeof one.text === "string" && typeof one.part === "string",
  )
}

/** The result as Markdown, where it is or has one. */
export function report(result: unknown): string | null {
  if (typeof result === "string") return result
  return isRecord(result) && typeof result.markdown === "string" ? result.markdown : null
}

export function titleOfView(view: RunView): string {
  return view.snapshot?.title || (view.run ? words(view.run.agent) : view.id)
}

export function questionTitle(one: Interrupt): string {
  return new Payload(one.payload).text("title") || words(one.kind)
}

export function resultJson(run: Run): string {
  const { id, agent, status, labels, key, created_at, started_at, ended_at, error, input, result, partial } = run
  return pretty({
    run: { id, agent, status, labels, key, created_at, started_at, ended_at },
    input,
    result,
    error,
    partial,
  })
}

export function resultMarkdown(title: string, run: Run): string {
  const whole = report(run.result)
  if (whole !== null) return whole.endsWith("\n") ? whole : `${whole}\n`
  const lines = [
    `# ${escaped(title)}`,
    "",
    `${status(run.status)}${run.ended_at ? `, ${moment(run.ended_at)}` : ""}`,
    "",
  ]
  if (run.error) lines.push(`${escaped(run.error.message)} (${escaped(run.error.code)})`, "")
  if (run.status === "succeeded") lines.push(...fenced(JSON.stringify(run.result, null, 2), "json"))
  for (const one of partial(run)) lines.push(`## ${escaped(words(one.part))}`, "", one.text.replace(/\n*$/, ""), "")
  return `${lines.join("\n").trimEnd()}\n`
}

export function timelineJson(run: Run, events: readonly RunEvent[], complete: boolean): string {
  return pretty({ run: { id: run.id, agent: run.agent, status: run.status }, complete, events })
}

export function timelineMarkdown(title: string, run: Run, events: readonly RunEvent[], complete: boolean): string {
  const lines = [`# ${escaped(title)}: ${t.timeline.title}`, ""]
  if (!complete) lines.push(t.timeline.incomplete, "")
  for (const row of rows(events, new Set(), run.status)) {
    const told = `**${escaped(titleOf(row))}** ${escaped(detailOf(row))}`.trimEnd()
    lines.push(`- ${row.began.occurred_at} [${t.timeline.state[row.state]}] ${told}`)
  }
  return `${lines.join("\n")}\n`
}

export function fileName(run: Run, what: string, end: string): string {
  return `${run.agent}-${run.id.slice(-8)}-${what}.${end}`
}

export function save(name: string, type: string, text: string): void {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

const pretty = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`

const escaped = (text: string): string => text.replace(/\s+/g, " ").replace(/[\\`*_[\]<>#|]/g, "\\$&")

function fenced(text: string, kind: string): string[] {
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((one) => one[0].length + 1)))
  return [`${fence}${kind}`, text, fence, ""]
}
