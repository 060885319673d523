import { LitElement } from "lit"

/** A component without a shadow: one sheet styles the page, and labels reach across components. */
export class PageElement extends LitElement {
  protected override createRenderRoot(): HTMLElement {
    return this
  }

  // At most once a frame, however fast frames of the stream come; a hidden tab draws when it is seen again.
  // What is new is drawn at once: a tab that was opened behind another one begins to follow, and calls.
  protected override async scheduleUpdate(): Promise<void> {
    if (this.hasUpdated) await new Promise(requestAnimationFrame)
    super.scheduleUpdate()
  }
}
