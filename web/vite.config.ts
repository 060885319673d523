import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { gzipSync } from "node:zlib"
import { defineConfig } from "vite"

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const MOST = 60_000 // bytes of the whole page, compressed
let folder = ""

export default defineConfig({
  base: "./", // the page works below any path
  resolve: { alias: { "@playhead/client": here("../clients/typescript/src/index.ts") } },
  build: {
    outDir: here("../src/playhead/web"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // The page needs all of the client: one file, so that none is missed after a change of the server.
    rolldownOptions: { output: { codeSplitting: false } },
  },
  plugins: [
    {
      name: "size",
      configResolved: (config) => {
        folder = config.build.outDir
      },
      closeBundle() {
        const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
        const total = files.reduce(
          (sum, one) => sum + gzipSync(readFileSync(`${one.parentPath}/${one.name}`), { level: 9 }).length,
          0,
        )
        console.log(`the page: ${total} of ${MOST} bytes, compressed`)
        if (total > MOST) throw new Error("the page is too large")
      },
    },
  ],
})
