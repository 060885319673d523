// The frame around the screens: where one is, the language, and whether to be called.
import { html, nothing, type TemplateResult } from "lit"
import { keyed } from "lit/directives/keyed.js"
import { canNotify, notifies, setNotify } from "./attention"
import { PageElement } from "./element"
import { listAddress, parse, type Route } from "./routes"
import "./screens/list"
import "./screens/run"
import "./screens/start"
import { begin, language, t, use } from "./words"

export class App extends PageElement {
  static override properties = { route: { state: true }, lang: { state: true }, notifying: { state: true } }
  declare route: Route
  declare lang: string
  declare notifying: boolean
  #moved = false

  constructor() {
    super()
    begin(location.search)
    this.route = parse(location.hash)
    this.lang = language
    this.notifying = notifies()
  }

  override connectedCallback(): void {
    super.connectedCallback()
    addEventListener("hashchange", this.#go)
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback()
    removeEventListener("hashchange", this.#go)
  }

  #go = (): void => {
    const before = place(this.route)
    this.route = parse(location.hash)
    this.#moved = place(this.route) !== before
  }

  // Focus and view follow to a new screen, as they do with a new page.
  protected override updated(): void {
    if (!this.#moved) return
    this.#moved = false
    scrollTo(0, 0)
    this.querySelector<HTMLElement>("main")?.focus({ preventScroll: true })
  }

  protected override render(): TemplateResult {
    const toMain = (event: Event): void => {
      event.preventDefault()
      this.querySelector<HTMLElement>("main")?.focus()
    }
    return html`
      <a class="skip" href="#main" @click=${toMain}>${t.page.skip}</a>
      <header class="top">
        <a class="brand" href=${listAddress()}><span class="logo" aria-hidden="true"></span>playhead</a>
        <nav aria-label=${t.page.nav}>
          <a href=${listAddress()} aria-current=${this.route.screen === "list" ? "page" : "false"}>${t.list.title}</a>
        </nav>
        <div class="tools">
          ${canNotify() ? this.#bell() : nothing}
          <button class="link" type="button" lang=${t.other.lang} @click=${() => this.#speak(t.other.lang)}>
            ${t.other.name}
          </button>
        </div>
      </header>
      <main id="main" tabindex="-1">${keyed(`${this.lang} ${place(this.route)}`, this.#screen())}</main>
    `
  }

  #screen(): TemplateResult {
    const { route } = this
    if (route.screen === "run") return html`<ph-run .runId=${route.id}></ph-run>`
    if (route.screen === "start") return html`<ph-start .agent=${route.agent} .from=${route.from}></ph-start>`
    return html`<ph-list .filter=${route.filter}></ph-list>`
  }

  #bell(): TemplateResult {
    const refused = Notification.permission === "denied"
    const says = refused ? t.notify.refused : this.notifying ? t.notify.on : t.notify.off
    const click = async (): Promise<void> => {
      const wanted = !this.notifying
      this.notifying = wanted && (await setNotify(wanted))
      if (!wanted) await setNotify(false)
    }
    return html`<button
      class="bell"
      type="button"
      aria-pressed=${this.notifying ? "true" : "false"}
      ?disabled=${refused}
      title=${says}
      @click=${click}
    >
      <span class="icon" aria-hidden="true"></span><span class="unseen">${t.notify.off}</span>
    </button>`
  }

  #speak(name: string): void {
    use(name, true)
    this.lang = name
  }
}

const place = (route: Route): string =>
  route.screen === "run" ? `run ${route.id}` : route.screen === "start" ? `start ${route.agent}` : "list"

customElements.define("ph-app", App)
