// What reaches a person who looks elsewhere: the tab's title, its icon, a notification, the screen reader's word.

export type Mark = "none" | "live" | "asks" | "done" | "failed" | "off"

const COLOURS: Readonly<Record<Exclude<Mark, "none">, string>> = {
  live: "#3b6cf6",
  asks: "#e08a00",
  done: "#1f9d57",
  failed: "#d0333f",
  off: "#7c8696",
}
const KEPT = "playhead.notify"

export function tab(title: string, mark: Mark): void {
  document.title = title
  const link = document.querySelector<HTMLLinkElement>("link[rel=icon]")
  const href = icon(mark)
  if (link && link.href !== href) link.href = href
}

function icon(mark: Mark): string {
  const badge =
    mark === "none" ? "" : `<circle cx='24.5' cy='7.5' r='7' fill='${COLOURS[mark]}' stroke='white' stroke-width='2'/>`
  const svg =
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' rx='8' fill='#2b4bcb'/>" +
    "<path d='M5 21h22' stroke='#fff' stroke-opacity='.55' stroke-width='3' stroke-linecap='round'/>" +
    "<path d='M14 10v17' stroke='#fff' stroke-width='3' stroke-linecap='round'/>" +
    `<circle cx='14' cy='9' r='4' fill='#fff'/>${badge}</svg>`
  return `data:image/svg+xml,${encodeURIComponent(svg)}`
}

let spoken = ""

/** Say something to a screen reader, once. */
export function say(text: string): void {
  if (text === spoken) return
  spoken = text
  const region = document.getElementById("say")
  if (region) region.textContent = text
}

export const canNotify = (): boolean => typeof Notification !== "undefined"

export function notifies(): boolean {
  try {
    return canNotify() && Notification.permission === "granted" && localStorage.getItem(KEPT) === "on"
  } catch {
    return false
  }
}

/** Switch notifications, asking the browser when it has not been asked. False: it does not allow them. */
export async function setNotify(wanted: boolean): Promise<boolean> {
  const allowed = !wanted || (await Notification.requestPermission()) === "granted"
  try {
    localStorage.setItem(KEPT, wanted && allowed ? "on" : "off")
  } catch {
    return false
  }
  return allowed
}

/** Tell somebody who asked for it and is not looking. The same `tag` from several tabs shows once. */
export function notify({ title, body, tag }: { title: string; body: string; tag: string }): void {
  if (!notifies() || (!document.hidden && document.hasFocus())) return
  try {
    const shown = new Notification(title, { body, tag })
    shown.onclick = () => {
      window.focus()
      shown.close()
    }
  } catch {
    // Some phones take notifications from service workers only.
  }
}
