/** What the one who holds the connection remembers of a feed, so that others can join in the middle. Pure. */
import type { Frame } from "./frames"
import { nameOf, Texts } from "./texts"
import type { TextPart, TextPiece } from "./types"

/** Events kept for those who are a little behind. */
const RING = 256

/** Where a reader is. `text`: what it holds of it, so that it need not be sent again. */
export interface Place {
  readonly cursor: string | null
  readonly text?: readonly TextPiece[]
}

/** Frames in their order. The first event follows the one at `from`, and each other the one before it. */
export interface Batch {
  readonly from: string | null
  readonly frames: readonly Frame[]
}

type EventFrame = Extract<Frame, { is: "event" }>

export class Tape {
  /** Where the newest event ends; a new connection goes on from here. */
  tip: string | null
  /** Another place from which the next connection is to begin, for a reader who lacks more; undefined: from the tip. */
  rewind: string | null | undefined
  /** Nothing more comes: `end` was heard, or the feed was refused. */
  over = false
  /** A piece of text was missed. */
  gap = false
  readonly texts = new Texts()
  #start: string | null
  #ring: EventFrame[] = []
  #state: Frame | null = null
  #end: Frame | null = null

  constructor(place: Place) {
    this.tip = this.#start = place.cursor
    this.texts.replace(place.text ?? [])
  }

  /** A connection begins to speak, from this place and these texts on. What lies behind them will be said again. */
  begin(cursor: string | null, named: ReadonlyMap<string, TextPart>): void {
    const known = cursor === this.#start ? 0 : this.#ring.findIndex((frame) => frame.cursor === cursor) + 1
    if (known === 0) this.#start = cursor
    this.#ring.length = known
    this.tip = cursor
    this.gap = false
    this.rewind = undefined
    this.texts.begin(named)
  }

  /** Where the next connection is to begin. */
  get cursor(): string | null {
    return this.rewind === undefined ? this.tip : this.rewind
  }

  /** Remember, and make one batch of it. */
  push(frames: readonly Frame[]): Batch {
    const from = this.tip
    return { from, frames: frames.flatMap((frame) => this.#keep(frame) ?? []) }
  }

  /** What a reader at this place lacks, beginning with what is true now. Null: the place is not on the tape. */
  since(cursor: string | null): Batch | null {
    const after = cursor === this.#start ? 0 : this.#ring.findIndex((frame) => frame.cursor === cursor) + 1
    if (after === 0 && cursor !== this.#start) return null
    const frames: Frame[] = this.#state ? [this.#state] : []
    for (const piece of this.texts.pieces()) frames.push({ is: "text", piece })
    frames.push(...this.#ring.slice(after))
    if (this.#end) frames.push(this.#end)
    return { from: cursor, frames }
  }

  /** The frame as readers are to hear it. Null: not at all. */
  #keep(frame: Frame): Frame | null {
    switch (frame.is) {
      case "event":
        if (frame.cursor !== null) this.#record(frame)
        if (frame.event.type === "attempt_started") this.#void(frame.event.payload)
        break
      case "state":
        this.#state = frame
        break
      case "text":
        return this.#text(frame.piece)
      case "resync":
        this.tip = this.#start = frame.cursor
        this.#ring = []
        this.#state = null
        this.texts.replace(frame.bootstrap?.text ?? [])
        break
      case "end":
        this.#end = frame
        this.over = true
        break
      case "refused":
        this.over = true
    }
    return frame
  }

  /** A piece behind what the request named, and not behind what was heard last, is told with all before it. */
  #text(piece: TextPiece): Frame | null {
    const follows = piece.offset === 0 || piece.offset === this.texts.end(piece)
    if (!this.texts.apply(piece)) {
      this.gap = true
      return null
    }
    const whole = follows ? piece : this.texts.pieces().find((one) => nameOf(one) === nameOf(piece))
    return { is: "text", piece: whole ?? piece }
  }

  #record(frame: EventFrame): void {
    this.tip = frame.cursor
    this.#ring.push(frame)
    if (this.#ring.length > RING) this.#start = this.#ring.shift()?.cursor ?? this.#start
  }

  #void(payload: unknown): void {
    const { voids_attempts_before: before } = (payload ?? {}) as Record<string, unknown>
    if (typeof before === "number") this.texts.voidBefore(before)
  }
}
