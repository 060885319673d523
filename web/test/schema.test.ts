import { expect, test } from "vitest"
import { labelsOf } from "../src/labels"
import { fieldsOf, read, shown, Unreadable, unchanged } from "../src/schema"

const SCHEMA = {
  $defs: { Kind: { enum: ["fast", "slow"], title: "Kind" } },
  properties: {
    who: { type: "string", default: "you", title: "Who", description: "Whom." },
    path: { anyOf: [{ type: "string", maxLength: 9 }, { type: "null" }], default: null },
    at_most: { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }], default: null },
    pace: { type: "number", maximum: 60, default: 0.5 },
    ask: { type: "boolean", default: true },
    kind: { $ref: "#/$defs/Kind", default: "slow" },
    either: { anyOf: [{ type: "string" }, { type: "integer" }] },
    list: { type: "array", default: [1] },
    odd: 3,
  },
}

test("each property of a schema is a field", () => {
  const fields = fieldsOf(SCHEMA)
  expect(fields.map(({ name, kind, nullable }) => [name, kind, nullable])).toEqual([
    ["who", "text", false],
    ["path", "text", true],
    ["at_most", "number", true],
    ["pace", "number", false],
    ["ask", "boolean", false],
    ["kind", "choice", false],
    ["either", "json", false],
    ["list", "json", false],
    ["odd", "json", false],
  ])
  expect(fields[2]).toMatchObject({ title: "At most", whole: true, least: 1, most: null })
  expect(fields.map(shown)).toEqual(["you", "", "", "0.5", "true", '"slow"', "", "[\n  1\n]", ""])
})

test("an earlier input beats the defaults", () => {
  const fields = fieldsOf(SCHEMA, { who: "me", at_most: 3, other: 1 })
  expect(fields.slice(0, 3).map(shown)).toEqual(["me", "", "3"])
})

test("what a control says is a value of its type", () => {
  const [who, path, most, pace, ask, kind, either] = fieldsOf(SCHEMA) as Required<ReturnType<typeof fieldsOf>>
  const said = (field: typeof who, text: string, bad = false) => read(field as NonNullable<typeof who>, text, bad)
  expect([said(who, ""), said(path, ""), said(path, "x"), said(most, ""), said(most, "3")]).toEqual([
    "",
    null,
    "x",
    null,
    3,
  ])
  expect([said(pace, "0.25"), said(ask, "false"), said(kind, '"fast"'), said(either, '"a"')]).toEqual([
    0.25,
    false,
    "fast",
    "a",
  ])
  for (const [field, text, bad] of [
    [pace, "", false],
    [pace, "", true],
    [pace, "x", false],
    [either, "{", false],
  ] as const)
    expect(() => said(field, text, bad)).toThrow(Unreadable)
})

test("a switch that may be left open has three choices", () => {
  const schema = { properties: { loud: { anyOf: [{ type: "boolean" }, { type: "null" }], default: null } } }
  const said = (given?: unknown) => {
    const [loud] = fieldsOf(schema, given === undefined ? null : { loud: given })
    return [loud?.kind, loud?.nullable, shown(loud as NonNullable<typeof loud>)]
  }
  expect([said(), said(true), said(false)]).toEqual([
    ["boolean", true, "null"],
    ["boolean", true, "true"],
    ["boolean", true, "false"],
  ])
  const [loud] = fieldsOf(schema) as [Parameters<typeof read>[0]]
  expect(["null", "true", "false"].map((one) => read(loud, one))).toEqual([null, true, false])
})

test("what was not changed is what was there, to the character", () => {
  const given = {
    who: "one\r\ntwo\rthree",
    path: "",
    at_most: "9007199254740993",
    pace: 1e21,
    ask: true,
    kind: "slow",
    either: "x",
    list: [1, [2]],
    odd: null,
  }
  for (const field of fieldsOf(SCHEMA, given)) {
    const said = shown(field).replace(/\r\n?/g, "\n") // as a control gives it back
    expect(unchanged(field, said)).toBe(true)
    expect(read(field, said)).toEqual(given[field.name as keyof typeof given])
  }
  const [who] = fieldsOf(SCHEMA, given) as [Parameters<typeof read>[0]]
  expect(unchanged(who, "one\ntwo\nthree!")).toBe(false)
  expect(read(who, "one\ntwo\nthree!")).toBe("one\ntwo\nthree!")
})

test("labels are lines of name and value", () => {
  expect(labelsOf(" team:legal \n\n at: a:b\n")).toEqual({ team: "legal", at: "a:b" })
  expect(labelsOf("")).toEqual({})
  expect(labelsOf("nothing")).toBeNull()
  expect(labelsOf(":x")).toBeNull()
})
