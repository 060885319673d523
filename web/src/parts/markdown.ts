// A small part of Markdown, built from nodes: headings, lists, tables, bold, code. All else stays as it was written.
// Nothing of the text becomes markup, and no link or image is made of it.
import { html, nothing, type TemplateResult } from "lit"
import { guard } from "lit/directives/guard.js"
import { repeat } from "lit/directives/repeat.js"
import { scalar } from "./content"

type Piece = string | TemplateResult

/** The text as blocks. A block that did not change is not built again, so a growing text costs its last block only. */
export function markdown(text: string): TemplateResult {
  return html`<div class="md">${repeat(
    blocks(text),
    (_, i) => i,
    (block) => guard([block], () => blockOf(block)),
  )}</div>`
}

/** The lines of a text in groups that belong together. */
export function blocks(text: string): string[] {
  const found: string[] = []
  let open = ""
  for (const line of text.split("\n")) {
    const last = found.length - 1
    if (open === "code") {
      found[last] += `\n${line}`
      if (/^```/.test(line)) open = ""
      continue
    }
    const kind = kindOf(line)
    if (kind && kind === open && kind !== "head" && kind !== "code") found[last] += `\n${line}`
    else if (kind) found.push(line)
    open = kind
  }
  return found
}

function kindOf(line: string): string {
  if (!line.trim()) return ""
  if (/^```/.test(line)) return "code"
  if (/^#{1,4} +/.test(line)) return "head"
  if (/^[-*] +/.test(line)) return "list"
  if (/^\d{1,9}[.)] +/.test(line)) return "numbers"
  if (/^\|/.test(line)) return "table"
  return "text"
}

function blockOf(block: string): TemplateResult {
  const lines = block.split("\n")
  switch (kindOf(lines[0] ?? "")) {
    case "code":
      return code(lines.slice(1))
    case "head": {
      const [, marks = "", rest = ""] = /^(#{1,4}) +(.*)/.exec(block) ?? []
      return marks.length < 3 ? html`<h3>${inline(rest)}</h3>` : html`<h4>${inline(rest)}</h4>`
    }
    case "list":
      return html`<ul>${lines.map((line) => html`<li>${inline(line.replace(/^[-*] +/, ""))}</li>`)}</ul>`
    case "numbers":
      return html`<ol start=${Number.parseInt(block, 10)}>
        ${lines.map((line) => html`<li>${inline(line.replace(/^\d+[.)] +/, ""))}</li>`)}
      </ol>`
    case "table":
      return table(lines)
  }
  return html`<p>${lines.map((line, i) => [i ? "\n" : nothing, inline(line)])}</p>`
}

function code(lines: readonly string[]): TemplateResult {
  const closed = /^```\s*$/.test(lines.at(-1) ?? "")
  return html`<pre tabindex="0">${lines.slice(0, closed ? -1 : undefined).join("\n")}</pre>`
}

function table([head = "", ...rest]: string[]): TemplateResult {
  const body = rest.filter((line) => !/^\|[\s|:-]+$/.test(line))
  return html`<div class="scroll" tabindex="0" role="group"><table>
    <thead><tr>${cells(head).map((cell) => html`<th scope="col">${inline(cell)}</th>`)}</tr></thead>
    <tbody>${body.map((line) => html`<tr>${cells(line).map(cellOf)}</tr>`)}</tbody>
  </table></div>`
}

const cellOf = (cell: string): TemplateResult => html`<td>${scalar(cell, inline(cell))}</td>`

function cells(line: string): string[] {
  return line
    .replace(/^\|/, "")
    .replace(/\|\s*$/, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim())
}

/** Escapes, code and bold. What is opened and not closed goes to the end of the line. */
export function inline(line: string): Piece[] {
  const out: Piece[] = []
  let bold: string[] | null = null
  const put = (piece: string): void => {
    if (piece) bold ? bold.push(piece) : out.push(piece)
  }
  const bits = line.split(/\\([\\`*_[\]<>|#~&!])|`([^`]+)`|(\*\*)/)
  for (let i = 0; i < bits.length; i += 4) {
    put(bits[i] ?? "")
    put(bits[i + 1] ?? "")
    const code = bits[i + 2]
    if (code && bold) bold.push(code)
    else if (code) out.push(html`<code>${code}</code>`)
    if (!bits[i + 3]) continue
    if (bold) out.push(strong(bold))
    bold = bold ? null : []
  }
  if (bold?.length) out.push(strong(bold))
  return out
}

const strong = (pieces: string[]): TemplateResult => html`<strong>${pieces.join("")}</strong>`
