/** What an event carries, read with care: it is data from outside, of any shape. */
export class Payload {
  readonly #fields: Readonly<Record<string, unknown>>
  readonly #told = new Set<string>()

  constructor(value: unknown) {
    this.#fields = isRecord(value) ? value : {}
  }

  get(name: string): unknown {
    this.#told.add(name)
    return Object.hasOwn(this.#fields, name) ? this.#fields[name] : undefined
  }

  /** A scalar as text, anything else as none. */
  text(name: string): string {
    const value = this.get(name)
    return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : ""
  }

  count(name: string): number {
    const value = this.get(name)
    return typeof value === "number" ? value : 0
  }

  /** The part of a decision that counts. */
  decision(): Payload {
    return new Payload(this.get("decision"))
  }

  approved(): boolean {
    return this.decision().get("approved") === true
  }

  /** The scalars that nobody has asked for yet. */
  rest(): [name: string, value: string][] {
    return Object.keys(this.#fields)
      .filter((name) => !this.#told.has(name) && this.#fields[name] !== null && typeof this.#fields[name] !== "object")
      .map((name) => [name, String(this.#fields[name])])
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}
