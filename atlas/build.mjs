/** Write the page with its program and its styles: ../od_core/publication/html/atlas.html. */

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const TO = new URL("../od_core/publication/html/atlas.html", import.meta.url);
const SOURCES = new URL("src/", import.meta.url);

const packages = new Set();

async function bundled(entry, define = {}) {
  const entryPoints = [new URL(entry, SOURCES).pathname];
  const options = { bundle: true, minify: true, target: "es2022", charset: "utf8", metafile: true };
  const result = await build({ entryPoints, ...options, define, write: false });
  for (const input of Object.keys(result.metafile.inputs)) {
    const name = input.match(/node_modules\/([^/]+)/)?.[1];
    if (name) packages.add(name);
  }
  return result.outputFiles[0].text.trim();
}

/** The licences of the packages in the page, which ask to be kept with it; packages with the same text share it. */
async function licences() {
  const texts = new Map();
  for (const name of [...packages].sort()) {
    const text = (await readFile(new URL(`node_modules/${name}/LICENSE`, import.meta.url), "utf8")).trim();
    texts.set(text, [...(texts.get(text) ?? []), name]);
  }
  return [...texts].map(([text, names]) => `${names.join(", ")}:\n\n${text}`).join("\n\n").replaceAll("--", "- -");
}

const worker = await bundled("worker.ts");
const program = (await bundled("main.ts", { WORKER: JSON.stringify(worker) })).replaceAll("</script", "<\\/script");
const style = await bundled("style.css");
const hash = createHash("sha256").update(program).digest("base64");
const parts = { program, style, hash, licences: await licences() };
const page = (await readFile(new URL("page.html", SOURCES), "utf8")).replace(
  /\[\[(\w+)\]\]/g,
  (_, name) => parts[name],
);
await writeFile(TO, page);
