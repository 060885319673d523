import { defineConfig } from "tsdown"
import { parts } from "./scripts/parts.mjs"

export default defineConfig({
  entry: ["src/index.ts", "src/react.ts", "src/element.ts"],
  format: ["esm", "cjs"],
  dts: true,
  platform: "neutral",
  target: "es2022",
  fixedExtension: false,
  outputOptions: { codeSplitting: parts },
})
