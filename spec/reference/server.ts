// The server: its command line, its HTTP, and its end.
import http from "node:http";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { createControl, knows } from "./control.ts";
import type { Environment } from "./environment.ts";
import { limits } from "./episodes.ts";
import { VERSION, answer, refuse, type Endpoint, type Reply } from "./mcp.ts";
import { Capabilities } from "./play.ts";
import { Refusal, write } from "./wire.ts";

const LARGEST_BODY = 1 << 20;
const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];
const text = { type: "string" } as const;
const options = { port: text, environment: text, idle: text, seconds: text, call: text, keep: text };
const { values: given } = parseArgs({ options });
for (const name of ["idle", "seconds", "call", "keep"] as const) limits[name] = Number(given[name] ?? limits[name]);
const file = given.environment ? pathToFileURL(given.environment).href : "./guess.ts";
const { default: environment } = (await import(file)) as { default: Environment };
const capabilities = new Capabilities();
const control = createControl(environment, (episode) => capabilities.grant(episode));
const endpoint: Endpoint = {
  capabilities: { tools: {} },
  settings: { version: VERSION, modules: { initialize: {}, play: { path: "/play/{capability}/mcp" } } },
  instructions: `This server offers episodes of ${environment.name} to clients of the extension dev.ludus/episodes.`,
  knows: (method) => method === "tools/list" || knows(method),
  call: async (method, params) => (method === "tools/list" ? { tools: [] } : control.call(method, params)),
};

/** Refuse a whole exchange. */
const reject = (status: number, message: string, code = -32600): Reply =>
  ({ ...refuse(new Refusal(code, message), true), status }); // prettier-ignore

/** Answer a request. This server serves its own machine only, and no pages of other origins. */
async function exchange(request: http.IncomingMessage): Promise<Reply> {
  const { host = "", origin, "content-length": length = 0 } = request.headers;
  if (!LOOPBACK.includes(host.replace(/:\d*$/, ""))) return reject(421, "this server serves its own machine only");
  const isAllowed = origin === undefined || (URL.canParse(origin) && LOOPBACK.includes(new URL(origin).hostname));
  if (!isAllowed) return reject(403, "this origin is not allowed");
  const path = (request.url ?? "").split("?", 1)[0] ?? "";
  const isPlay = path.startsWith("/play/");
  const found = path === "/mcp" ? endpoint : isPlay ? capabilities.open(path, control) : null;
  if (!found) return reject(404, "this path is unknown or has expired", isPlay ? 4011 : -32601);
  if (request.method !== "POST") return reject(405, "this endpoint takes POST");
  const tooLarge = reject(413, `a body has at most ${LARGEST_BODY} bytes`, 4130);
  if (Number(length) > LARGEST_BODY) return tooLarge;
  const chunks: Buffer[] = [];
  let left = LARGEST_BODY;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    left -= chunks[chunks.push(chunk as Buffer) - 1]!.length;
    if (left < 0) return tooLarge;
  }
  return answer(found, request.headers, Buffer.concat(chunks));
}

const server = http.createServer((request, response) => {
  const send = ({ status, body }: Reply) => {
    if (!request.complete) setTimeout(() => request.destroy(), 2000).unref(); // until then, Node drops the rest
    if (status === 405) response.setHeader("Allow", "POST");
    response.writeHead(status, { "Content-Type": "application/json" }).end(body === null ? "" : write(body));
  };
  exchange(request).then(send, () => response.destroy());
});

async function stop(): Promise<void> {
  server.close();
  await control.stop(5);
  server.closeIdleConnections();
  setTimeout(() => server.closeAllConnections(), 1000).unref();
}

process.once("SIGTERM", stop).once("SIGINT", stop);
server.listen(Number(given.port ?? 8000), "127.0.0.1", () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${(server.address() as { port: number }).port}` }));
});
