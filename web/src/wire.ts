/** The version of the wire that this page speaks. */
export const WIRE = 1
const KEPT = "playhead.reloaded"

/** A page that stayed open while its server became newer loads itself anew, once for each version. */
export function noteWire(told: string | null, reload: () => void = () => location.reload()): void {
  const version = Number(told)
  if (!Number.isInteger(version) || version <= WIRE) return
  try {
    if (Number(sessionStorage.getItem(KEPT)) >= version) return
    sessionStorage.setItem(KEPT, String(version))
  } catch {
    return // without a memory it could go on for ever
  }
  reload()
}
