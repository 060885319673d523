import type { RunView } from "../../src/types"

/** A view in the words of `ServedRun.truth`. */
export function shown(view: RunView) {
  return {
    run: view.run,
    snapshot: view.snapshot,
    events: view.events.map((event) => event.id),
    text: view.text.map(({ part, attempt, text }) => ({ part, attempt, text })),
    interrupts: view.interrupts.map((one) => one.id),
  }
}
