// Ages are told by the server's clock: a phone's own may be minutes off.
import { language, t } from "./words"

let skew = 0 // ms from this machine's clock to the server's

/** Note the `Date` of an answer. It is of whole seconds, so only a difference of more than one says anything. */
export function noteServerDate(date: string | null): void {
  const at = Date.parse(date ?? "") + 500
  if (at && Math.abs(at - now()) > 1000) skew = at - Date.now()
}

export const now = (): number => Date.now() + skew

export function span(ms: number): string {
  const s = Math.floor(ms / 1000)
  if (s < 1) return t.time.short
  if (s < 60) return t.time.s(s)
  if (s < 3600) return t.time.min(Math.floor(s / 60), s % 60)
  if (s < 86_400) return t.time.h(Math.floor(s / 3600), Math.floor((s % 3600) / 60))
  return t.time.d(Math.floor(s / 86_400))
}

// An age needs no second unit.
function about(ms: number): string {
  const unit = [86_400_000, 3_600_000, 60_000].find((one) => ms >= one) ?? 1
  return span(ms - (ms % unit))
}

export function since(at: string, until?: string | null): string {
  return span((until ? Date.parse(until) : now()) - Date.parse(at))
}

export function ago(at: string): string {
  const ms = now() - Date.parse(at)
  return ms < 2000 ? t.time.now : t.time.ago(about(ms))
}

/** The time of day, where the reader is. */
export function clock(at: string): string {
  return format(at, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" })
}

export function moment(at: string): string {
  return format(at, { dateStyle: "medium", timeStyle: "medium" })
}

const formats = new Map<string, Intl.DateTimeFormat>()

function format(at: string, options: Intl.DateTimeFormatOptions): string {
  const ms = Date.parse(at)
  if (Number.isNaN(ms)) return at
  const key = `${language} ${Object.keys(options).join()}`
  const known = formats.get(key) ?? new Intl.DateTimeFormat(language, options)
  formats.set(key, known)
  return known.format(ms)
}
