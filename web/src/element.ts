import { LitElement } from "lit"

/** A component without a shadow: one sheet styles the page, and labels reach across components. */
export class PageElement extends LitElement {
  protected override createRenderRoot(): HTMLElement {
    return this
  }

  // At most once a frame, however fast frames of the stream come; a hidden tab draws when it is seen again.
  protected override async scheduleUpdate(): Promise<void> {
    await new Promise(requestAnimationFrame)
    super.scheduleUpdate()
  }
}
