// @vitest-environment jsdom
import { readdirSync, readFileSync } from "node:fs"
import { afterEach, expect, test } from "vitest"
import { catalogues, choose, t, use } from "../src/words"

afterEach(() => use("en"))

/** Every place of a catalogue, with the kind of what stands there. */
function places(value: object, at = ""): string[] {
  return Object.entries(value).flatMap(([name, one]) =>
    typeof one === "object" ? places(one, `${at}${name}.`) : [`${at}${name} ${typeof one}`],
  )
}

test("both catalogues have all words", () => {
  const [en = [], de = []] = [catalogues.en, catalogues.de].map((one) => places(one ?? {}).sort())
  expect(en.length).toBeGreaterThan(150)
  expect(de).toEqual(en)
})

test("every built-in event of a run has a title in the catalogue", () => {
  const folder = new URL("../../spec/events/", `file://${import.meta.dirname}/`)
  const types = readdirSync(folder).map((name) => JSON.parse(readFileSync(new URL(name, folder), "utf8")))
  const onTimeline = types.filter((one) => one["x-placement"].includes("timeline")).map((one) => one.title)
  expect(onTimeline.length).toBeGreaterThan(10)
  expect(onTimeline.filter((type) => !Object.hasOwn(t.event, type))).toEqual([])
})

test("the language is the first wished one that there is", () => {
  expect(choose(["xx", null, "de-AT", "en"])).toBe("de")
  expect(choose([null, "", "fr-FR"])).toBe("en")
  expect(choose(["__proto__", "constructor"])).toBe("en")
})

test("a language in use is told to the browser", () => {
  use("de")
  expect(document.documentElement.lang).toBe("de")
  expect(t.run.stop).toBe("Anhalten")
  use("xx")
  expect(t.run.stop).toBe("Anhalten")
})
