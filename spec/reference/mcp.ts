// MCP over Streamable HTTP, one exchange for each request: revision 2026-07-28, and those that begin with `initialize`.
import { logIncident } from "./episodes.ts";
import { Refusal, isObject, parse, type Json, type JsonObject } from "./wire.ts";

export const EXTENSION = "dev.ludus/episodes";
export const VERSION = "0.2";
const MODERN = "2026-07-28";
const LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const META = "io.modelcontextprotocol/";
const SERVER = { name: "ludus-reference-server", version: "1.0.0" };
/** The params that name what a request is about, which the header `Mcp-Name` repeats. */
const NAMED: Record<string, string> = { "tools/call": "name", "prompts/get": "name", "resources/read": "uri" };

export type Headers = Record<string, string | string[] | undefined>;
export type Reply = { status: number; body: Json };

/** What is behind one MCP endpoint. */
export interface Endpoint {
  capabilities: JsonObject;
  /** The settings of the extension, where the endpoint offers it. */
  settings: JsonObject | null;
  instructions?: string;
  knows(method: string): boolean;
  call(method: string, params: JsonObject, meta: JsonObject): Promise<JsonObject>;
}

/** Answer the body of a POST. */
export async function answer(endpoint: Endpoint, headers: Headers, body: Uint8Array): Promise<Reply> {
  let id: Json = null;
  let modern = true;
  try {
    const request = readRequest(body);
    if (!("id" in request)) return { status: 202, body: null };
    id = request["id"] ?? null;
    const version = headers["mcp-protocol-version"];
    modern = version === MODERN || !(version === undefined || LEGACY.includes(String(version)));
    const result = modern ? await answerModern(endpoint, headers, request) : await answerLegacy(endpoint, request);
    return { status: 200, body: { jsonrpc: "2.0", id, result } };
  } catch (error) {
    const refusal = refusalOf(error);
    return { status: statusOf(refusal.code, modern), body: { jsonrpc: "2.0", id, error: refusal.error } };
  }
}

/** Return the refusal of what was thrown; what is none is a fault of this server. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const incident = logIncident("the server", error);
  return new Refusal(-32603, `the server failed (incident ${incident})`, { incident });
}

/** Parse a JSON-RPC message, which must be a request or a notification. */
export function readRequest(body: Uint8Array | string): JsonObject {
  let value: unknown;
  try {
    value = parse(typeof body === "string" ? body : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch (error) {
    throw new Refusal(-32700, error instanceof RangeError ? "nested too deeply" : "not JSON in UTF-8");
  }
  return checkRequest(value);
}

/** Check that a value is a request; one without an id is a notification. */
export function checkRequest(value: unknown): JsonObject {
  if (!isObject(value)) throw new Refusal(-32600, "a request is an object");
  const { jsonrpc, method, id = "none" } = value;
  if (jsonrpc !== "2.0") throw new Refusal(-32600, 'jsonrpc must be "2.0"');
  if (typeof method !== "string") throw new Refusal(-32600, "method must be a string");
  if (!isId(id)) throw new Refusal(-32600, "id must be a string or an integer within 2^53 - 1");
  return value;
}

export function isId(id: unknown): boolean {
  return typeof id === "string" ? [...id].length <= 128 && id.isWellFormed() : Number.isSafeInteger(id);
}

export function statusOf(code: number, modern: boolean): number {
  if (code === -32700 || code === -32600) return 400;
  if (!modern) return 200;
  if (code === -32601) return 404;
  if (code === -32603) return 500;
  return code < 0 ? 400 : code === 5030 ? 503 : 200;
}

async function answerModern(endpoint: Endpoint, headers: Headers, request: JsonObject): Promise<JsonObject> {
  const method = request["method"] as string;
  const { _meta: meta, ...params } = paramsOf(request);
  for (const name of ["protocolVersion", "clientCapabilities"]) {
    if (!isObject(meta) || !Object.hasOwn(meta, META + name)) throw new Refusal(-32602, `_meta lacks ${META}${name}`);
  }
  const { [`${META}protocolVersion`]: version = null, [`${META}clientCapabilities`]: declared } = meta as JsonObject;
  compare(headers, "mcp-protocol-version", version);
  compare(headers, "mcp-method", method);
  const named = NAMED[method];
  if (named && params[named] !== undefined) compare(headers, "mcp-name", params[named] ?? null);
  if (version !== MODERN) {
    const data = { supported: [MODERN, ...LEGACY], requested: version };
    throw new Refusal(-32022, `MCP revision ${String(version)} is not supported`, data);
  }
  if (method === "server/discover") {
    const offered: JsonObject = endpoint.settings ? { extensions: { [EXTENSION]: endpoint.settings } } : {};
    return complete(method, {
      supportedVersions: [MODERN, ...LEGACY],
      capabilities: { ...endpoint.capabilities, ...offered },
      ...(endpoint.instructions === undefined ? {} : { instructions: endpoint.instructions }),
    });
  }
  requireKnown(endpoint, method);
  if (method.startsWith("dev.ludus/") && !declares(declared)) {
    const requiredCapabilities = { extensions: { [EXTENSION]: { version: VERSION } } };
    throw new Refusal(-32021, `the request must declare ${EXTENSION} ${VERSION}`, { requiredCapabilities });
  }
  return complete(method, await endpoint.call(method, params, meta as JsonObject));
}

async function answerLegacy(endpoint: Endpoint, request: JsonObject): Promise<JsonObject> {
  const method = request["method"] as string;
  const { _meta: meta, ...params } = paramsOf(request);
  if (method === "ping") return {};
  if (method === "initialize") {
    const asked = String(params["protocolVersion"]);
    const offered: JsonObject = endpoint.settings ? { experimental: { [EXTENSION]: endpoint.settings } } : {};
    return {
      protocolVersion: LEGACY.includes(asked) ? asked : (LEGACY[0] ?? asked),
      capabilities: { ...endpoint.capabilities, ...offered },
      serverInfo: SERVER,
      ...(endpoint.instructions === undefined ? {} : { instructions: endpoint.instructions }),
    };
  }
  requireKnown(endpoint, method);
  return endpoint.call(method, params, isObject(meta) ? meta : {});
}

function paramsOf(request: JsonObject): JsonObject {
  const { params = {} } = request;
  if (!isObject(params)) throw new Refusal(-32602, "params must be an object");
  return params;
}

function requireKnown(endpoint: Endpoint, method: string): void {
  if (!endpoint.knows(method)) throw new Refusal(-32601, `there is no method ${JSON.stringify(method)}`);
}

function declares(capabilities: unknown): boolean {
  const extensions = isObject(capabilities) ? capabilities["extensions"] : null;
  const settings = isObject(extensions) ? extensions[EXTENSION] : null;
  return isObject(settings) && settings["version"] === VERSION;
}

/** Require that a header says what the body says. */
function compare(headers: Headers, name: string, wanted: Json): void {
  const given = String(headers[name] ?? "");
  const coded = /^=\?base64\?(.*)\?=$/.exec(given);
  const value = coded ? Buffer.from(coded[1] ?? "", "base64").toString() : given;
  if (value !== wanted) throw new Refusal(-32020, `the header ${name} does not say what the request says`);
}

/** Add what revision 2026-07-28 requires of a result. */
function complete(method: string, result: JsonObject): JsonObject {
  const cache = method === "server/discover" || /^(tools|prompts)\/list$/.test(method);
  const meta = { [`${META}serverInfo`]: SERVER };
  return { ...result, resultType: "complete", _meta: meta, ...(cache ? { ttlMs: 0, cacheScope: "private" } : {}) };
}
