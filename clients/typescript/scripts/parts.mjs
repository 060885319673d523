/** What a page loads at once is one file; the parts that it loads later hold nothing else. */
export const parts = {
  groups: [
    {
      name: "client",
      test: /[\\/]src[\\/](?!(element|leader|list|native|react|relay|share|shared|tape)\.ts$)\w+\.ts$/,
    },
  ],
}
