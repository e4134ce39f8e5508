// The module `channel`, where the package `ws` is installed: the methods over one WebSocket.
import type http from "node:http";
import type { Duplex } from "node:stream";
import type { Control } from "./control.ts";
import { checkRequest, isId, refusalOf } from "./mcp.ts";
import { Refusal, isObject, parse, write, type Json, type JsonObject } from "./wire.ts";

const PATH = "/channel";
const SUBPROTOCOL = "ludus.channel.v0.2";
const LARGEST_FRAME = 1 << 20;

/** What this file uses of `ws`. */
type Socket = {
  on(event: "message", listener: (data: Buffer, isBinary: boolean) => void): void;
  on(event: "error", listener: () => void): void;
  send(text: string): void;
  close(code: number): void;
};
type Sockets = {
  clients: Set<Socket>;
  on(event: "headers", listener: (headers: string[]) => void): void;
  handleUpgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer, done: (socket: Socket) => void): void;
};
type Package = { WebSocketServer: new (options: object) => Sockets };

/** Serve the channel; returns null without the package. */
export async function openChannel(
  server: http.Server,
  control: Control,
  checkOrigin: (request: http.IncomingMessage) => void,
): Promise<{ settings: JsonObject; close(): void } | null> {
  const name: string = "ws";
  const found = (await import(name).catch(() => null)) as Package | null;
  if (!found) return null;
  const handleProtocols = (offered: Set<string>) => offered.has(SUBPROTOCOL) && SUBPROTOCOL;
  const sockets = new found.WebSocketServer({ noServer: true, maxPayload: LARGEST_FRAME, handleProtocols });
  sockets.on("headers", (headers) => headers.push(`Ludus-Max-Frame: ${LARGEST_FRAME}`));
  server.on("upgrade", (request: http.IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on("error", () => socket.destroy());
    try {
      checkOrigin(request);
    } catch {
      return refuse(socket, "403 Forbidden", "this host or origin is not allowed");
    }
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((each) => each.trim());
    if ((request.url ?? "").split("?", 1)[0] !== PATH) return refuse(socket, "404 Not Found", "nothing is at this path");
    if (!offered.includes(SUBPROTOCOL)) return refuse(socket, "400 Bad Request", `offer the subprotocol ${SUBPROTOCOL}`);
    sockets.handleUpgrade(request, socket, head, (opened) => serve(opened, control));
  });
  const close = () => sockets.clients.forEach((socket) => socket.close(1001));
  return { settings: { path: PATH, subprotocol: SUBPROTOCOL }, close };
}

function refuse(socket: Duplex, status: string, message: string): void {
  const body = write(failure(null, new Refusal(-32600, message)));
  const head = `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close`;
  socket.end(`HTTP/1.1 ${status}\r\n${head}\r\n\r\n${body}`);
}

function serve(socket: Socket, control: Control): void {
  const ready: Json[] = [];
  const send = (reply: Json): void => {
    if (ready.push(reply) > 1) return;
    setImmediate(() => {
      const replies = ready.splice(0);
      socket.send(write(replies.length === 1 ? replies[0] : replies));
    });
  };
  socket.on("error", () => undefined);
  socket.on("message", (data, isBinary) => {
    let frame: unknown;
    try {
      frame = isBinary ? null : parse(data.toString());
    } catch {
      return send(failure(null, new Refusal(-32700, "not JSON")));
    }
    const requests: unknown[] = Array.isArray(frame) && frame.length ? frame : [frame];
    for (const request of requests) void reply(control, request).then(send);
  });
}

async function reply(control: Control, value: unknown): Promise<JsonObject> {
  const id = isObject(value) && isId(value["id"]) ? (value["id"] ?? null) : null;
  try {
    const { method, params = {}, ...others } = checkRequest(value);
    const unknown = Object.keys(others).find((name) => name !== "jsonrpc" && name !== "id");
    if (id === null) throw new Refusal(-32600, "a request has an id");
    if (unknown) throw new Refusal(-32600, `a request has no field ${JSON.stringify(unknown)}`);
    if (!control.knows(method as string)) throw new Refusal(-32601, `there is no method ${JSON.stringify(method)}`);
    return { jsonrpc: "2.0", id, result: await control.call(method as string, params) };
  } catch (error) {
    return failure(id, refusalOf(error));
  }
}

function failure(id: Json, refusal: Refusal): JsonObject {
  return { jsonrpc: "2.0", id, error: refusal.error };
}
