/** Keeps boxes that a person had scrolled to their end at their end while they grow. */
export class Pinned {
  #atEnd = new Set<Element>()
  #seen = new WeakSet<Element>()

  constructor(
    private readonly host: Element,
    private readonly boxes: string,
  ) {}

  measure(): void {
    this.#atEnd.clear()
    for (const box of this.host.querySelectorAll(this.boxes)) {
      if (box.scrollHeight - box.scrollTop - box.clientHeight < 40) this.#atEnd.add(box)
    }
  }

  /** After drawing. A new box begins at its end. */
  follow(): void {
    for (const box of this.host.querySelectorAll(this.boxes)) {
      if (this.#atEnd.has(box) || !this.#seen.has(box)) box.scrollTop = box.scrollHeight
      this.#seen.add(box)
    }
  }
}
