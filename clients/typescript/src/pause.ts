/** How long to wait between two tries, of a connection or of anything else. Pure. */

/** About the wait between two tries, until the server says otherwise. */
export const RETRY = 3_000
export const RETRY_MAX = 30_000
/** Nobody is sent away for longer. */
export const LONGEST = 3_600_000

/**
 * How long to wait after so many failures in a row: at least what was told, and a random part of a time that grows.
 * Those who were cut off together do not come back together.
 */
export function delay(tries: number, random: number, told: number | null = null): number {
  const grown = Math.min(RETRY_MAX, (told || RETRY) * 2 ** Math.min(tries, 16))
  return (told ?? 0) + random * Math.max(grown, told ?? 0)
}
