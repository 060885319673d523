/** A small server of the protocol over real sockets, which can be told to fail. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { FINAL, frame, joined, ServedRun, type Told } from "./run"

export interface Refusal {
  status: number
  code?: string
  headers?: Record<string, string>
  retryable?: boolean
}

type Reply = (request: IncomingMessage, url: URL, body: unknown) => Refusal | "cut" | "hang" | null

/** An open stream. */
export interface Stream {
  url: string
  headers: IncomingMessage["headers"]
  runs: string[]
  write(text: string | Uint8Array): void
  end(): void
  cut(): void
}

export class PlayServer {
  readonly runs = new Map<string, ServedRun>()
  readonly seen: string[] = []
  readonly keys = new Map<string, string>()
  readonly streams = new Set<Stream>()
  /** How many streams were open at once at most. */
  most = 0
  retry: number | null = null
  /** Asked before each request is answered. */
  reply: Reply = () => null
  /** Who may read which run. */
  may: (who: string | undefined, run: string) => boolean = () => true
  base = ""
  readonly #server: Server
  readonly #sockets = new Set<ServerResponse>()

  constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response))
    this.#server.keepAliveTimeout = 1
  }

  async listen(): Promise<this> {
    await new Promise<void>((done) => this.#server.listen(0, "127.0.0.1", done))
    this.base = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`
    return this
  }

  async close(): Promise<void> {
    for (const stream of this.streams) stream.cut()
    this.#server.closeAllConnections()
    await new Promise((done) => this.#server.close(done))
  }

  add(run = new ServedRun()): ServedRun {
    this.runs.set(run.id, run)
    return run
  }

  count(pattern: RegExp): number {
    return this.seen.filter((line) => pattern.test(line)).length
  }

  cutAll(): void {
    for (const stream of [...this.streams]) stream.cut()
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", this.base)
    this.seen.push(`${request.method} ${url.pathname}${url.search}`)
    let text = ""
    for await (const piece of request) text += piece
    const body = text ? JSON.parse(text) : null
    const refusal = this.reply(request, url, body)
    if (refusal === "hang") return void this.#sockets.add(response)
    if (refusal === "cut") return void response.socket?.destroy()
    if (refusal) return refuse(response, refusal)
    const [kind, id, what, sub] = url.pathname.split("/").slice(1).map(decodeURIComponent)
    if (kind === "stream") return this.#many(url, request, response)
    if (kind === "agents") return json(response, 200, { agents: [] })
    if (kind === "interrupts")
      return json(response, 200, { interrupts: [...this.runs.values()].flatMap((run) => run.open()) })
    if (kind !== "runs") return refuse(response, { status: 404, code: "not_found" })
    if (id === undefined)
      return request.method === "POST" ? this.#start(request, response, body) : this.#list(url, response)
    const run = this.#of(request, id)
    if (!run) return refuse(response, { status: 404, code: "not_found" })
    const limit = Number(url.searchParams.get("limit") ?? 50)
    if (what === "bootstrap") return json(response, 200, run.bootstrap(limit))
    if (what === "events") return json(response, 200, run.page(url.searchParams.get("before"), limit))
    if (what === "stream") return this.#one(run, url, request, response)
    if (what === "interrupts") return json(response, 200, run.decide(sub ?? "", body))
    if (what === "cancel") {
      run.fact("cancel_requested", { by: "local", reason: null })
      return json(response, 202, run.run)
    }
    if (request.method === "DELETE") {
      this.runs.delete(id)
      response.writeHead(204).end()
      return
    }
    json(response, 200, run.run)
  }

  /** The run, for who may read it. */
  #of({ headers }: IncomingMessage, id: string): ServedRun | undefined {
    return this.may(headers.authorization, id) ? this.runs.get(id) : undefined
  }

  #start(request: IncomingMessage, response: ServerResponse, body: { agent: string }): void {
    const key = String(request.headers["idempotency-key"])
    const known = this.keys.get(key)
    const run = this.add(known ? this.runs.get(known) : new ServedRun(body.agent))
    this.keys.set(key, run.id)
    json(response, known ? 200 : 201, run.run)
  }

  #list(url: URL, response: ServerResponse): void {
    const after = url.searchParams.get("after")
    const limit = Number(url.searchParams.get("limit"))
    const status = url.searchParams.getAll("status")
    const all = [...this.runs.values()].map((run) => run.run).reverse()
    const matching = all.filter((run) => status.length === 0 || status.includes(run.status))
    const from = after === null ? 0 : matching.findIndex((run) => run.id === after) + 1
    if (after !== null && from === 0) return refuse(response, { status: 400, code: "invalid_request" })
    const runs = matching.slice(from, from + limit)
    json(response, 200, { runs, next: from + limit < matching.length ? runs.at(-1)?.id : null })
  }

  #one(run: ServedRun, url: URL, request: IncomingMessage, response: ServerResponse): void {
    const cursor = (request.headers["last-event-id"] as string) || url.searchParams.get("cursor")
    const over = run.isFinal && cursor === run.cursor
    if (cursor === "end" || cursor === "stop" || over) return void response.writeHead(204).end()
    const inline = url.searchParams.get("resync") === "inline"
    const stream = this.#open(url, request, response, [run.id])
    this.#begin(stream, run, cursor, named(url, ""), (told) => frame(told), inline)
  }

  #many(url: URL, request: IncomingMessage, response: ServerResponse): void {
    const places = url.searchParams.getAll("run").map((one) => one.split("@") as [string, string?])
    if (places.length === 0 || places.length > 32) return refuse(response, { status: 400, code: "invalid_request" })
    if (places.every(([id]) => !this.#of(request, id))) return refuse(response, { status: 404, code: "not_found" })
    const stream = this.#open(
      url,
      request,
      response,
      places.map(([id]) => id),
    )
    for (const [id, cursor] of places) {
      const run = this.#of(request, id)
      if (!run) stream.write(joined(id, { name: "refused", data: { code: "not_found" } }))
      else this.#begin(stream, run, cursor ?? null, named(url, `run:${id}.`), (told) => joined(id, told), true)
    }
  }

  #open(url: URL, request: IncomingMessage, response: ServerResponse, runs: string[]): Stream {
    response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store" })
    const stream: Stream = {
      url: url.pathname + url.search,
      headers: request.headers,
      runs,
      write: (text) => response.writableEnded || response.write(text),
      end: () => void response.end(),
      cut: () => void response.socket?.destroy(),
    }
    this.streams.add(stream)
    this.most = Math.max(this.most, this.streams.size)
    response.on("close", () => this.streams.delete(stream))
    stream.write(this.retry === null ? ": hello\n\n" : `retry: ${this.retry}\n\n`)
    return stream
  }

  #begin(
    stream: Stream,
    run: ServedRun,
    cursor: string | null,
    text: Map<string, number>,
    form: (told: Told) => string,
    inline: boolean,
  ): void {
    const say = (frames: Told[]) => stream.write(frames.map(form).join(""))
    const resync = (reason: string, requested: string | null) => {
      const why = { reason, requested, oldest: null, newest: run.cursor }
      if (inline)
        return say([{ name: "resync_required", data: { ...why, bootstrap: run.bootstrap() }, cursor: run.cursor }])
      say([{ name: "resync_required", data: why, cursor: "stop" }])
      stream.end()
    }
    const finish = () => {
      run.viewers.delete(viewer)
      if (stream.runs.every((id) => FINAL.includes(this.runs.get(id)?.run.status ?? "failed"))) stream.end()
    }
    const viewer = (frames: Told[]) => {
      if (!this.streams.has(stream)) return void run.viewers.delete(viewer)
      if (frames[0]?.name === "rebuilt") return resync("epoch", null)
      say(frames)
      if (frames.at(-1)?.name === "end") finish()
    }
    const events = run.after(cursor)
    if (typeof events === "string") resync(events, events === "malformed" ? null : cursor)
    else say([run.stateFrame(), ...run.pieces(text).map((piece) => ({ name: "text", data: { ...piece } })), ...events])
    if (run.ended) {
      say([{ name: "end", data: { run_id: run.id, status: run.run.status } }])
      finish()
    } else run.viewers.add(viewer)
  }
}

function named(url: URL, prefix: string): Map<string, number> {
  const found = url.searchParams.getAll("text").filter((one) => one.startsWith(prefix))
  return new Map(
    found.map((one) => one.slice(prefix.length).split(":")).map(([name, end]) => [name ?? "", Number(end)]),
  )
}

function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body))
}

function refuse(
  response: ServerResponse,
  { status, code = "unknown", headers = {}, retryable = false }: Refusal,
): void {
  const problem = {
    type: `urn:playhead:problem:${code}`,
    title: code,
    status,
    code,
    detail: `It is ${code}.`,
    retryable,
  }
  response.writeHead(status, { "Content-Type": "application/problem+json", ...headers })
  response.end(status === 204 ? undefined : JSON.stringify(problem))
}
