// Loads the schemas of `spec/schema` with validators of others, and says what each thinks of given values.
//
//   node validators.mjs MODULES SCHEMAS < values.json
//
// `values.json` is a list of {"type": …, "value": …}. The answer is JSON: whether OpenRPC's own validator accepts
// `openrpc.json`, the references that are left after its dereferencing, and for each value the verdicts of Ajv (strict)
// and of Hyperjump.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [modules, schemas] = process.argv.slice(2);
const require = createRequire(path.join(modules, "index.js"));
const read = (name) => JSON.parse(fs.readFileSync(path.join(schemas, name), "utf-8"));
const [episodes, evaluation, openrpc] = ["episodes", "evaluation"]
  .map((name) => read(`${name}.schema.json`))
  .concat(read("openrpc.json"));

const Ajv = require("ajv/dist/2020.js").default;
const ajv = new Ajv({ strict: true, strictTypes: true, strictTuples: true, strictRequired: true, allErrors: true });
require("ajv-formats").default(ajv);
ajv.addSchema(episodes);
const compiled = {};
for (const name of Object.keys(episodes.$defs)) compiled[name] = ajv.compile({ $ref: `${episodes.$id}#/$defs/${name}` });
ajv.compile(evaluation);

const hyperjump = await import(path.join(modules, "@hyperjump/json-schema/draft-2020-12/index.js"));
hyperjump.registerSchema(episodes);
hyperjump.registerSchema(evaluation);

const { parseOpenRPCDocument, validateOpenRPCDocument } = require("@open-rpc/schema-utils-js");
const verdict = validateOpenRPCDocument(openrpc);
const { methods } = await parseOpenRPCDocument(openrpc);
const left = [...JSON.stringify(methods).matchAll(/"\$ref":"([^"]*)"/g)].map((match) => match[1]);

const values = [];
for (const { type, value } of JSON.parse(fs.readFileSync(0, "utf-8"))) {
  const second = await hyperjump.validate(`${episodes.$id}#/$defs/${type}`, value);
  values.push({ ajv: compiled[type](value), hyperjump: second.valid });
}
console.log(JSON.stringify({ openrpc: verdict === true ? null : String(verdict), left, values }));
