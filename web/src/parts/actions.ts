// What can be done with a run: stop it, run it again, take it home.
import type { RunEvent, RunView } from "@playhead/client"
import { html, nothing, type TemplateResult } from "lit"
import { fileName, resultJson, resultMarkdown, save, timelineJson, timelineMarkdown, titleOfView } from "../documents"
import { client } from "../net"
import { isFinal } from "../rows"
import { t } from "../words"

interface Actions {
  readonly view: RunView
  readonly now: string
  readonly stopping: boolean
  readonly busy: boolean
  readonly stop: (reason: string) => void
  readonly again: () => void
  readonly fail: (error: unknown) => void
}

const MOST = 10_000 // events of one download

export function actions(given: Actions): TemplateResult {
  const { view, now, stopping, busy, again } = given
  const over = isFinal(now)
  const run = view.run as NonNullable<RunView["run"]>
  return html`
    ${
      over
        ? html`<button class="main" type="button" ?disabled=${busy} @click=${again}>${t.start.again}</button>`
        : html`<button class="no" type="button" ?disabled=${stopping} @click=${ask}>
              ${stopping ? t.run.stopping : t.run.stop}</button
            >${stopDialog(given)}`
    }
    <details class="menu" @focusout=${close} @keydown=${onKey}>
      <summary class="button">${t.run.download}</summary>
      <div class="items">
        ${
          isFinal(run.status)
            ? html`${item(t.run.resultMarkdown, given, () => {
                save(fileName(run, "result", "md"), "text/markdown", resultMarkdown(titleOfView(view), run))
              })}
              ${item(t.run.resultJson, given, () => {
                save(fileName(run, "result", "json"), "application/json", resultJson(run))
              })}`
            : nothing
        }
        ${item(t.run.timelineMarkdown, given, async () => {
          const { events, complete } = await whole(view)
          save(
            fileName(run, "timeline", "md"),
            "text/markdown",
            timelineMarkdown(titleOfView(view), run, events, complete),
          )
        })}
        ${item(t.run.timelineJson, given, async () => {
          const { events, complete } = await whole(view)
          save(fileName(run, "timeline", "json"), "application/json", timelineJson(run, events, complete))
        })}
      </div>
    </details>
  `
}

function item(title: string, { fail }: Actions, act: () => void | Promise<void>): TemplateResult {
  const click = async (event: Event): Promise<void> => {
    ;(event.target as Element).closest("details")?.removeAttribute("open")
    try {
      await act()
    } catch (error) {
      fail(error)
    }
  }
  return html`<button type="button" @click=${click}>${title}</button>`
}

/** Every event of the run, those that are not on screen too. */
async function whole(view: RunView): Promise<{ events: RunEvent[]; complete: boolean }> {
  let events = [...view.events]
  let { complete, has_older: more } = view.timeline
  while (more && events[0] && events.length < MOST) {
    const page = await client.earlier(view.id, events[0].id, 200)
    if (!page.events.length) break
    events = [...page.events, ...events]
    complete &&= page.timeline.complete
    more = page.timeline.has_older
  }
  return { events, complete: complete && !more }
}

function stopDialog({ stop }: Actions): TemplateResult {
  const done = (event: Event): void => {
    const dialog = event.target as HTMLDialogElement
    const reason = dialog.querySelector("input")
    if (dialog.returnValue === "stop") stop(reason?.value.trim() ?? "")
    dialog.returnValue = ""
  }
  const answer =
    (value: string) =>
    (event: Event): void =>
      (event.target as Element).closest("dialog")?.close(value)
  return html`<dialog class="card" aria-labelledby="stop-title" @close=${done}>
    <h2 id="stop-title">${t.run.stopAsk}</h2>
    <p>${t.run.stopSays}</p>
    <div class="field">
      <label for="stop-reason">${t.run.stopReason}</label>
      <input id="stop-reason" type="text" maxlength="500" autocomplete="off" />
    </div>
    <div class="row">
      <button class="danger" type="button" @click=${answer("stop")}>${t.run.stopYes}</button>
      <button type="button" @click=${answer("")}>${t.run.stopNo}</button>
    </div>
  </dialog>`
}

function ask(event: Event): void {
  ;(event.target as Element).parentElement?.querySelector("dialog")?.showModal()
}

function close(event: FocusEvent): void {
  const menu = event.currentTarget as HTMLDetailsElement
  if (!menu.contains(event.relatedTarget as Node | null)) menu.open = false
}

function onKey(event: KeyboardEvent): void {
  if (event.key !== "Escape") return
  const menu = event.currentTarget as HTMLDetailsElement
  menu.open = false
  menu.querySelector("summary")?.focus()
}
