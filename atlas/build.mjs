/** Write the pages with their programs and their styles, atlas.html and planning.html in ../od_core/publication/html, and
 * the program of a page of sites, over_time.js in ../od_core/publication/templates/site. */

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const TO = new URL("../od_core/publication/html/", import.meta.url);
const SOURCES = new URL("src/", import.meta.url);

async function bundled(entry, packages, define = {}) {
  const entryPoints = [new URL(entry, SOURCES).pathname];
  const options = { bundle: true, minify: true, target: "es2022", charset: "utf8", metafile: true };
  const result = await build({ entryPoints, ...options, define, write: false });
  for (const input of Object.keys(result.metafile.inputs)) {
    const name = input.match(/node_modules\/([^/]+)/)?.[1];
    if (name) packages.add(name);
  }
  return result.outputFiles[0].text.trim();
}

/** A program as the text of an element of a page. */
async function script(entry, packages, define) {
  return (await bundled(entry, packages, define)).replaceAll("</script", "<\\/script");
}

/** The licences of the packages in the page, which ask to be kept with it; packages with the same text share it. */
async function licences(packages) {
  const texts = new Map();
  for (const name of [...packages].sort()) {
    const text = (await readFile(new URL(`node_modules/${name}/LICENSE`, import.meta.url), "utf8")).trim();
    texts.set(text, [...(texts.get(text) ?? []), name]);
  }
  return [...texts].map(([text, names]) => `${names.join(", ")}:\n\n${text}`).join("\n\n").replaceAll("--", "- -");
}

/** Write a page from its template, program and style; `worker` is the program of its worker, if it has one. */
async function write(name, { template, program: entry, style: styles, worker }) {
  const packages = new Set();
  const define = worker ? { WORKER: JSON.stringify(await bundled(worker, packages)) } : {};
  const program = await script(entry, packages, define);
  const style = await bundled(styles, packages);
  const hash = createHash("sha256").update(program).digest("base64");
  const parts = { program, style, hash, licences: await licences(packages) };
  const page = (await readFile(new URL(template, SOURCES), "utf8")).replace(/\[\[(\w+)\]\]/g, (_, part) => parts[part]);
  await writeFile(new URL(name, TO), page);
}

await write("atlas.html", { template: "page.html", program: "main.ts", style: "style.css", worker: "worker.ts" });
const planning = { template: "planning/page.html", program: "planning/main.ts", style: "planning/planning.css" };
await write("planning.html", planning);
await writeFile(new URL("../templates/site/over_time.js", TO), await script("over_time.ts", new Set()));
