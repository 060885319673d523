import vue from "@vitejs/plugin-vue"
import { defineConfig } from "vite"

export default defineConfig({
  plugins: [vue({ template: { compilerOptions: { isCustomElement: (tag) => tag.startsWith("playhead-") } } })],
  // The client is linked here from its own room, which has a React of its own for its tests. A page must have one.
  resolve: { dedupe: ["react", "react-dom"] },
  // `npm run dev`, beside the server. An object, not a text: that would send another Host, which the server refuses.
  server: { proxy: { "/playhead": { target: process.env.GATEWAY ?? "http://127.0.0.1:8000" } } },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    rolldownOptions: { input: ["react/index.html", "vue/index.html", "fastapi/index.html"] },
  },
})
