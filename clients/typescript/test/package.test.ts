import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"
import { describe, expect, it } from "vitest"
import { WIRE, wire } from "../scripts/types.mjs"
import * as root from "../src/index"

const SRC = join(import.meta.dirname, "../src")
const CEILING = 400

/** Bytes of an entry with all that it imports, as a page loads it. */
async function size(entry: string): Promise<number> {
  const bundle = await rolldown({ input: join(SRC, entry), platform: "browser", external: ["react"] })
  const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: false })
  return gzipSync(output[0].code, { level: 9 }).length
}

describe("the package", () => {
  it("has the types of the schemas in spec/", async () => {
    expect(await wire()).toBe(readFileSync(WIRE, "utf8"))
  })

  it("exports what it promises and no more", () => {
    expect(Object.keys(root).sort()).toEqual(["ProblemError", "createClient"])
  })

  it("is small", async () => {
    const sizes: Record<string, number> = {}
    for (const entry of ["index.ts", "react.ts", "element.ts"]) sizes[entry] = await size(entry)
    console.info(`gzipped and minified, with all they import: ${JSON.stringify(sizes)}`)
    expect(sizes["index.ts"]).toBeLessThan(13_600)
  })

  it("has no room that is too large", () => {
    const lines = readdirSync(SRC).map((file) => [file, readFileSync(join(SRC, file), "utf8").split("\n").length])
    expect(lines.filter(([, count]) => Number(count) > CEILING)).toEqual([])
  })

  it("can be loaded where there is no page", async () => {
    await import("../src/element")
    await import("../src/react")
  })
})
