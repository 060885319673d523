import { nothingOf } from "../../src/shared"
import type { Client, RunRow, RunStore, RunsStore, RunsView, RunView } from "../../src/types"

/** A client of which the test says what it shows, and that counts who follows. */
export class StubClient {
  following = 0
  followed = 0
  lists = 0
  decisions: unknown[] = []
  answer: Error | null = null
  #views = new Map<string, RunView>()
  #list: RunsView = { runs: [], next: null, interrupts: [], loading: true, problem: null }
  #changed = new Set<() => void>()

  show(id: string, view: Partial<RunView>): void {
    this.#views.set(id, { ...(this.#views.get(id) ?? nothingOf(id)), ...view })
    for (const changed of [...this.#changed]) changed()
  }

  showList(runs: RunRow[]): void {
    this.#list = { ...this.#list, runs, loading: false }
    for (const changed of [...this.#changed]) changed()
  }

  readonly client = {
    follow: (id: string): RunStore => {
      this.following += 1
      this.followed += 1
      if (!this.#views.has(id)) this.#views.set(id, nothingOf(id))
      return {
        id,
        get: () => this.#views.get(id) as RunView,
        older: async () => {
          if (this.answer) throw this.answer
        },
        refresh: async () => undefined,
        ...this.#store(() => {
          this.following -= 1
        }),
      }
    },
    list: (): RunsStore => {
      this.lists += 1
      return {
        get: () => this.#list,
        more: async () => undefined,
        ...this.#store(() => {
          this.lists -= 1
        }),
      }
    },
    decide: async (...decision: unknown[]) => {
      this.decisions.push(decision)
      if (this.answer) throw this.answer
    },
  } as unknown as Client

  #store(closed: () => void) {
    const mine = new Set<() => void>()
    return {
      subscribe: (changed: () => void) => {
        const one = () => changed()
        this.#changed.add(one)
        mine.add(one)
        return () => this.#changed.delete(one)
      },
      close: () => {
        for (const one of mine) this.#changed.delete(one)
        closed()
      },
    }
  }
}
