import { expect, it } from "vitest"
import { Timeline } from "../src/timeline"
import type { RunEvent } from "../src/types"

const events = (...ids: (string | number)[]) => ids.map((id) => ({ id: String(id) }) as RunEvent)
const ids = (timeline: Timeline) =>
  timeline
    .list()
    .map((event) => event.id)
    .join(" ")
const info = (has_older = true, complete = true) => ({ complete, has_older, oldest: null })

function shown(limit: number, ...kept: number[]): Timeline {
  const timeline = new Timeline(limit)
  timeline.merge(events(...kept), info(false), true)
  return timeline
}

it("a late page that does not touch what is shown says nothing; a fresh one stands alone", () => {
  const timeline = shown(9, 5, 6)
  timeline.merge(events(1, 2), info(true, false), false)
  expect(ids(timeline)).toBe("5 6")
  expect(timeline.info()).toEqual({ complete: true, has_older: false, oldest: "5" })
  timeline.merge(events(8, 9), info(true, false), true)
  expect(ids(timeline)).toBe("8 9")
  expect(timeline.info()).toEqual({ complete: false, has_older: true, oldest: "8" })
})

it("a page is woven in by what both have", () => {
  const timeline = shown(9, 1, 3, 5)
  timeline.merge(events(2, 3, 4), info(), false)
  expect(ids(timeline)).toBe("1 2 3 5 4")
  timeline.add(events(6)[0] as RunEvent)
  expect(ids(timeline)).toBe("1 2 3 5 6 4")
})

it("of an event that both have, the page's word counts: a record can lose an end, and have another in its place", () => {
  const timeline = shown(9, 1, 2, 3)
  const last = { id: "3", type: "approval_required" } as RunEvent
  timeline.merge([...events(2), last], info(), true)
  expect(ids(timeline)).toBe("1 2 3")
  expect(timeline.last).toBe(last)
})

it("what was let go is not taken for new, until somebody asks for it", () => {
  const timeline = shown(3, 1, 2, 3)
  for (const event of events(4, 5, 1, 2)) timeline.add(event)
  expect(ids(timeline)).toBe("3 4 5")
  for (const event of events(3, 4, 5, 6)) timeline.add(event)
  expect(ids(timeline)).toBe("4 5 6")
  expect(timeline.info().has_older).toBe(true)
  timeline.merge(events(1, 2, 4), info(), false)
  expect(ids(timeline)).toBe("4 5 6")
  timeline.prepend(events(2, 3), info(true))
  expect(ids(timeline)).toBe("2 3 4 5 6")
  timeline.add(events(7)[0] as RunEvent)
  expect(ids(timeline)).toBe("3 4 5 6 7")
})

it("an event goes behind the one that the stream told before it", () => {
  const timeline = shown(9, 2, 5)
  timeline.rewind()
  for (const event of events(1, 2, 3, 4, 5, 6)) timeline.add(event)
  expect(ids(timeline)).toBe("1 2 3 4 5 6")
})

it("letting go of many does not keep them", () => {
  const timeline = new Timeline(2)
  for (let n = 0; n < 12_000; n += 1) timeline.add(events(n)[0] as RunEvent)
  expect(ids(timeline)).toBe("11998 11999")
})
