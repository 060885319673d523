// A JSON Schema of an agent's input as the fields of a form.
import { isRecord } from "./payload"
import { words } from "./words"

type Json = Readonly<Record<string, unknown>>

export interface Field {
  readonly name: string
  readonly kind: "boolean" | "choice" | "number" | "text" | "json"
  readonly title: string
  readonly about: string
  readonly nullable: boolean
  readonly whole: boolean
  readonly least: number | null
  readonly most: number | null
  readonly choices: readonly unknown[]
  /** Undefined where the schema has no default. */
  readonly given: unknown
}

/** One field for each property, in the schema's order. `from` beats the defaults. */
export function fieldsOf(schema: Json, from: unknown = null): Field[] {
  const properties = isRecord(schema.properties) ? schema.properties : {}
  const before = isRecord(from) ? from : {}
  return Object.entries(properties).map(([name, one]) => {
    const field = fieldOf(name, isRecord(one) ? one : {}, schema)
    return Object.hasOwn(before, name) ? { ...field, given: before[name] } : field
  })
}

function fieldOf(name: string, own: Json, root: Json): Field {
  const outer = resolved(own, root)
  const options = (Array.isArray(outer.anyOf) ? outer.anyOf : []).filter(isRecord).map((one) => resolved(one, root))
  const nullable = options.some((one) => one.type === "null")
  const real = options.filter((one) => one.type !== "null")
  const type: Json = real.length > 1 ? outer : { ...real[0], ...outer }
  return {
    name,
    kind: kindOf(type, real.length),
    title: text(outer.title) || words(name),
    about: text(outer.description),
    nullable,
    whole: type.type === "integer",
    least: number(type.minimum),
    most: number(type.maximum),
    choices: Array.isArray(type.enum) ? type.enum : [],
    given: outer.default,
  }
}

function kindOf(type: Json, options: number): Field["kind"] {
  if (options > 1) return "json"
  if (Array.isArray(type.enum)) return "choice"
  if (type.type === "boolean") return "boolean"
  if (type.type === "integer" || type.type === "number") return "number"
  return type.type === "string" ? "text" : "json"
}

// What stands beside a reference beats what it leads to, as its title and default do.
function resolved(one: Json, root: Json): Json {
  if (typeof one.$ref !== "string") return one
  const name = one.$ref.split("/").pop() ?? ""
  const defs = isRecord(root.$defs) ? root.$defs : {}
  const found = Object.hasOwn(defs, name) ? defs[name] : null
  return isRecord(found) ? { ...found, ...one } : one
}

/** What a field begins with, as the text of its control. */
export function shown(field: Field): string {
  const { given, kind, nullable } = field
  if (kind === "choice" || (kind === "boolean" && nullable))
    return JSON.stringify(given ?? (nullable ? null : field.choices[0])) ?? ""
  if (given === undefined || (given === null && nullable)) return ""
  return kind === "json" ? JSON.stringify(given, null, 2) : String(given)
}

export class Unreadable extends Error {}

/** Whether a control says what it began with. Its lines all end in the same way. */
export function unchanged(field: Field, said: string): boolean {
  return said === shown(field).replace(/\r\n?/g, "\n")
}

/**
 * The value that the text of a control stands for; what it began with, if it was not changed. Throws Unreadable for none;
 * bounds are the server's affair.
 */
export function read(field: Field, said: string, bad = false): unknown {
  const { kind, nullable, given } = field
  if (given !== undefined && !bad && unchanged(field, said)) return given
  if (kind === "boolean" && !nullable) return said === "true"
  if (kind === "text") return said === "" && nullable ? null : said
  if (said.trim() === "" && nullable) return null
  if (kind === "number") {
    const value = Number(said)
    if (bad || said.trim() === "" || Number.isNaN(value)) throw new Unreadable()
    return value
  }
  try {
    return JSON.parse(said) as unknown
  } catch {
    throw new Unreadable()
  }
}

const text = (value: unknown): string => (typeof value === "string" ? value : "")
const number = (value: unknown): number | null => (typeof value === "number" ? value : null)
