// The server: its command line, its HTTP, and its end.
import http from "node:http";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { openChannel } from "./channel.ts";
import { Control } from "./control.ts";
import type { Environment } from "./environment.ts";
import { limits } from "./episodes.ts";
import { VERSION, answer, refusalOf, type Endpoint, type Reply } from "./mcp.ts";
import { Capabilities } from "./play.ts";
import { Refusal, write, type JsonObject } from "./wire.ts";

const LARGEST_BODY = 1 << 20;
const STOP_SECONDS = 5;
const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];

/** A whole exchange that is refused with an HTTP status. */
class Rejected extends Error {
  readonly reply: Reply;

  constructor(status: number, refusal: Refusal) {
    super(refusal.message);
    this.reply = { status, body: { jsonrpc: "2.0", id: null, error: refusal.error } };
  }
}

/** Refuse requests of pages of other origins, and those for another host: this server serves loopback only. */
function checkOrigin({ headers }: http.IncomingMessage): void {
  const host = (headers.host ?? "").replace(/:\d*$/, "");
  if (!LOOPBACK.includes(host)) throw new Rejected(421, new Refusal(-32600, "this server serves loopback only"));
  const origin = headers.origin;
  if (origin === undefined || (URL.canParse(origin) && LOOPBACK.includes(new URL(origin).hostname))) return;
  throw new Rejected(403, new Refusal(-32600, "the origin is not allowed"));
}

function pathOf(request: http.IncomingMessage): string {
  return (request.url ?? "").split("?", 1)[0] ?? "";
}

async function readBody(request: http.IncomingMessage): Promise<Buffer> {
  const tooLarge = new Refusal(4130, `a body may have ${LARGEST_BODY} bytes`, { limit: LARGEST_BODY });
  if (Number(request.headers["content-length"] ?? 0) > LARGEST_BODY) throw new Rejected(413, tooLarge);
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > LARGEST_BODY) throw new Rejected(413, tooLarge);
  }
  return Buffer.concat(chunks);
}

async function main(): Promise<void> {
  const text = { type: "string" } as const;
  const names = { port: text, environment: text, idle: text, seconds: text, call: text, keep: text };
  const { values } = parseArgs({ options: names });
  for (const name of ["idle", "seconds", "call", "keep"] as const) limits[name] = Number(values[name] ?? limits[name]);
  const file = values.environment ? pathToFileURL(values.environment).href : "./guess.ts";
  const { default: environment } = (await import(file)) as { default: Environment };

  const capabilities = new Capabilities();
  const control = new Control([environment], (episode) => capabilities.grant(episode));
  const modules: JsonObject = { initialize: {}, play: { path: "/play/{capability}/mcp" } };
  const endpoint: Endpoint = {
    capabilities: { tools: {} },
    settings: { version: VERSION, modules },
    knows: (method) => control.knows(method) || method === "tools/list" || method === "tools/call",
    async call(method, params) {
      if (method === "tools/list") return { tools: [] };
      if (method === "tools/call") throw new Refusal(-32602, `there is no tool ${JSON.stringify(params["name"])}`);
      return control.call(method, params);
    },
  };

  const find = (path: string): Endpoint => {
    if (path === "/mcp") return endpoint;
    if (!path.startsWith("/play/")) throw new Rejected(404, new Refusal(-32601, "nothing is at this path"));
    try {
      return capabilities.open(path, control);
    } catch (error) {
      throw new Rejected(404, refusalOf(error));
    }
  };

  const exchange = async (request: http.IncomingMessage): Promise<Reply> => {
    checkOrigin(request);
    const found = find(pathOf(request));
    if (request.method !== "POST") throw new Rejected(405, new Refusal(-32600, "this endpoint takes POST"));
    return answer(found, request.headers, await readBody(request));
  };

  const server = http.createServer(async (request, response) => {
    let reply: Reply;
    try {
      reply = await exchange(request);
    } catch (error) {
      if (!(error instanceof Rejected)) return void response.destroy();
      reply = error.reply;
      if (!request.complete) response.setHeader("Connection", "close");
      if (reply.status === 405) response.setHeader("Allow", "POST");
    }
    if (reply.body !== null) response.setHeader("Content-Type", "application/json");
    response.writeHead(reply.status).end(reply.body === null ? "" : write(reply.body));
  });

  const channel = await openChannel(server, control, checkOrigin);
  if (channel) modules["channel"] = channel.settings;

  const stop = async (): Promise<void> => {
    server.close();
    await control.stop(STOP_SECONDS);
    channel?.close();
    server.closeIdleConnections();
    setTimeout(() => server.closeAllConnections(), 1000).unref();
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => void stop());
  server.listen(Number(values.port ?? 8000), "127.0.0.1", () => {
    const address = server.address();
    const port = typeof address === "object" ? address?.port : 0;
    console.log(JSON.stringify({ url: `http://127.0.0.1:${port}` }));
  });
}

await main();
