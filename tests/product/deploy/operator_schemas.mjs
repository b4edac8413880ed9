// Reads objects of an operator (a JSON list) and prints what is wrong with them (a JSON list of strings).
// The schemas come as compiled functions that let unknown fields pass. What such a function never looks at is a field
// that it does not know, so each object is given to it behind a proxy that notes what was looked at.
import { existsSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// How the names of the files of schemas begin, before version and kind.
const [prefix] = process.argv.slice(2);

function watched(value, path, seen) {
  if (value === null || typeof value !== "object") return value;
  const asked = new Set();
  const children = new Map();
  seen.push({ value, path, asked });
  return new Proxy(value, {
    get(target, key) {
      if (!Object.hasOwn(target, key) || (Array.isArray(target) && key === "length")) return target[key];
      asked.add(key);
      if (!children.has(key)) children.set(key, watched(target[key], `${path}/${key}`, seen));
      return children.get(key);
    },
  });
}

async function complaints(object) {
  const { apiVersion, kind } = object;
  const version = apiVersion.split("/")[1];
  const file = `${prefix}${version[0].toUpperCase()}${version.slice(1)}${kind}.js`;
  if (!existsSync(file)) return [`no schema for ${apiVersion} ${kind}`];
  const { validate } = await import(pathToFileURL(file));
  const seen = [];
  const wrong = validate(watched(object, "", seen)) ? [] : validate.errors;
  const unknown = seen.flatMap(({ value, path, asked }) =>
    Object.keys(value).filter((key) => !asked.has(key)).map((key) => `${path}/${key}: unknown field`),
  );
  const broken = wrong.map(({ instancePath, keyword, params }) => `${instancePath}: ${keyword} ${JSON.stringify(params)}`);
  return [...unknown, ...broken].map((each) => `${kind} ${object.metadata?.name}: ${each}`);
}

const objects = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify((await Promise.all(objects.map(complaints))).flat()));
