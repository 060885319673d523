/** Lines of `name:value`; null where one is not of that form. */
export function labelsOf(text: string): Record<string, string> | null {
  const found: Record<string, string> = {}
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (!line) continue
    const at = line.indexOf(":")
    if (at < 1) return null
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim()
  }
  return found
}
