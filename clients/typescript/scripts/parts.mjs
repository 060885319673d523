/** What a page loads at once is one file; the parts that it loads later hold nothing else. */
const LATER = "blocks|connection|element|leader|lines|list|native|react|read|relay|share|shared|sse|tape"

export const parts = {
  groups: [{ name: "client", test: new RegExp(`[\\\\/]src[\\\\/](?!(${LATER})\\.ts$)\\w+\\.ts$`) }],
}
