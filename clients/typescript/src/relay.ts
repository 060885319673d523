/** What the tab that holds the connection brings, to itself and to the others. */
import type { Environment } from "./environment"
import type { Lines, Said } from "./lines"
import type { Link } from "./reducer"
import { type Batch, type Place, Tape } from "./tape"

/** How long a reader's place that is not known may take to come by. */
const UNPLACED = 500

/** As a reader is told it: frames go with the place behind which they begin. */
export type Told = Exclude<Said, { is: "frames" }> | ({ readonly is: "frames" } & Batch)

/** `refused`: this tab may not read the run, and nothing follows. That says nothing about the others. */
export type Tell = (run: string, told: Told, refused: boolean) => void

interface Relayed {
  readonly tape: Tape
  link: Link
}

export class Relay {
  readonly #lines: Lines
  readonly #env: Environment
  readonly #tell: Tell
  readonly #runs = new Map<string, Relayed>()

  constructor(lines: Lines, env: Environment, tell: Tell) {
    this.#lines = lines
    this.#env = env
    this.#tell = tell
  }

  /** Somebody at this place wants to follow. The answer is for that one alone; the rest is told as it comes. */
  want(run: string, place: Place): Told[] {
    const known = this.#runs.get(run)
    if (!known) {
      this.#follow(run, place)
      return [{ is: "link", link: "connecting" }]
    }
    const { tape, link } = known
    const lacking = tape.since(place.cursor)
    if (!lacking && tape.over) return [{ is: "gone" }]
    if (!lacking) this.#await(run, known, place.cursor)
    const told: Told[] = [{ is: "link", link }]
    return lacking ? [...told, { is: "frames", ...lacking }] : told
  }

  /** Nobody follows it any more. */
  drop(run: string): void {
    if (this.#runs.delete(run)) this.#lines.leave(run)
  }

  stop(): void {
    this.#runs.clear()
    this.#lines.stop()
  }

  #follow(run: string, place: Place): void {
    const tape = new Tape(place)
    const relayed: Relayed = { tape, link: "connecting" }
    this.#runs.set(run, relayed)
    this.#lines.join(run, {
      get cursor() {
        return tape.cursor
      },
      texts: tape.texts,
      begin: (texts, cursor) => tape.begin(cursor, texts),
      hear: (said) => this.#runs.get(run) === relayed && this.#hear(run, relayed, said),
    })
  }

  #hear(run: string, relayed: Relayed, said: Said): void {
    const { tape } = relayed
    if (said.is === "link") relayed.link = said.link
    const told = said.is === "frames" ? { is: said.is, ...tape.push(said.frames) } : said
    const refused =
      said.is === "frames" ? said.frames.some((one) => one.is === "refused") : said.is === "check" && !!said.problem
    this.#tell(run, told, refused)
    if (refused) this.drop(run)
    else if (tape.gap) this.#lines.again(run)
  }

  /** A reader whose place is not on the tape may be ahead of it. If it stays unknown, a new connection begins there. */
  #await(run: string, relayed: Relayed, cursor: string | null): void {
    const { tape } = relayed
    this.#env.after(UNPLACED, () => {
      if (this.#runs.get(run) !== relayed || tape.over || tape.since(cursor)) return
      if (relayed.link !== "live") return this.#await(run, relayed, cursor)
      tape.rewind = cursor
      this.#lines.swap(run)
    })
  }
}
