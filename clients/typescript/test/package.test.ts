import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"
import { describe, expect, it } from "vitest"
import { parts } from "../scripts/parts.mjs"
import { WIRE, wire } from "../scripts/types.mjs"
import * as root from "../src/index"

const SRC = join(import.meta.dirname, "../src")
const CEILING = 400

interface Sizes {
  /** What a page loads with the entry, and what it may load later, by name. */
  at_once: number
  later: Record<string, number>
  total: number
}

/** Bytes, minified and compressed, file by file. */
async function sizes(entry: string): Promise<Sizes> {
  const bundle = await rolldown({ input: join(SRC, entry), platform: "browser", external: ["react"] })
  const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: parts })
  const files = new Map(output.flatMap((file) => (file.type === "chunk" ? [[file.fileName, file]] : [])))
  const size = (file: string) => gzipSync(files.get(file)?.code ?? "", { level: 9 }).length
  const first = new Set([output[0].fileName])
  for (const file of first)
    for (const needed of files.get(file)?.imports ?? []) if (files.has(needed)) first.add(needed)
  const sum = (names: Iterable<string>) => [...names].reduce((all, file) => all + size(file), 0)
  const later = [...files].filter(([file]) => !first.has(file)).map(([file, { name }]) => [name, size(file)])
  return { at_once: sum(first), later: Object.fromEntries(later), total: sum(files.keys()) }
}

describe("the package", () => {
  it("has the types of the schemas in spec/", async () => {
    expect(await wire()).toBe(readFileSync(WIRE, "utf8"))
  })

  it("exports what it promises and no more", () => {
    expect(Object.keys(root).sort()).toEqual(["ProblemError", "createClient"])
  })

  it("is small: what a page loads at once, what it may load later, and all together", async () => {
    const [index, react, element] = [await sizes("index.ts"), await sizes("react.ts"), await sizes("element.ts")]
    console.info(`bytes, minified and compressed: ${JSON.stringify({ index, react, element })}`)
    expect(Object.keys(index.later).sort()).toEqual(["lines", "list", "native", "share"])
    expect(index.at_once).toBeLessThan(6_780)
    expect(index.total).toBeLessThan(14_705)
  })

  it("has no room that is too large", () => {
    const files = [SRC, import.meta.dirname].flatMap((folder) => readdirSync(folder).map((file) => join(folder, file)))
    const code = files.filter((file) => /\.tsx?$/.test(file))
    const lines = code.map((file) => [file, readFileSync(file, "utf8").split("\n").length])
    expect(lines.filter(([, count]) => Number(count) > CEILING)).toEqual([])
  })

  it("can be loaded where there is no page", async () => {
    await import("../src/element")
    await import("../src/react")
  })
})
