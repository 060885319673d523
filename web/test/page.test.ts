// @vitest-environment jsdom
// The small decisions of the page: addresses, times, and when to load itself anew.
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { listAddress, parse, runAddress, startAddress } from "../src/routes"
import { ago, noteServerDate, now, since, span } from "../src/times"
import { noteWire, WIRE } from "../src/wire"
import { RUN } from "./made"

beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse("2026-01-01T12:00:00.000Z") })
  sessionStorage.clear()
})
afterEach(() => {
  noteServerDate(new Date().toUTCString())
  vi.useRealTimers()
})

test("an address is the way back to its screen", () => {
  const filter = { status: ["running", "waiting"], agent: "a_b", label: "team:legal & co", key: "k#1" }
  expect(parse(listAddress(filter))).toEqual({ screen: "list", filter })
  expect(parse(runAddress(RUN))).toEqual({ screen: "run", id: RUN })
  expect(parse(startAddress("a_b", RUN))).toEqual({ screen: "start", agent: "a_b", from: RUN })
  expect(listAddress()).toBe("#/")
})

test("an address that leads nowhere leads to the list", () => {
  for (const hash of ["", "#", "#/", "#/nothing", "#/runs/", "#/runs/a/b", "#/start/No", "#main"])
    expect(parse(hash).screen).toBe("list")
})

test("times are told in two units, ages in one", () => {
  expect([span(900), span(61_000), span(3_600_000), span(3_725_000), span(200_000_000)]).toEqual([
    "under 1 s",
    "1 min 1 s",
    "1 h",
    "1 h 2 min",
    "2 days",
  ])
  expect(span(-5)).toBe("under 1 s")
  expect([ago("2026-01-01T12:00:01.000Z"), ago("2026-01-01T11:58:30.000Z"), ago("2026-01-01T09:30:00.000Z")]).toEqual([
    "just now",
    "1 min ago",
    "2 h ago",
  ])
  expect(since("2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z")).toBe("5 s")
})

test("ages follow the server's clock, and not a second's rounding", () => {
  noteServerDate("Thu, 01 Jan 2026 12:00:00 GMT")
  expect(now()).toBe(Date.now())
  noteServerDate("Thu, 01 Jan 2026 12:10:00 GMT")
  expect(now() - Date.now()).toBe(600_500)
  noteServerDate(null)
  noteServerDate("nonsense")
  expect(now() - Date.now()).toBe(600_500)
})

test("a page that is older than its server loads itself anew, once for each version", () => {
  const reload = vi.fn()
  for (const told of [null, "", "x", "0", String(WIRE)]) noteWire(told, reload)
  expect(reload).toHaveBeenCalledTimes(0)
  for (const told of [WIRE + 1, WIRE + 1, WIRE + 1]) noteWire(String(told), reload)
  expect(reload).toHaveBeenCalledTimes(1)
  noteWire(String(WIRE + 2), reload)
  noteWire(String(WIRE + 1), reload)
  expect(reload).toHaveBeenCalledTimes(2)
})
