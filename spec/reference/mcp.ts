// MCP over Streamable HTTP, an exchange for each request: revision 2026-07-28, and those that begin with `initialize`.
import { Invalid } from "./schema.ts";
import { Refusal, isObject, logIncident, parse, write, type Json, type JsonObject } from "./wire.ts";

export const EXTENSION = "dev.ludus/episodes";
export const VERSION = "0.2";
const MODERN = "2026-07-28";
const LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const META = "io.modelcontextprotocol/";
const STATUS: Record<number, number> = { [-32601]: 404, [-32603]: 500, 5030: 503 };
const serverInfo = { name: "ludus-reference-server", version: "1.0.0" };

export type Headers = Record<string, string | string[] | undefined>;
export type Reply = { status: number; body: Json };

/** What is behind the URL of an MCP server; `settings` are those of the extension, where it is offered. */
export interface Endpoint {
  capabilities: JsonObject; settings: JsonObject | null; instructions: string;
  knows(method: string): boolean;
  call(method: string, params: JsonObject, meta: JsonObject): Promise<JsonObject>;
}

/** Answer the body of a POST. */
export async function answer(endpoint: Endpoint, headers: Headers, body: Uint8Array): Promise<Reply> {
  const isModern = !LEGACY.includes(String(headers["mcp-protocol-version"] ?? "2025-03-26"));
  let id: Json = null;
  try {
    const { method, params = {}, ...request } = readRequest(body);
    if (request["id"] === undefined) return { status: 202, body: null };
    id = request["id"];
    const { _meta: meta = {}, ...others } = isObject(params) ? params : { _meta: null };
    if (!isObject(meta)) throw new Refusal(-32602, "params and _meta must be objects");
    if (isModern) checkModern(headers, method, others, meta);
    const result = greet(endpoint, isModern, method, others) ?? (await call(endpoint, isModern, method, others, meta));
    return { status: 200, body: { jsonrpc: "2.0", id, result: isModern ? complete(method, result) : result } };
  } catch (error) {
    return refuse(error, isModern, id);
  }
}

/** Answer with an error. */
export function refuse(thrown: unknown, isModern: boolean, id: Json = null): Reply {
  const { error } = thrown instanceof Refusal ? thrown : refusalOf(thrown);
  const isPlain = !isModern && error.code !== -32700 && error.code !== -32600;
  const status = isPlain ? 200 : (STATUS[error.code] ?? (error.code < 0 ? 400 : 200));
  return { status, body: { jsonrpc: "2.0", id, error } };
}

function refusalOf(thrown: unknown): Refusal {
  if (thrown instanceof Invalid) return new Refusal(-32602, thrown.message);
  const incident = logIncident("the server", thrown);
  return new Refusal(-32603, `the server failed (incident ${incident})`, { incident });
}

function readRequest(body: Uint8Array): JsonObject & { method: string } {
  let request: unknown;
  try {
    request = parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    throw new Refusal(-32700, "the body is not JSON in UTF-8, or nested too deeply");
  }
  const { jsonrpc, method, id = "" } = isObject(request) ? request : {};
  const isId = typeof id === "string" ? id.isWellFormed() : Number.isSafeInteger(id);
  if (jsonrpc !== "2.0" || typeof method !== "string" || !isId) throw new Refusal(-32600, "not one JSON-RPC request");
  return request as JsonObject & { method: string };
}

/** Check what revision 2026-07-28 requires of a request: its `_meta`, and headers that say the same. */
function checkModern(headers: Headers, method: string, { name }: JsonObject, meta: JsonObject): void {
  const { [`${META}protocolVersion`]: requested, [`${META}clientCapabilities`]: declared } = meta;
  const isWhole = requested !== undefined && isObject(declared);
  if (!isWhole) throw new Refusal(-32602, `_meta must hold ${META}protocolVersion and ${META}clientCapabilities`);
  const named = method === "tools/call" || method === "prompts/get" ? name : undefined;
  const wanted = { "mcp-protocol-version": requested, "mcp-method": method, "mcp-name": named };
  for (const [header, value] of Object.entries(wanted)) {
    const given = String(headers[header] ?? "");
    const coded = /^=\?base64\?(.*)\?=$/.exec(given)?.[1];
    const isSame = value === (coded === undefined ? given : Buffer.from(coded, "base64").toString());
    if (value !== undefined && !isSame) throw new Refusal(-32020, `the header ${header} differs from the request`);
  }
  const supported = [MODERN, ...LEGACY];
  if (requested !== MODERN) throw new Refusal(-32022, "this MCP revision is not supported", { supported, requested });
}

/** Answer the methods with which clients get to know a server; undefined for all others. */
function greet(endpoint: Endpoint, isModern: boolean, method: string, params: JsonObject): JsonObject | undefined {
  const { capabilities, settings, instructions } = endpoint;
  const offered = (key: string) => ({ ...capabilities, ...(settings && { [key]: { [EXTENSION]: settings } }) });
  const discovered = { supportedVersions: [MODERN, ...LEGACY], capabilities: offered("extensions"), instructions };
  const protocolVersion = LEGACY.find((each) => each === params["protocolVersion"]) ?? "2025-11-25";
  const initialized = { protocolVersion, capabilities: offered("experimental"), serverInfo, instructions };
  if (isModern) return method === "server/discover" ? discovered : undefined;
  return method === "initialize" ? initialized : method === "ping" ? {} : undefined;
}

async function call(endpoint: Endpoint, isModern: boolean, method: string, params: JsonObject, meta: JsonObject) {
  if (!endpoint.knows(method)) throw new Refusal(-32601, `there is no method ${write(method)}`);
  const declared = meta[`${META}clientCapabilities`] as { extensions?: Record<string, { version?: Json }> };
  const isDeclared = !isModern || declared.extensions?.[EXTENSION]?.version === VERSION;
  const requiredCapabilities = { extensions: { [EXTENSION]: { version: VERSION } } };
  if (isDeclared || !method.startsWith("dev.ludus/")) return endpoint.call(method, params, meta);
  throw new Refusal(-32021, `the request must declare ${EXTENSION} ${VERSION}`, { requiredCapabilities });
}

/** Add what revision 2026-07-28 requires of a result. */
function complete(method: string, result: JsonObject): JsonObject {
  const isCached = ["server/discover", "tools/list", "prompts/list"].includes(method);
  const caching: JsonObject = isCached ? { ttlMs: 0, cacheScope: "private" } : {};
  return { ...result, ...caching, resultType: "complete", _meta: { [`${META}serverInfo`]: serverInfo } };
}
