// What is worth a word to somebody who does not look: few things, and each once.
import type { RunView } from "@playhead/client"
import { questionTitle, titleOfView } from "./documents"
import { isFinal, statusOf } from "./rows"
import { status, t } from "./words"

export interface News {
  /** For a screen reader. */
  readonly say: string
  /** For whoever asked to be called. The same `tag` from several tabs is one call. */
  readonly call: { readonly title: string; readonly body: string; readonly tag: string } | null
}

export class Herald {
  #status = ""
  #asked: Set<string> | null = null

  /** What is new since the view before. Nothing is new in the first one: it is what somebody opened. */
  note(view: RunView): News | null {
    const now = statusOf(view)
    const before = this.#status
    const asked = this.#asked
    const fresh = view.interrupts.find((one) => !asked?.has(one.id))
    // How it ended is told when the record has told it all.
    const over = isFinal(now) && !view.run?.ended_at ? before : now
    this.#status = over
    this.#asked = new Set([...(asked ?? []), ...view.interrupts.map((one) => one.id)])
    if (!asked) return null
    const title = titleOfView(view)
    if (fresh) {
      const body = questionTitle(fresh)
      return { say: t.question.needed(body), call: { title: `${title}: ${t.status.waiting}`, body, tag: fresh.id } }
    }
    // That it waits is told with its question.
    if (over === before || now === "waiting") return null
    const say = `${title}: ${status(now)}`
    if (!isFinal(now)) return { say, call: null }
    return { say, call: { title: say, body: view.run?.error?.message ?? view.snapshot?.detail ?? "", tag: view.id } }
  }
}

const BAD = new Set(["reconnecting", "resyncing", "degraded", "refused"])

/** What is worth a word about the connection: that it stays away, and then that it is back. */
export class LineHerald {
  #told = false
  #timer: ReturnType<typeof setTimeout> | undefined
  #word = ""

  constructor(
    private readonly say: (word: string) => void,
    private readonly patience = 4000,
  ) {}

  note(connection: RunView["connection"]): void {
    if (connection === this.#word) return
    this.#word = connection
    clearTimeout(this.#timer)
    const say = (): void => this.say(t.page.connection(t.connection[connection]))
    if (BAD.has(connection)) {
      this.#timer = setTimeout(() => {
        this.#told = true
        say()
      }, this.patience)
    } else if (this.#told) {
      this.#told = false
      say()
    }
  }

  close(): void {
    clearTimeout(this.#timer)
  }
}
