import { defineConfig } from "vitest/config";

// Where `sonde ui` runs while the page is developed with `npm run dev`.
const SERVER = "http://127.0.0.1:8321";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/sonde/server/page",
    emptyOutDir: true,
    assetsInlineLimit: 0, // the page's security policy allows no data: addresses
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  server: { proxy: { "/api": SERVER } },
  test: { include: ["tests/**/*.test.ts"] },
});
