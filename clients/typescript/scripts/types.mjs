// Writes src/wire.ts from the schemas in spec/. `npm run types` after a change there; a test compares.
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { compile } from "json-schema-to-typescript"

const HERE = dirname(fileURLToPath(import.meta.url))
const SPEC = join(HERE, "../../../spec")
export const WIRE = join(HERE, "../src/wire.ts")

const NAMES = {
  agent: "Agent",
  bootstrap: "Bootstrap",
  event: "RunEvent",
  interrupt: "Interrupt",
  problem: "Problem",
  run: "Run",
  snapshot: "Snapshot",
  text: "TextPiece",
}

// A title on a field would become the name of a type of its own; patterns and bounds say nothing to TypeScript.
function plain(node, top = false) {
  if (Array.isArray(node)) return node.map((one) => plain(one))
  if (node === null || typeof node !== "object") return node
  const kept = {}
  for (const [key, value] of Object.entries(node)) {
    if (["$schema", "$id", "pattern"].includes(key) || (key === "title" && typeof value === "string" && !top)) continue
    if (key === "$ref") kept.$ref = `#/$defs/${NAMES[value.replace("urn:playhead:spec:", "")]}`
    else if (key === "properties")
      kept.properties = Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plain(one)]))
    else kept[key] = plain(value)
  }
  // Servers of this version may add fields; the types list the known ones alone.
  if (kept.properties) kept.additionalProperties ??= false
  // What is only described may be any JSON value.
  if (!top && Object.keys(kept).every((key) => key === "description")) kept.tsType = "unknown"
  return kept
}

export async function wire() {
  const known = new Set(readdirSync(SPEC))
  const defs = {}
  for (const [file, name] of Object.entries(NAMES)) {
    if (!known.has(`${file}.schema.json`)) throw new Error(`spec/${file}.schema.json is missing`)
    defs[name] = { ...plain(JSON.parse(readFileSync(join(SPEC, `${file}.schema.json`), "utf8")), true), title: name }
  }
  const root = { title: "Wire", type: "object", additionalProperties: false, $defs: defs, properties: {} }
  for (const name of Object.values(NAMES)) root.properties[name] = { $ref: `#/$defs/${name}` }
  const text = await compile(root, "Wire", {
    bannerComment: "// Made from spec/ by `npm run types`. Not to be edited.",
    style: { semi: false, printWidth: 120 },
    unknownAny: true,
  })
  return text.replace(/export interface Wire \{[\s\S]*?\n\}\n/, "")
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(WIRE, await wire())
