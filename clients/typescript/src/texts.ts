/** Text parts as they grow. Pure. */
import type { TextPart, TextPiece } from "./types"

/** Parts kept at most; then those that appeared first are let go. An attempt has 64 at most. */
const PARTS = 256

/** How a request names a part that a client holds: `text=<attempt>.<part>:<end>`. */
export const nameOf = (piece: { attempt: number; part: string }): string => `${piece.attempt}.${piece.part}`

export class Texts {
  #parts = new Map<string, TextPart>()
  /** Parts of which a piece was missed: nobody may claim to hold them. */
  #broken = new Set<string>()
  /** What the request of the newest connection named: it goes on from there, and not from what was heard since. */
  #named: ReadonlyMap<string, TextPart> = new Map()
  #voidBefore = 0
  #list: readonly TextPart[] | null = null

  /** Whether the piece could be taken, or is void. False: one before it is missing, and it was dropped. */
  apply(piece: TextPiece): boolean {
    const { part, attempt, offset, end, final, truncated } = piece
    if (attempt < this.#voidBefore) return true
    const name = nameOf(piece)
    const last = this.#parts.get(name)
    const before = offset === 0 ? undefined : last?.end === offset ? last : this.#named.get(name)
    if (offset !== (before?.end ?? 0)) {
      this.#broken.add(name)
      return false
    }
    this.#broken.delete(name)
    this.#parts.set(name, {
      part,
      attempt,
      end,
      // Engines join long strings lazily: a piece costs the same however long the text is already.
      text: (before?.text ?? "") + piece.text,
      final: final === true,
      truncated: before?.truncated || truncated === true,
    })
    if (this.#parts.size > PARTS) for (const oldest of this.#parts.keys()) return this.#drop(oldest)
    this.#list = null
    return true
  }

  /** Parts of attempts before this one are void, for good. */
  voidBefore(attempt: number): void {
    if (attempt <= this.#voidBefore) return
    this.#voidBefore = attempt
    for (const [name, part] of this.#parts) if (part.attempt < attempt) this.#drop(name)
  }

  /** Take these parts for all there is. */
  replace(pieces: readonly TextPiece[]): void {
    this.#parts.clear()
    this.#broken.clear()
    this.#named = new Map()
    this.#list = null
    for (const piece of pieces) this.apply(piece)
  }

  /** Take those of them that are not known at all. */
  complete(pieces: readonly TextPiece[]): void {
    for (const piece of pieces) if (!this.#parts.has(nameOf(piece))) this.apply(piece)
  }

  /** By attempt, then in the order in which they appeared. */
  list(): readonly TextPart[] {
    this.#list ??= [...this.#parts.values()].sort((one, other) => one.attempt - other.attempt)
    return this.#list
  }

  /** What a request may name by its `end`: the server then sends what comes after it. */
  whole(): Map<string, TextPart> {
    return new Map([...this.#parts].filter(([name]) => !this.#broken.has(name)))
  }

  /** A connection speaks that was asked to go on behind these. */
  begin(named: ReadonlyMap<string, TextPart>): void {
    this.#named = named
  }

  /** Where a part ends now. */
  end(piece: TextPiece): number {
    return this.#parts.get(nameOf(piece))?.end ?? 0
  }

  /** Each part as the one piece that it would be from its beginning. */
  pieces(): TextPiece[] {
    return this.list().map(({ truncated, ...part }) => ({ ...part, offset: 0, ...(truncated && { truncated }) }))
  }

  #drop(name: string): true {
    this.#parts.delete(name)
    this.#broken.delete(name)
    this.#list = null
    return true
  }
}
