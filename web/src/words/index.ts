import { de } from "./de"
import { en } from "./en"

export type Words = typeof en

export const catalogues: Readonly<Record<string, Words>> = { en, de }
const KEPT = "playhead.lang"

/** The words of the language in use. */
export let t: Words = en
export let language = "en"

/** The first of the wished languages that there is a catalogue for. */
export function choose(wished: readonly (string | null)[]): string {
  for (const one of wished) {
    const name = (one ?? "").toLowerCase().split("-")[0] ?? ""
    if (Object.hasOwn(catalogues, name)) return name
  }
  return "en"
}

/** Take the language of the address, else the one kept, else the browser's. */
export function begin(search: string): void {
  use(choose([new URLSearchParams(search).get("lang"), kept(), ...navigator.languages]))
}

/** Speak this language from now on, and remember it if a person chose it. */
export function use(name: string, keep = false): void {
  const words = catalogues[name]
  if (!words) return
  t = words
  language = name
  document.documentElement.lang = name
  if (!keep) return
  try {
    localStorage.setItem(KEPT, name)
  } catch {
    // Storage can be off; then the choice holds for this visit.
  }
}

function kept(): string | null {
  try {
    return localStorage.getItem(KEPT)
  } catch {
    return null
  }
}

/** A machine's name as something to read. */
export function words(name: string): string {
  const text = name.replaceAll("_", " ").trim()
  return text.charAt(0).toUpperCase() + text.slice(1)
}

export function step(name: string): string {
  return Object.hasOwn(t.step, name) ? (t.step[name] as string) : words(name)
}

export function status(name: string): string {
  return Object.hasOwn(t.status, name) ? t.status[name as keyof Words["status"]] : words(name)
}
