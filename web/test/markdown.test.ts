// @vitest-environment jsdom
import { render } from "lit"
import { expect, test } from "vitest"
import { content } from "../src/parts/content"
import { blocks, markdown } from "../src/parts/markdown"

function shown(what: Parameters<typeof render>[0]): HTMLElement {
  const place = document.createElement("div")
  render(what, place)
  return place
}

/** The markup without the marks that the renderer leaves, and without the space between blocks. */
function markup(text: string): string {
  return shown(markdown(text))
    .innerHTML.replace(/<!--.*?-->/g, "")
    .replace(/\s+(?=<\/?(?:ol|li)\b)/g, "")
}

test("the small part of Markdown that is made into nodes", () => {
  expect(markup("# One\n### Two\ntext **bold** and `code`\nmore")).toBe(
    '<div class="md"><h3>One</h3><h4>Two</h4><p>text <strong>bold</strong> and <code>code</code>\nmore</p></div>',
  )
  expect(markup("- a\n- b\n\n3. c\n4. d")).toBe(
    '<div class="md"><ul><li>a</li><li>b</li></ul><ol start="3"><li>c</li><li>d</li></ol></div>',
  )
  expect(shown(markdown("```py\n# no head\n\n- no list\n```\nafter")).querySelector("pre")?.textContent).toBe(
    "# no head\n\n- no list",
  )
  const table = shown(markdown("| a | b |\n| --- | --- |\n| 1 | x \\| y |"))
  expect([...table.querySelectorAll("td")].map((one) => one.textContent)).toEqual(["1", "x | y"])
})

test("what is escaped, unknown or left open stays as it was written", () => {
  expect(shown(markdown("\\*\\*no\\*\\* *it* [a](b) <b>x</b> **open")).textContent).toBe(
    "**no** *it* [a](b) <b>x</b> open",
  )
  expect(shown(markdown("```\nopen")).querySelector("pre")?.textContent).toBe("open")
})

test("no text becomes markup", () => {
  const evil = ["<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "</script><svg onload=alert(1)>"]
  for (const one of evil)
    for (const text of [
      one,
      `# ${one}`,
      `- ${one}`,
      `| ${one} |`,
      `**${one}**`,
      `\`${one}\``,
      `\`\`\`\n${one}\n\`\`\``,
    ]) {
      const place = shown(markdown(text))
      expect(place.querySelector("img, a, svg, script")).toBeNull()
      expect(place.textContent).toContain(one)
      expect(shown(content({ [one]: one, rows: [{ [one]: [one] }] })).querySelector("img, a, svg, script")).toBeNull()
    }
})

test("a growing text changes its last block only", () => {
  const place = document.createElement("div")
  render(markdown("# One\n\ntext\n\nla"), place)
  const before = [...place.querySelectorAll("h3, p")]
  render(markdown("# One\n\ntext\n\nlast"), place)
  const after = [...place.querySelectorAll("h3, p")]
  expect(after.slice(0, 2)).toEqual(before.slice(0, 2))
  expect(after[0]).toBe(before[0])
  expect(after[2]?.textContent).toBe("last")
  expect(blocks("a\nb\n\n\nc")).toEqual(["a\nb", "c"])
})

test("any value can be shown", () => {
  const deep = { a: { b: { c: { d: { e: 1 } } } } }
  for (const value of [null, 0, "", "x", [], {}, [1, "a"], [{ a: 1 }, { b: null }], deep, [[1], [2]]])
    expect(shown(content(value)).textContent).not.toContain("undefined")
  expect(shown(content(deep)).querySelector("pre")).not.toBeNull()
  expect(
    [...shown(content([{ a: 1 }, { b: 2, c: null }])).querySelectorAll("th")].map((one) => one.textContent),
  ).toEqual(["A", "B"])
})
