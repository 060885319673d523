import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"

export default defineConfig({
  resolve: {
    alias: { "@playhead/client": fileURLToPath(new URL("../clients/typescript/src/index.ts", import.meta.url)) },
  },
  test: { include: ["test/**/*.test.ts"], environment: "node" },
})
