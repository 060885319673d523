// Addresses of screens stand behind the hash, so that one file serves them all below any path.

export interface Filter {
  readonly status: readonly string[]
  readonly agent: string
  readonly label: string
  readonly key: string
}

export type Route =
  | { readonly screen: "list"; readonly filter: Filter }
  | { readonly screen: "start"; readonly agent: string; readonly from: string }
  | { readonly screen: "run"; readonly id: string }

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2)
  const asked = new URLSearchParams(query)
  const run = /^\/runs\/([0-9A-Za-z-]{1,64})\/?$/.exec(path)
  if (run) return { screen: "run", id: run[1] as string }
  const start = /^\/start(?:\/([a-z][a-z0-9_]{0,63}))?\/?$/.exec(path)
  if (start) return { screen: "start", agent: start[1] ?? "", from: asked.get("from") ?? "" }
  const text = (name: string): string => asked.get(name)?.trim() ?? ""
  return {
    screen: "list",
    filter: {
      status: asked.getAll("status").filter(Boolean),
      agent: text("agent"),
      label: text("label"),
      key: text("key"),
    },
  }
}

export const runAddress = (id: string): string => `#/runs/${encodeURIComponent(id)}`

export function startAddress(agent = "", from = ""): string {
  return `#/start${agent && `/${agent}`}${from && `?from=${encodeURIComponent(from)}`}`
}

export function listAddress(filter: Partial<Filter> = {}): string {
  const query = new URLSearchParams()
  for (const one of filter.status ?? []) query.append("status", one)
  for (const name of ["agent", "label", "key"] as const) if (filter[name]) query.set(name, filter[name])
  const text = query.toString()
  return text ? `#/?${text}` : "#/"
}
